package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

func putBytes(b []byte, v reflect.Value, _ bool) ([]byte, error) {
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

func putTime(b []byte, v reflect.Value, _ bool) ([]byte, error) {
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
func putDetail(b []byte, v reflect.Value, _ bool) ([]byte, error) {
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
