package badgerstore_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// The members of a record are numbered in the order of their declaration: a new one comes last in its struct, and into
// testdata/members.txt; any other change makes another format of the ledger (the constant in folder.go), and this file anew.
func TestMembersOfARecord(t *testing.T) {
	want, err := os.ReadFile("testdata/members.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}
	var got strings.Builder
	var list func(typ reflect.Type)
	list = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		fmt.Fprintf(&got, "%s\n", typ)
		for _, f := range reflect.VisibleFields(typ) {
			if f.IsExported() {
				fmt.Fprintf(&got, "\t%s %s\n", f.Name, f.Type)
			}
		}
		for _, f := range reflect.VisibleFields(typ) {
			list(f.Type)
		}
	}
	list(reflect.TypeFor[toolguard.Operation]())
	if got.String() != string(want) {
		t.Errorf("the members of a record are now\n%s", got.String())
	}
}
