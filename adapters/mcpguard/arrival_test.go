//go:build unix

package mcpguard_test

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

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
		fd, err := syscall.Dup(int(r.(*os.File).Fd())) // Fd makes it blocking
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "stdin")
		t.Cleanup(func() { _ = f.Close() })
		return f, w
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
