package mcpguard_test

import (
	"io"
	"os"
	"strings"
	"testing"
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

// owed checks that a result is still owed: that no proof of its delivery was found in what the client sent.
func (w *world) owed(c *client, call string, owed bool) {
	w.t.Helper()
	_ = c.in.Close()
	err := <-c.ended
	c.ended <- err
	again := w.client()
	again.initialize()
	again.tool("exotic", `{}`).is(w.t, "fresh")
	want := "fresh"
	if owed {
		want = "replayed/done"
	}
	again.tool(call, `{}`).is(w.t, want)
}

// A message that was begun before there was a reply proves nothing, nor does what was sent along with it.
func TestWhatWasSentBeforeAReplyProvesNothing(t *testing.T) {
	for _, later := range []bool{false, true} {
		w := newWorld(t, nil, "normal")
		c := w.client()
		c.initialize()
		c.part(callNoisy + padded)
		readAnswer(t, c.receive()).is(t, "fresh")
		c.part(`"}}` + "\n" + ping)
		c.receive()
		if later {
			c.call("ping", `{}`)
			c.call("ping", `{}`)
		}
		w.owed(c, "noisy", !later)
	}
}

// A burst of messages, sent before any reply existed, of which the last is read long after the first was answered.
func TestABurstProvesNothing(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.part(callNoisy + padded + strings.Repeat("q", 4<<20) + `"}}` + "\n" + ping)
	c.receive()
	c.receive()
	w.owed(c, "noisy", true)
}

// A large reply is out only once the client has read most of it: what it sends before proves nothing.
func TestAReplyCountsFromItsLastByte(t *testing.T) {
	w := newWorld(t, nil, "normal")
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, in: inW, ended: make(chan error, 1)}
	go func() {
		c.ended <- w.gateway.ServeStdio(t.Context(), inR, outW)
		_ = outW.Close()
	}()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"large","arguments":{}}}`)
	begin := make([]byte, 10)
	if _, err := io.ReadFull(outR, begin); err != nil {
		t.Fatal(err)
	}
	c.send(strings.TrimSpace(callNoisy))
	w.untilNoted("effects", "noisy")
	read := make(chan bool)
	go func() { _, _ = io.Copy(io.Discard, outR); close(read) }()
	w.owed(c, "large", true)
	<-read
	_, _ = inR.Close(), outR.Close()
}
