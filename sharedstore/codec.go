package sharedstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
)

// What crosses the socket is every exported member of the contract's types, in the order of their declaration, byte
// for byte: encoding/json would write raw messages anew, leave out what is tagged "-", and take longer than the
// store. Both ends must know the same members, which the hello makes sure of (see layout).

// codec writes and reads the values of one type.
type codec struct {
	put func(b []byte, v reflect.Value) ([]byte, error)
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

// encode appends what v points to.
func encode(b []byte, v any) ([]byte, error) {
	e := reflect.ValueOf(v).Elem()
	return codecOf(e.Type()).put(b, e)
}

// decode reads what v points to from the whole of text.
func decode(text string, v any) error {
	d := &decoder{rest: text}
	e := reflect.ValueOf(v).Elem()
	codecOf(e.Type()).get(d, e)
	if d.err == nil && d.rest != "" {
		d.fail()
	}
	return d.err
}

var errDamaged = errors.New("a damaged message")

// decoder takes values off a text. After an error it gives nothing but zeros.
type decoder struct {
	rest string
	err  error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errDamaged
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
			func(b []byte, v reflect.Value) ([]byte, error) {
				return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...), nil
			},
			func(d *decoder, v reflect.Value) { v.SetString(d.take(d.uvarint())) },
		}
	case reflect.Bool:
		return &codec{
			func(b []byte, v reflect.Value) ([]byte, error) {
				if v.Bool() {
					return append(b, 1), nil
				}
				return append(b, 0), nil
			},
			func(d *decoder, v reflect.Value) { v.SetBool(d.take(1) == "\x01") },
		}
	case reflect.Int, reflect.Int64:
		return &codec{
			func(b []byte, v reflect.Value) ([]byte, error) { return binary.AppendVarint(b, v.Int()), nil },
			func(d *decoder, v reflect.Value) {
				n := d.uvarint()
				v.SetInt(int64(n>>1) ^ -int64(n&1))
			},
		}
	case reflect.Uint64:
		return &codec{
			func(b []byte, v reflect.Value) ([]byte, error) { return binary.AppendUvarint(b, v.Uint()), nil },
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
	panic(fmt.Sprintf("sharedstore: no codec for %s", t))
}

func pointerCodec(t reflect.Type) *codec {
	elem := codecOf(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value) ([]byte, error) {
			if v.IsNil() {
				return append(b, 0), nil
			}
			return elem.put(append(b, 1), v.Elem())
		},
		func(d *decoder, v reflect.Value) {
			if d.take(1) == "\x01" {
				v.Set(reflect.New(t.Elem()))
				elem.get(d, v.Elem())
			}
		},
	}
}

func sliceCodec(t reflect.Type) *codec {
	elem := codecOf(t.Elem())
	return &codec{
		func(b []byte, v reflect.Value) (_ []byte, err error) {
			if v.IsNil() {
				return append(b, 0), nil
			}
			b = binary.AppendUvarint(b, uint64(v.Len())+1)
			for i := range v.Len() {
				if b, err = elem.put(b, v.Index(i)); err != nil {
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
			v.Grow(min(int(n), 64))
			for i := 0; i < int(n) && d.err == nil; i++ {
				v.Grow(1)
				v.SetLen(i + 1)
				elem.get(d, v.Index(i))
			}
		},
	}
}

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
	return &codec{
		func(b []byte, v reflect.Value) (_ []byte, err error) {
			for _, m := range ms {
				if b, err = m.put(b, v.Field(m.index)); err != nil {
					return nil, err
				}
			}
			return b, nil
		},
		func(d *decoder, v reflect.Value) {
			for _, m := range ms {
				m.get(d, v.Field(m.index))
			}
		},
	}
}

func putBytes(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, 0), nil
	}
	return append(binary.AppendUvarint(b, uint64(v.Len())+1), v.Bytes()...), nil
}

func getBytes(d *decoder, v reflect.Value) {
	if n, ok := d.optional(); ok {
		v.SetBytes([]byte(d.take(n)))
	}
}

func putTime(b []byte, v reflect.Value) ([]byte, error) {
	t, _ := reflect.TypeAssert[time.Time](v)
	if t == (time.Time{}) {
		return append(b, 0), nil
	}
	at := len(b)
	b, err := t.AppendBinary(append(b, 0))
	if err != nil {
		return nil, fmt.Errorf("a time: %w", err)
	}
	b[at] = byte(len(b) - at - 1)
	return b, nil
}

func getTime(d *decoder, v reflect.Value) {
	text := d.take(d.uvarint())
	if text == "" {
		return
	}
	var room [32]byte
	var t time.Time
	if t.UnmarshalBinary(append(room[:0], text...)) != nil {
		d.fail()
		return
	}
	*v.Addr().Interface().(*time.Time) = t
}

// putDetail writes what an event tells besides, as JSON: it is whatever the guard put there.
func putDetail(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, 0), nil
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Interface()); err != nil {
		return nil, fmt.Errorf("an event's detail: %w", err)
	}
	return append(binary.AppendUvarint(b, uint64(text.Len())+1), text.Bytes()...), nil
}

func getDetail(d *decoder, v reflect.Value) {
	n, ok := d.optional()
	if !ok {
		return
	}
	var detail map[string]any
	j := json.NewDecoder(strings.NewReader(d.take(n)))
	j.UseNumber() // the hash covers numbers of any size
	if j.Decode(&detail) != nil {
		d.fail()
		return
	}
	v.Set(reflect.ValueOf(detail))
}

// layout names what the codecs of types write, so that two programs can tell whether they would understand each other.
func layout(types ...reflect.Type) string {
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
