package sharedstore

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// fill sets every exported member to something that is not its zero value.
func fill(v reflect.Value, n *int) {
	*n++
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 0, *n, 123456789, time.FixedZone("", 3600*(*n%3)))))
		return
	case v.Type() == detailType:
		v.Set(reflect.ValueOf(map[string]any{"n": json.Number("9007199254740993"), "s": "<a&b> \u2028", "list": []any{"x", json.Number("1.50")}}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text \xff" + string(rune('a'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) << 40)
	case reflect.Uint8:
		v.SetUint(uint64(*n%256) | 1)
	case reflect.Uint64:
		v.SetUint(1<<63 + uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	default:
		panic(v.Type().String())
	}
}

// Every member crosses the socket, byte for byte; what is cut or changed on the way is an error and no panic.
func TestEveryMemberCrosses(t *testing.T) {
	for _, v := range []any{&toolguard.Write{}, &toolguard.Query{}, &toolguard.Page{}, &toolguard.Body{}, &[]toolguard.Event{}, &eventsOf{}, &documentOf{}, &stamps{}} {
		typ := reflect.TypeOf(v).Elem()
		t.Run(typ.String(), func(t *testing.T) {
			same := func(want any) string {
				t.Helper()
				text, err := encode(nil, want)
				if err != nil {
					t.Fatal(err)
				}
				got := reflect.New(typ).Interface()
				if err := decode(string(text), got); err != nil {
					t.Fatal(err)
				}
				plain(want)
				plain(got)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("got  %+v\nwant %+v", got, want)
				}
				return string(text)
			}
			same(v)
			n := 0
			fill(reflect.ValueOf(v).Elem(), &n)
			text := same(v)
			for i := range len(text) {
				if decode(text[:i], reflect.New(typ).Interface()) == nil {
					t.Fatalf("the first %d of %d bytes are taken for the whole", i, len(text))
				}
				changed := []byte(text)
				changed[i] ^= 0xff
				_ = decode(string(changed), reflect.New(typ).Interface())
			}
		})
	}
}

// plain replaces the locations of times by ones that can be compared.
func plain(v any) {
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		if v.Type() == timeType {
			at, _ := reflect.TypeAssert[time.Time](v)
			_, offset := at.Zone()
			v.Set(reflect.ValueOf(at.In(time.FixedZone("", offset))))
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(v))
}
