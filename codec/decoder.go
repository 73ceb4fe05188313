package codec

import "reflect"

const (
	maxShared = 4 << 10 // bytes of a text whose strings share its memory
	maxRoom   = 128     // times its size is what a text may take, decoded: more than zeros of any struct do
)

// decoder takes values off a text. After an error it gives nothing but zeros.
type decoder struct {
	rest   string
	copies bool // strings are copied
	room   int  // bytes that structs and slices may still take
	err    error
}

// holds reports whether there is room for one more value of a type, and takes it.
func (d *decoder) holds(t reflect.Type) bool {
	if d.room -= int(t.Size()); d.room < 0 {
		d.fail()
	}
	return d.err == nil
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = ErrDamaged
	}
	d.rest = ""
}

func (d *decoder) take(n uint64) string {
	if n > uint64(len(d.rest)) {
		d.fail()
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) uvarint() uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		s := d.take(1)
		if s == "" {
			return 0
		}
		n |= uint64(s[0]&0x7f) << shift
		if s[0] < 0x80 {
			return n
		}
	}
	d.fail()
	return 0
}

func (d *decoder) flag() bool {
	s := d.take(1)
	if s > "\x01" {
		d.fail()
	}
	return s == "\x01"
}

// optional reads a length that may stand for nil, and returns what is left of it.
func (d *decoder) optional() (n uint64, ok bool) {
	n = d.uvarint()
	if n == 0 {
		return 0, false
	}
	if n-1 > uint64(len(d.rest)) {
		d.fail()
		return 0, false
	}
	return n - 1, true
}
