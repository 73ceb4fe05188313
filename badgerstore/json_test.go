package badgerstore

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

func TestJSONIsThatOfTheStandardLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var op toolguard.Operation
		fill(random, reflect.ValueOf(&op).Elem())
		same(t, &op)
		var e toolguard.Event
		fill(random, reflect.ValueOf(&e).Elem())
		same(t, &e)
	}
	for _, v := range []any{
		"plain", "é<>&\u2028\"\\\n\xff", 1.5, []byte("bytes"), map[string]int{"a": 1}, (*int)(nil), []string(nil), []string{}, uint8(3), true, json.RawMessage(`{"a":1}`),
		struct {
			A int `json:",omitempty"`
			B time.Time
		}{}, struct{ a int }{}, struct {
			toolguard.Event
			X int `json:"x"`
		}{}, struct {
			N int `json:"n,string"`
		}{},
	} {
		same(t, v)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[toolguard.Operation](), reflect.TypeFor[toolguard.Attempt](), reflect.TypeFor[toolguard.Event]()} {
		if _, ok := membersOf(typ); !ok {
			t.Errorf("%s takes the long way", typ)
		}
	}
}

func same(t *testing.T, v any) {
	t.Helper()
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	got, err := appendJSON([]byte("before "), reflect.ValueOf(v))
	if err != nil || string(got)+"\n" != "before "+want.String() {
		t.Fatalf("%v\ngot  %s\nwant %s", err, got, want.String())
	}
}

// fill sets about half of what v holds.
func fill(random *rand.Rand, v reflect.Value) {
	if random.IntN(2) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"x", "two words", "<é>", "\"q\"\n", "\xff", "\x7f"}[random.IntN(6)])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(random.Int64() - random.Int64())
	case reflect.Uint64:
		v.SetUint(random.Uint64())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem())
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]any{"a": "<", "n": 1.5}))
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), random.IntN(3), 3))
		for i := range v.Len() {
			fill(random, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == timeType {
			v.Set(reflect.ValueOf(time.Unix(random.Int64N(1<<33), random.Int64N(1e9)).In(time.FixedZone("", 3600*random.IntN(3)))))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(random, v.Field(i))
			}
		}
	}
}
