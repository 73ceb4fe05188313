package mcpguard_test

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

// part sends a part of a line, or several lines, in one go.
func (c *client) part(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, text); err != nil {
		c.t.Fatal(err)
	}
}

const (
	callNoisy = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"noisy","arguments":{}}}` + "\n"
	ping      = `{"jsonrpc":"2.0","id":"b","method":"ping"}` + "\n"
	padded    = `{"jsonrpc":"2.0","method":"notifications/x","params":{"z":"`
)

// A message that was begun before there was a reply proves nothing, nor does what was sent along with it.
func TestWhatWasSentBeforeAReplyProvesNothing(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.part(callNoisy + padded)
	readAnswer(t, c.receive()).is(t, "fresh")
	c.part(`"}}` + "\n" + ping)
	c.receive()
	if w.delivered("books/noisy") {
		t.Error("a message that was on its way already counts as proof")
	}
	for end := time.Now().Add(patience); !w.delivered("books/noisy"); {
		if time.Now().After(end) {
			t.Fatal("a later message is no proof")
		}
		c.call("ping", `{}`)
	}
}

// A burst of messages, sent before any reply existed, of which the last is read long after the first was answered.
func TestABurstProvesNothing(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.part(callNoisy + padded + strings.Repeat("q", 25_000_000) + `"}}` + "\n" + ping)
	c.receive()
	c.receive()
	if w.delivered("books/noisy") {
		t.Fatal("a burst counts as proof")
	}
	_ = c.in.Close()
	err := <-c.ended
	c.ended <- err
	again := w.client()
	again.initialize()
	again.tool("exotic", `{}`).is(t, "fresh")
	again.tool("noisy", `{}`).is(t, "replayed/done") // it is owed
}

// The rest of a large reply is written only once the client has read most of it: what came in by then proves nothing.
func TestAReplyCountsFromItsLastByte(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.tool("noisy", fmt.Sprintf(`{"x":%q}`, strings.Repeat("y", 10_000))).is(t, "fresh")
	if w.delivered("books/noisy") {
		t.Error("written is not delivered")
	}
	c.call("ping", `{}`)
	w.untilDelivered("books/noisy")
}

func TestArrivals(t *testing.T) {
	polled := func() (io.Reader, io.Writer) { // a descriptor that the runtime polls
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		return r, w
	}
	blocking := func() (io.Reader, io.Writer) { // one that blocks, as stdin mostly does
		r, w := polled()
		_ = r.(*os.File).Fd() // makes it blocking
		return r, w
	}
	for name, pipe := range map[string]func() (io.Reader, io.Writer){"polled": polled, "blocking": blocking} {
		t.Run(name, func(t *testing.T) {
			r, w := pipe()
			a := mcpguard.NewArrivals(r)
			check := func(text string, want uint64) {
				t.Helper()
				if got, earlier, err := a.Read(); got != text || earlier != want || err != nil {
					t.Errorf("read %q, after %d replies, %v; want %q, %d", got, earlier, err, text, want)
				}
			}
			_, _ = io.WriteString(w, "waits")
			a.Begin()
			check("waits", 0)
			a.Begin() // the reader is busy, but then it finds that nothing waits
			checked := make(chan bool)
			go func() { check("later", 3); close(checked) }()
			untilIdle(t, a)
			a.Begin() // while the reader waits
			_, _ = io.WriteString(w, "later")
			<-checked
			a.Begin()
			_, _ = io.WriteString(w, "in doubt")
			check("in doubt", 3)
		})
	}
	t.Run("unseen", func(t *testing.T) { // only what the reader waited for counts
		r, w := io.Pipe()
		a := mcpguard.NewArrivals(r)
		for i, want := range []uint64{0, 2} {
			a.Begin()
			read := make(chan uint64)
			go func() { _, earlier, _ := a.Read(); read <- earlier }()
			untilIdle(t, a)
			if i > 0 {
				_, _ = io.WriteString(w, "x")
				if got := <-read; got != 0 {
					t.Errorf("%d replies, want 0", got)
				}
				go func() { _, earlier, _ := a.Read(); read <- earlier }()
				untilIdle(t, a)
				a.Begin()
				want++
			}
			_, _ = io.WriteString(w, "x")
			if got := <-read; got != want {
				t.Errorf("%d replies, want %d", got, want)
			}
		}
	})
}

func untilIdle(t *testing.T, a mcpguard.Arrivals) {
	t.Helper()
	for end := time.Now().Add(patience); !a.Idle(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("nobody reads")
		}
	}
}
