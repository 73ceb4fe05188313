package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"toolguard.dev/registry"
)

func TestPresumedEffect(t *testing.T) {
	for _, c := range []struct {
		name, annotations string
		effect            registry.Effect
		source            string
	}{
		{"pay", ``, registry.Write, "presumed"},
		{"get_invoice", ``, registry.Read, "presumed"},
		{"list-invoices", ``, registry.Read, "presumed"},
		{"searchInvoices", ``, registry.Read, "presumed"},
		{"ReadFile", ``, registry.Read, "presumed"},
		{"find_invoice", `null`, registry.Read, "presumed"},
		{"describe_x", `{}`, registry.Read, "presumed"},
		{"getaway", ``, registry.Write, "presumed"},
		{"get", ``, registry.Write, "presumed"},
		{"find_and_replace", ``, registry.Write, "presumed"},
		{"getOrCreateUser", ``, registry.Write, "presumed"},
		{"forget_user", ``, registry.Write, "presumed"},
		{"pay", `{"readOnlyHint":true}`, registry.Read, "annotated"},
		{"pay", `{"readOnlyHint":true,"idempotentHint":true}`, registry.Read, "annotated"},
		{"pay", `{"readOnlyHint":false,"idempotentHint":true}`, registry.Idempotent, "annotated"},
		{"pay", `{"idempotentHint":true}`, registry.Idempotent, "annotated"},
		{"pay", `{"destructiveHint":false}`, registry.Write, "presumed"},
		{"get_x", `{"readOnlyHint":false}`, registry.Write, "annotated"},
		{"get_x", `{"destructiveHint":true,"idempotentHint":false}`, registry.Read, "presumed"},
		{"pay", `{"readOnlyHint":"true"}`, registry.Write, "presumed"},
		{"pay", `{"READONLYHINT":true}`, registry.Write, "presumed"},
		{"pay", `{"readOnlyHint":1,"idempotentHint":{}}`, registry.Write, "presumed"},
		{"pay", `[true]`, registry.Write, "presumed"},
		{"pay", `{"readOnlyHint":tru`, registry.Write, "presumed"},
		{"pay", strings.Repeat(`{"a":`, 20_000), registry.Write, "presumed"},
		{"", ``, registry.Write, "presumed"},
		{"get_\xff", ``, registry.Read, "presumed"},
	} {
		effect, source := registry.PresumedEffect(c.name, json.RawMessage(c.annotations))
		if effect != c.effect || source != c.source {
			t.Errorf("%s %.50s: got %s, %s", c.name, c.annotations, effect, source)
		}
	}
}

func TestStricter(t *testing.T) {
	order := []registry.Effect{"", registry.Read, registry.Idempotent, registry.Write, registry.Deny}
	for i, a := range order {
		for j, b := range order {
			if got := a.Stricter(b); got != order[max(i, j)] {
				t.Errorf("%s, %s: got %s", a, b, got)
			}
		}
	}
}
