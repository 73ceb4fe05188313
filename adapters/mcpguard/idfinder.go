package mcpguard

import (
	"bytes"
	"encoding/json"
)

// maxID is the longest id that is found in a message that cannot be read, in bytes.
const maxID = 256

// idFinder finds the id of a message that is too long to be kept or too deep to be parsed, from its parts as they come.
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

// idOf is the id of a request that cannot be parsed, nil if it cannot be found or the message is no request.
func idOf(message []byte) json.RawMessage {
	var f idFinder
	f.write(message)
	return f.asks()
}

// answers is the id of the request that the message answers, "" if it is not known. An id of ours is never a string.
func (f *idFinder) answers() string {
	if f.request || bytes.HasPrefix(f.id, []byte{'"'}) {
		return ""
	}
	return string(f.id)
}

// asks is the id of the request that the message is, nil if it is none or its id is not known.
func (f *idFinder) asks() json.RawMessage {
	if !f.request || !f.done || len(f.id) > maxID || !json.Valid(f.id) || idKey(f.id) == "" {
		return nil
	}
	return json.RawMessage(f.id)
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
			f.keep(c)
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
			f.keep(c)
		}
	}
}

// keep takes a byte that belongs to the id, if this is one.
func (f *idFinder) keep(c byte) {
	if f.value && f.level == 1 && len(f.id) <= maxID {
		f.id = append(f.id, c)
	}
}

func (f *idFinder) string(c byte) {
	f.keep(c)
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
