package mcpguard

import (
	"io"
	"sync"
)

// arrivals reads from a client and knows of what it reads how many replies were out, at least, before it was sent.
//
// When something is read says nothing of when it was sent: it may have waited long before. So a reply counts as
// earlier only if there was a moment, after its last byte was handed over, when the reader had taken every message to
// its end and nothing waited. Whoever writes several messages in one go proves nothing with the later ones.
type arrivals struct {
	in   io.Reader
	line *inbound // nil: it cannot be seen whether something waits; the reader's own waiting has to do

	mu      sync.Mutex
	begun   uint64 // replies whose last byte is being written, or was
	earlier uint64 // as many of them are known to be earlier than all that is still to be read
	idle    bool   // the reader waits between two messages and has taken nothing yet
}

func newArrivals(in io.Reader) *arrivals { return &arrivals{in: in, line: inboundOf(in)} }

// begin counts a reply, right before its last byte is written.
func (a *arrivals) begin() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun++
	if a.idle && (a.line == nil || a.line.empty()) {
		a.earlier = a.begun
	}
	return a.begun
}

// read reads between two messages. earlier is how many replies had begun before the first byte of it was sent.
func (a *arrivals) read(buf []byte) (n int, earlier uint64, err error) {
	a.wait()
	if a.line == nil {
		n, err = a.in.Read(buf)
		return n, a.take(), err
	}
	a.line.wait()
	earlier = a.take() // before anything is taken, so that begin never takes a line for empty that was just emptied
	n, err = a.in.Read(buf)
	return n, earlier, err
}

// wait notes that the reader waits for the next message.
func (a *arrivals) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = true
	if a.line != nil && a.line.empty() {
		a.earlier = a.begun
	}
}

// take notes that the reader goes on to take something.
func (a *arrivals) take() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = false
	return a.earlier
}
