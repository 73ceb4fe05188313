// Package codec writes Go values in a short binary form: [Append] does it, and [Decode] reads it back.
//
// The ledger's records and what processes that share a ledger send each other have this form. Every exported member of a
// struct comes back as it was, byte for byte: encoding/json would write raw messages anew, leave out what is tagged
// "-", and take longer than the store. Members that are zero take a bit each. Members are numbered in the order of
// their declaration, so that a new one at the end of its struct leaves what was written before readable; [Layout] says
// whether two programs would understand each other.
//
// The package must not know what the values mean, nor where they go.
package codec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"sync"
	"time"
)

// ErrDamaged: what is decoded is not what [Append] wrote.
var ErrDamaged = errors.New("damaged")

// codec writes and reads the values of one type.
type codec struct {
	put func(b []byte, v reflect.Value, short bool) ([]byte, error)
	get func(d *decoder, v reflect.Value)
}

var codecs sync.Map // reflect.Type → *codec

var (
	timeType   = reflect.TypeFor[time.Time]()
	detailType = reflect.TypeFor[map[string]any]()
)

func codecOf(t reflect.Type) *codec {
	if c, ok := codecs.Load(t); ok {
		return c.(*codec)
	}
	c := newCodec(t)
	codecs.Store(t, c)
	return c
}

// Append appends what v points to. Structs, pointers, slices, strings, integers, booleans, times and JSON objects
// (map[string]any) can be written, the latter by encoding/json; another type is a mistake in the program, and panics.
// It fails only on a time without a binary form and on an object that JSON cannot hold. It is safe for concurrent use.
func Append(b []byte, v any) ([]byte, error) { return put(b, v, false) }

// AppendShort is Append for what is kept: hashes and keys take half the room, and more time to read.
func AppendShort(b []byte, v any) ([]byte, error) { return put(b, v, true) }

func put(b []byte, v any, short bool) ([]byte, error) {
	e := reflect.ValueOf(v).Elem()
	return codecOf(e.Type()).put(b, e, short)
}

// Decode reads what v points to, a zero value, from the whole of text, or returns [ErrDamaged]. Strings share the memory of a
// short text; of a long one, each would keep the whole. A hostile text makes it take about a hundred times its own size.
// It is safe for concurrent use.
func Decode(text string, v any) error {
	d := &decoder{rest: text, copies: len(text) > maxShared, room: maxRoom * (len(text) + 64)}
	e := reflect.ValueOf(v).Elem()
	codecOf(e.Type()).get(d, e)
	if d.err == nil && d.rest != "" {
		d.fail()
	}
	return d.err
}

func newCodec(t reflect.Type) *codec {
	switch {
	case t == timeType:
		return &codec{putTime, getTime}
	case t == detailType:
		return &codec{putDetail, getDetail}
	}
	switch t.Kind() {
	case reflect.String:
		return &codec{
			func(b []byte, v reflect.Value, short bool) ([]byte, error) {
				if short {
					return appendText(b, v.String()), nil
				}
				return appendPlain(b, v.String()), nil
			},
			func(d *decoder, v reflect.Value) { v.SetString(d.text()) },
		}
	case reflect.Bool:
		return &codec{
			func(b []byte, v reflect.Value, _ bool) ([]byte, error) {
				if v.Bool() {
					return append(b, 1), nil
				}
				return append(b, 0), nil
			},
			func(d *decoder, v reflect.Value) { v.SetBool(d.flag()) },
		}
	case reflect.Int, reflect.Int64:
		return &codec{
			func(b []byte, v reflect.Value, _ bool) ([]byte, error) { return binary.AppendVarint(b, v.Int()), nil },
			func(d *decoder, v reflect.Value) {
				n := d.uvarint()
				v.SetInt(int64(n>>1) ^ -int64(n&1))
			},
		}
	case reflect.Uint64:
		return &codec{
			func(b []byte, v reflect.Value, _ bool) ([]byte, error) { return binary.AppendUvarint(b, v.Uint()), nil },
			func(d *decoder, v reflect.Value) { v.SetUint(d.uvarint()) },
		}
	case reflect.Pointer:
		return pointerCodec(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &codec{putBytes, getBytes}
		}
		return sliceCodec(t)
	case reflect.Struct:
		return structCodec(t)
	}
	panic(fmt.Sprintf("codec: none for %s", t))
}

