package codec_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"toolguard.dev/codec"
	"toolguard.dev/toolguard"
)

var (
	timeType   = reflect.TypeFor[time.Time]()
	detailType = reflect.TypeFor[map[string]any]()
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

// several has members of every kind.
type several struct {
	Names    []string
	Inner    []struct{ A, B string }
	Pointer  *struct{ N int }
	Data     []byte
	At       time.Time
	Rev      uint64
	Duration time.Duration
}

// Every member comes back, byte for byte; what is cut or changed on the way is an error and no panic.
func TestEveryMemberComesBack(t *testing.T) {
	for _, v := range []any{&toolguard.Write{}, &toolguard.Query{}, &toolguard.Page{}, &toolguard.Body{}, &[]toolguard.Event{}, &several{}} {
		typ := reflect.TypeOf(v).Elem()
		t.Run(typ.String(), func(t *testing.T) {
			same := func(want any) string {
				t.Helper()
				var text []byte
				for _, write := range []func([]byte, any) ([]byte, error){codec.Append, codec.AppendShort} {
					var err error
					if text, err = write(nil, want); err != nil {
						t.Fatal(err)
					}
					got := reflect.New(typ).Interface()
					if err := codec.Decode(string(text), got); err != nil {
						t.Fatal(err)
					}
					plain(want)
					plain(got)
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("got  %+v\nwant %+v", got, want)
					}
				}
				return string(text)
			}
			same(v)
			n := 0
			fill(reflect.ValueOf(v).Elem(), &n)
			text := same(v)
			for i := range len(text) {
				if codec.Decode(text[:i], reflect.New(typ).Interface()) == nil {
					t.Fatalf("the first %d of %d bytes are taken for the whole", i, len(text))
				}
				changed := []byte(text)
				changed[i] ^= 0xff
				_ = codec.Decode(string(changed), reflect.New(typ).Interface())
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

// Hashes and keys take half their length, and whatever looks like one comes back as it was.
func TestTexts(t *testing.T) {
	const digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		text string
		size int
	}{
		{"", 1}, {"x", 2}, {digits, 34}, {"sha256:" + digits, 34}, {"3b31c93a-0b79-861b-9a97-556d3b6e4e2a", 17},
		{"0123456789abcde", 16}, {"0123456789abcdef", 9}, {"0123456789abcdef0", 18}, {"0123456789ABCDEF", 17},
		{"sha256:", 8}, {"sha256:zz", 10}, {"sha256:sha256:0123456789abcdef", 31},
		{"3B31C93A-0B79-861B-9A97-556D3B6E4E2A", 38}, {"3b31c93a-0b79-861b-9a97+556d3b6e4e2a", 38}, {"--------------------------------" + "----", 38},
		{"00000000-0000-0000-0000-000000000000", 17}, {digits + digits + digits + digits, 130},
	} {
		text, err := codec.AppendShort(nil, &c.text)
		if err != nil || len(text) != c.size {
			t.Errorf("%q takes %d bytes, not %d (%v)", c.text, len(text), c.size, err)
		}
		var got string
		if err := codec.Decode(string(text), &got); err != nil || got != c.text {
			t.Errorf("%q came back as %q (%v)", c.text, got, err)
		}
	}
}

// A member more at the end of a struct leaves what was written before readable; what was written with it is refused by
// a program that does not know it.
func TestLaterMember(t *testing.T) {
	type before struct {
		A, B string
	}
	type after struct {
		A, B string
		C    []int
	}
	old, err := codec.Append(nil, &before{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	var now after
	if err := codec.Decode(string(old), &now); err != nil || now.A != "a" || now.B != "b" {
		t.Errorf("read %+v (%v)", now, err)
	}
	now.C = []int{1}
	text, err := codec.Append(nil, &now)
	if err != nil {
		t.Fatal(err)
	}
	if err := codec.Decode(string(text), &before{}); !errors.Is(err, codec.ErrDamaged) {
		t.Errorf("an unknown member is read without a word: %v", err)
	}
}

// Whatever is decoded is written again as a text that means the same; nothing panics.
func FuzzDecode(f *testing.F) {
	var op toolguard.Operation
	n := 0
	fill(reflect.ValueOf(&op).Elem(), &n)
	text, err := codec.AppendShort(nil, &op)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, text []byte) {
		var op, again toolguard.Operation
		if codec.Decode(string(text), &op) != nil {
			return
		}
		second, err := codec.AppendShort(nil, &op)
		if err != nil {
			return // a time that has no binary form
		}
		if err := codec.Decode(string(second), &again); err != nil {
			t.Fatal(err)
		}
		third, err := codec.AppendShort(nil, &again)
		if err != nil || string(third) != string(second) {
			t.Fatalf("%x became %x (%v)", second, third, err)
		}
	})
}
