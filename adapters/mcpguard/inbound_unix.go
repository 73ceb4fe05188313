//go:build unix

package mcpguard

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// inbound is a descriptor of which it can be seen whether something waits to be read.
type inbound struct{ raw syscall.RawConn }

// inboundOf is the descriptor that a reader reads from, nil if it has none.
func inboundOf(in io.Reader) *inbound {
	c, ok := in.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return &inbound{raw}
}

// empty reports that nothing waits, not even the end. In doubt something does.
func (l *inbound) empty() bool {
	empty := false
	_ = l.raw.Control(func(fd uintptr) { empty = !readable(fd, 0) })
	return empty
}

// wait returns when something can be read.
func (l *inbound) wait() {
	// The descriptor is either one that the runtime polls, or one whose reads block and the waiting must as well.
	if l.raw.Read(func(fd uintptr) bool { return readable(fd, 0) }) != nil {
		_ = l.raw.Control(func(fd uintptr) { readable(fd, -1) })
	}
}

// readable waits at most so many milliseconds, or for ever if negative; false: nothing can be read yet.
func readable(fd uintptr, timeout int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, timeout)
		if !errors.Is(err, unix.EINTR) {
			return n != 0 || err != nil
		}
	}
}
