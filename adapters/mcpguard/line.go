package mcpguard

import (
	"bytes"
	"errors"
	"io"
)

// maxMessage is the longest message that is read, on either side: 32 MiB.
const maxMessage = 32 << 20

// errTooLong: a line was longer than allowed. The rest of it was skipped; the next one can be read.
var errTooLong = errors.New("the message is too long")

// lineReader reads lines of bounded length.
type lineReader struct {
	in       io.Reader
	max      int
	arrivals *arrivals    // reads between two lines, for stamp; may be nil
	skipped  func([]byte) // is given the parts of a line that is too long; may be nil

	buf     []byte
	r, w    int
	err     error
	earlier uint64
	stamp   uint64 // how many replies had begun, at least, before the first byte of the latest line was sent
}

func newLineReader(in io.Reader, max int) *lineReader {
	return &lineReader{in: in, max: max, buf: make([]byte, 64<<10)}
}

// next returns the next line without its end. The line is the caller's to keep. A last line that has no end is
// returned too; after it the error is io.EOF.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	first, long := true, false
	for {
		if l.r == l.w && !l.fill(first) {
			if long {
				return nil, errTooLong
			}
			if len(line) > 0 {
				return bytes.TrimSuffix(line, []byte("\r")), nil
			}
			return nil, l.err
		}
		if first {
			l.stamp, first = l.earlier, false
		}
		part, ended := l.buf[l.r:l.w], false
		if i := bytes.IndexByte(part, '\n'); i >= 0 {
			part, ended = part[:i], true
			l.r++
		}
		l.r += len(part)
		switch {
		case long:
			l.skip(part)
		case len(line)+len(part) > l.max:
			l.skip(line)
			l.skip(part)
			line, long = nil, true
		default:
			line = append(line, part...)
		}
		if ended {
			if long {
				return nil, errTooLong
			}
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
	}
}

func (l *lineReader) skip(part []byte) {
	if l.skipped != nil {
		l.skipped(part)
	}
}

// fill reads once; false: there is no more. What comes in with the rest of a line may have been sent with its
// beginning: only a read between two lines says anew what is earlier.
func (l *lineReader) fill(between bool) bool {
	for l.err == nil {
		l.r = 0
		if between && l.arrivals != nil {
			l.w, l.earlier, l.err = l.arrivals.read(l.buf)
		} else {
			l.w, l.err = l.in.Read(l.buf)
		}
		if l.w > 0 {
			return true
		}
	}
	return false
}
