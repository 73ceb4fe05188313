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
	in      io.Reader
	max     int
	arrived func() uint64 // sampled after every read, for stamp; may be nil
	skipped func([]byte)  // is given the parts of a line that is too long; may be nil

	buf     []byte
	r, w    int
	err     error
	sampled uint64
	stamp   uint64 // what arrived gave when the first byte of the latest line came in
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
		if l.r == l.w && !l.fill() {
			if long {
				return nil, errTooLong
			}
			if len(line) > 0 {
				return bytes.TrimSuffix(line, []byte("\r")), nil
			}
			return nil, l.err
		}
		if first {
			l.stamp, first = l.sampled, false
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

// fill reads once; false: there is no more.
func (l *lineReader) fill() bool {
	for l.err == nil {
		n, err := l.in.Read(l.buf)
		if l.arrived != nil {
			l.sampled = l.arrived()
		}
		l.r, l.w, l.err = 0, n, err
		if n > 0 {
			return true
		}
	}
	return false
}

// idFinder finds the id of a message that is too long to be kept, from its parts as they come.
type idFinder struct {
	level         int
	inside        bool // a string
	escape        bool
	name, pending []byte // the latest string on the top level; a member's name before its colon
	value         bool   // of the top-level member id
	id            []byte
	done          bool
	request       bool // it has a method: its id is the other side's
}

// answers is the id of the request that the message answers, "" if it is not known.
func (f *idFinder) answers() string {
	if f.request {
		return ""
	}
	return string(f.id)
}

// write takes the next part.
func (f *idFinder) write(part []byte) {
	for _, c := range part {
		if f.inside {
			f.string(c)
			continue
		}
		switch c {
		case '"':
			f.inside, f.pending = true, f.pending[:0]
			if f.value && f.level == 1 {
				f.value = false // an id of ours is never a string
			}
		case '{', '[':
			f.level++
			f.value = false
		case '}', ']':
			f.close()
			f.level--
		case ':':
			if f.level == 1 {
				f.name = append(f.name[:0], f.pending...)
				f.value = string(f.name) == "id" && !f.done
				f.request = f.request || string(f.name) == "method"
			}
		case ',':
			f.close()
		case ' ', '\t', '\r':
		default:
			if f.value && len(f.id) < 32 {
				f.id = append(f.id, c)
			}
		}
	}
}

func (f *idFinder) string(c byte) {
	switch {
	case f.escape:
		f.escape = false
	case c == '\\':
		f.escape = true
	case c == '"':
		f.inside = false
		return
	}
	if len(f.pending) < 8 {
		f.pending = append(f.pending, c)
	}
}

func (f *idFinder) close() {
	if f.value && f.level == 1 {
		f.value, f.done = false, true
	}
}
