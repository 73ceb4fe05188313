package codec_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"toolguard.dev/codec"
	"toolguard.dev/toolguard"
)

// Whoever keeps a name out of a long text does not keep the text.
func TestLongTextIsNotKept(t *testing.T) {
	const size, times = 1 << 20, 64
	var kept []string
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range times {
		text, err := codec.Append(nil, &toolguard.Write{Token: fmt.Sprint("token ", i), Data: make([]byte, size)})
		if err != nil {
			t.Fatal(err)
		}
		var w toolguard.Write
		if err := codec.Decode(string(text), &w); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, w.Token)
	}
	if after := heap(); after > before+times*size/4 {
		t.Errorf("%d names keep %d bytes", len(kept), after-before)
	}
	runtime.KeepAlive(kept)
}

// A text that says of each of its bytes that it is a struct is refused before it takes much memory.
func TestTextThatTakesTooMuchIsRefused(t *testing.T) {
	elements := "\x81\x80\x40" + strings.Repeat("\x00", 1<<20) // a length, and so many structs without a member
	for _, v := range []any{&[]toolguard.Event{}, &[]toolguard.Operation{}} {
		if err := codec.Decode(elements, v); !errors.Is(err, codec.ErrDamaged) {
			t.Errorf("%d of %T are taken (%v)", reflect.ValueOf(v).Elem().Len(), v, err)
		}
	}
}

// As many zeros as a text can hold come back: what is refused is no text of ours.
func TestZerosComeBack(t *testing.T) {
	type page = toolguard.Page
	const n = 10_000
	ops := page{Operations: make([]*toolguard.Operation, n)}
	for i := range ops.Operations {
		ops.Operations[i] = &toolguard.Operation{}
	}
	for _, v := range []any{&ops, &page{Operations: make([]*toolguard.Operation, n)}, &toolguard.Write{Events: make([]toolguard.Event, n)},
		&toolguard.Operation{Attempts: make([]toolguard.Attempt, n)}, &toolguard.Operation{Rejected: make([]string, n)}} {
		text, err := codec.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := codec.Decode(string(text), got); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%T: %v", v, err)
		}
	}
}

// What is neither yes nor no is damage: it does not stand for something that is not there.
func TestNeitherYesNorNo(t *testing.T) {
	for _, v := range []any{new(bool), new(*toolguard.Decision), &[]bool{}} {
		text := "\x02"
		if reflect.TypeOf(v).Elem().Kind() == reflect.Slice {
			text = "\x02\x02"
		}
		if err := codec.Decode(text, v); !errors.Is(err, codec.ErrDamaged) {
			t.Errorf("%T: %v", v, err)
		}
	}
}
