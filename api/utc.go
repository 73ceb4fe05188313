package api

import (
	"reflect"
	"time"

	"toolguard.dev/toolguard"
)

var (
	timeType  = reflect.TypeFor[time.Time]()
	eventType = reflect.TypeFor[toolguard.Event]()
)

// inUTC puts every time in what v points to into UTC, and returns v. Events are left out: their hash covers their time
// as it stands.
func inUTC(v any) any {
	walk(reflect.ValueOf(v))
	return v
}

func walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 || v.Type().Elem() == eventType {
			return
		}
		for i := range v.Len() {
			walk(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == timeType {
			if t, _ := reflect.TypeAssert[time.Time](v); v.CanSet() && !t.IsZero() {
				v.Set(reflect.ValueOf(t.UTC()))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				walk(v.Field(i))
			}
		}
	}
}
