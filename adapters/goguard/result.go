package goguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"toolguard.dev/registry"
)

// answer is what a function returned, as MCP would say it: a text, and the object itself where it is one.
func answer(s shape, out any) (registry.Answer, error) {
	if v := reflect.ValueOf(out); (v.Kind() == reflect.Pointer || v.Kind() == reflect.Map) && v.IsNil() {
		return registry.Answer{}, errNothing
	}
	raw, err := encode(out)
	if err != nil {
		return registry.Answer{}, fmt.Errorf("the function's result cannot be read: %w", err)
	}
	text := string(raw)
	if s.text {
		if err := json.Unmarshal(raw, &text); err != nil {
			return registry.Answer{}, fmt.Errorf("the function's result cannot be read: %w", err)
		}
	}
	var texts []string
	if text != "" && !s.empty {
		texts = []string{text}
	}
	if s.object == nil || s.empty {
		raw = nil
	}
	return registry.NewAnswer(raw, false, texts...)
}

// decode reads a result back.
func decode[Out any](s shape, a registry.Answer) (out Out, err error) {
	raw := []byte(a.Structured())
	switch {
	case s.empty:
		raw = []byte("{}")
	case raw != nil:
	case s.text:
		raw, err = encode(a.Text())
	default:
		raw = []byte(a.Text())
	}
	if err != nil {
		return out, err
	}
	return out, exactly(raw, &out)
}

// encode is v as JSON, with <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// exactly reads JSON; numbers in untyped places keep their exact value.
func exactly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more after it")
	}
	return nil
}