func pointerCodec(t reflect.Type) *codec {
	elem := codecOf(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value, short bool) ([]byte, error) {
			if v.IsNil() {
				return append(b, 0), nil
			}
			return elem.put(append(b, 1), v.Elem(), short)
		},
		func(d *decoder, v reflect.Value) {
			if d.flag() && d.holds(t.Elem()) {
				v.Set(reflect.New(t.Elem()))
				elem.get(d, v.Elem())
			}
		},
	}
}

func sliceCodec(t reflect.Type) *codec {
	elem := codecOf(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value, short bool) (_ []byte, err error) {
			if v.IsNil() {
				return append(b, 0), nil
			}
			b = binary.AppendUvarint(b, uint64(v.Len())+1)
			for i := range v.Len() {
				if b, err = elem.put(b, v.Index(i), short); err != nil {
					return nil, err
				}
			}
			return b, nil
		},
		func(d *decoder, v reflect.Value) {
			n, ok := d.optional() // every element takes a byte at least
			if !ok {
				return
			}
			if n == 0 {
				v.Set(reflect.MakeSlice(t, 0, 0))
				return
			}
			v.Grow(min(int(n), 8))
			for i := 0; i < int(n) && d.holds(t.Elem()); i++ {
				v.Grow(1)
				v.SetLen(i + 1)
				elem.get(d, v.Index(i))
			}
		},
	}
}

// structCodec writes how many bytes of bits follow, a bit for each member, and the members whose bit is set.
func structCodec(t reflect.Type) *codec {
	type member struct {
		index int
		*codec
	}
	var ms []member
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			ms = append(ms, member{i, codecOf(f.Type)})
		}
	}
	width := (len(ms) + 7) / 8
	return &codec{
		func(b []byte, v reflect.Value, short bool) (_ []byte, err error) {
			at := len(b) + 1
			b = append(append(b, byte(width)), make([]byte, width)...)
			for i, m := range ms {
				f := v.Field(m.index)
				if f.IsZero() {
					continue
				}
				b[at+i/8] |= 1 << (i % 8)
				if b, err = m.put(b, f, short); err != nil {
					return nil, err
				}
			}
			return b, nil
		},
		func(d *decoder, v reflect.Value) {
			n := d.take(1)
			if n == "" {
				return
			}
			set := d.take(uint64(n[0]))
			for i := range len(set) {
				for left := set[i]; left != 0; left &= left - 1 {
					n := 8*i + bits.TrailingZeros8(left)
					if n >= len(ms) {
						d.fail()
						return
					}
					ms[n].get(d, v.Field(ms[n].index))
				}
			}
		},
	}
}

// Layout names what is written for values of these types, so that two programs can tell whether they would understand each
// other.
func Layout(types ...reflect.Type) string {
	sum := sha256.New()
	var describe func(t reflect.Type)
	describe = func(t reflect.Type) {
		switch {
		case t == timeType, t == detailType:
			fmt.Fprint(sum, t)
		case t.Kind() == reflect.Struct:
			fmt.Fprint(sum, "{")
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() {
					fmt.Fprint(sum, f.Name, " ")
					describe(f.Type)
				}
			}
			fmt.Fprint(sum, "}")
		case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice:
			fmt.Fprint(sum, t.Kind(), " ")
			describe(t.Elem())
		default:
			fmt.Fprint(sum, t.Kind(), ";")
		}
	}
	for _, t := range types {
		describe(t)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
