package keyderive_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"toolguard.dev/keyderive"
)

var someFacts = keyderive.Facts{
	Tenant: "acme", Workflow: "default", SourceEvent: "evt_1", Request: "req_1", Run: "run_1", Step: "7",
	Session: "ses", Actor: "ann", CallID: "call_0", WorkflowVersion: "3", Client: "cli",
}

func TestScope(t *testing.T) {
	tests := []struct {
		name  string
		def   keyderive.Definition
		facts keyderive.Facts
		class keyderive.Class
		want  string // scope and target
	}{
		{"declared facts only", keyderive.Definition{Declared: true, Facts: []string{"run", "tenant", "run"}, Target: []string{"/a"}}, someFacts, keyderive.ClassDeclared,
			`"scope":{"run":"run_1","tenant":"acme","workflow":"default"},"target":{"/a":1}`},
		{"all facts", keyderive.Definition{Declared: true, Facts: []string{"workflow", "tenant", "step", "source_event", "run", "request"}}, someFacts, keyderive.ClassDeclared,
			`"scope":{"request":"req_1","run":"run_1","source_event":"evt_1","step":"7","tenant":"acme","workflow":"default"},"target":{}`},
		{"declared without anything", keyderive.Definition{Declared: true}, someFacts, keyderive.ClassDeclared,
			`"scope":{"tenant":"acme","workflow":"default"},"target":{}`},
		{"undeclared, facts", keyderive.Definition{}, someFacts, keyderive.ClassFacts,
			`"scope":{"run":"run_1","source_event":"evt_1","step":"7","tenant":"acme","workflow":"default"},"target":{"":DIGEST}`},
		{"undeclared, a step", keyderive.Definition{}, keyderive.Facts{Tenant: "acme", Workflow: "w", Request: "r", Step: "7"}, keyderive.ClassFacts,
			`"scope":{"step":"7","tenant":"acme","workflow":"w"},"target":{"":DIGEST}`},
		{"undeclared, a request", keyderive.Definition{}, keyderive.Facts{Tenant: "acme", Workflow: "w", Request: "r", Session: "s"}, keyderive.ClassTurn,
			`"scope":{"request":"r","tenant":"acme","workflow":"w"},"target":{"":DIGEST}`},
		{"undeclared, nothing", keyderive.Definition{}, keyderive.Facts{Tenant: "acme", Workflow: "w", CallID: "c"}, keyderive.ClassTurn,
			`"scope":{"tenant":"acme","workflow":"w"},"target":{"":DIGEST}`},
		{"names and values that need escapes", keyderive.Definition{Declared: true, Facts: []string{"run"}, Target: []string{"/q\"", "/\U0001F600", "/\ufb33", "/o"}},
			keyderive.Facts{Tenant: "a\"\\", Workflow: "é", Run: "\n"}, keyderive.ClassDeclared,
			`"scope":{"run":"\n","tenant":"a\"\\","workflow":"é"},"target":{"/o":{"x":[1,null]},"/q\"":false,"/😀":0,` + "\"/\ufb33\":\"<\"}"},
	}
	args := parse(`{"a":1.0,"q\"":false,"\ud83d\ude00":0,"\ufb33":"<","o":{"x":[1,null]}}`)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.def.Version = keyderive.KeyVersion
			id := derive(t, test.def, "s/t", test.facts, args)
			want := strings.Replace(test.want, "DIGEST", `"`+id.MaterialDigest+`"`, 1)
			key, material := id.Key(12)
			if want = `{"action":"s/t","occurrence":12,` + want + `,"v":1}`; string(material) != want {
				t.Errorf("material %s, want %s", material, want)
			}
			if again := must(keyderive.Canonical(material)); string(again) != string(material) {
				t.Errorf("material is not canonical: %s, want %s", material, again)
			}
			if key != keyderive.KeyOf(material) {
				t.Error("Key and KeyOf disagree")
			}
			if id.Class != test.class || id.Class.Strict() != (test.class != keyderive.ClassTurn) {
				t.Errorf("class %d", id.Class)
			}
		})
	}
}

func TestDeriveRefuses(t *testing.T) {
	declared := keyderive.Definition{Version: 1, Declared: true, Facts: []string{"source_event"}, Target: []string{"/id"},
		Normalize: keyderive.Normalize{"/id": {"trim"}}}
	full := keyderive.Facts{Tenant: "acme", Workflow: "w", SourceEvent: "e"}
	tests := []struct {
		action, args string
		facts        keyderive.Facts
		want         error
		names        string
	}{
		{"s/t", `{"id":1}`, keyderive.Facts{Tenant: "acme", Workflow: "w", Run: "r"}, keyderive.ErrFactMissing, "source_event"},
		{"s/t", `{"id":1}`, keyderive.Facts{Workflow: "w", SourceEvent: "e"}, keyderive.ErrFactMissing, "tenant"},
		{"s/t", `{"id":1}`, keyderive.Facts{Tenant: "acme", SourceEvent: "e"}, keyderive.ErrFactMissing, "workflow"},
		{"s/t", `{"id":1}`, keyderive.Facts{Tenant: "a\xff", Workflow: "w", SourceEvent: "e"}, keyderive.ErrFactMissing, "tenant"},
		{"", `{"id":1}`, full, keyderive.ErrFactMissing, "action"},
		{"s/t", `{}`, full, keyderive.ErrTargetMissing, "/id"},
		{"s/t", `{"id":null}`, full, keyderive.ErrTargetMissing, "/id"},
		{"s/t", `{"id":""}`, full, keyderive.ErrTargetMissing, "/id"},
		{"s/t", `{"id":" \n"}`, full, keyderive.ErrTargetMissing, "/id"},
		{"s/t", `[]`, full, keyderive.ErrTargetMissing, "/id"},
		{"s/t", `null`, full, keyderive.ErrTargetMissing, "/id"},
		{"s/t", `{"id":0}`, full, nil, ""},
		{"s/t", `{"id":false}`, full, nil, ""},
		{"s/t", `{"id":[]}`, full, nil, ""},
		{"s/t", `{"id":{}}`, full, nil, ""},
	}
	d := must(declared.Compile())
	for _, test := range tests {
		id, err := d.Derive(test.action, test.facts, parse(test.args))
		if !errors.Is(err, test.want) || err != nil && (!strings.Contains(err.Error(), test.names) || !reflect.DeepEqual(id, keyderive.Identity{})) {
			t.Errorf("%s with %+v: %+v, error %v", test.args, test.facts, id, err)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	tests := []struct {
		def  keyderive.Definition
		want error
	}{
		{keyderive.Definition{Version: 1}, nil},
		{keyderive.Definition{}, keyderive.ErrDefinition},
		{keyderive.Definition{Version: 2}, keyderive.ErrDefinition},
		{keyderive.Definition{Version: 1, Target: []string{"/a"}}, keyderive.ErrDefinition},
		{keyderive.Definition{Version: 1, Facts: []string{"run"}}, keyderive.ErrDefinition},
		{keyderive.Definition{Version: 1, Declared: true, Facts: []string{"session"}}, keyderive.ErrDefinition},
		{keyderive.Definition{Version: 1, Declared: true, Facts: []string{"call_id"}}, keyderive.ErrDefinition},
		{keyderive.Definition{Version: 1, Declared: true, Target: []string{"a"}}, keyderive.ErrPointer},
		{keyderive.Definition{Version: 1, Declared: true, Target: []string{""}}, keyderive.ErrPointer},
		{keyderive.Definition{Version: 1, MayDiffer: []string{""}}, keyderive.ErrPointer},
		{keyderive.Definition{Version: 1, MayDiffer: []string{"/~"}}, keyderive.ErrPointer},
		{keyderive.Definition{Version: 1, KeyArgument: "key"}, keyderive.ErrPointer},
		{keyderive.Definition{Version: 1, Normalize: keyderive.Normalize{"/a": {"nfc"}}}, keyderive.ErrNormalize},
	}
	for _, test := range tests {
		if d, err := test.def.Compile(); !errors.Is(err, test.want) || (d == nil) != (err != nil) {
			t.Errorf("%+v: error %v", test.def, err)
		}
	}
}

// TestIdentity shows what each part of an identity depends on.
func TestIdentity(t *testing.T) {
	def := keyderive.Definition{
		Version: 1, Declared: true, Facts: []string{"source_event"}, Target: []string{"/id", "/currency"},
		MayDiffer: []string{"/memo"}, KeyArgument: "/key", Normalize: keyderive.Normalize{"/id": {"trim", "upper"}},
		Defaults: keyderive.SchemaDefaults(parse(`{"properties":{"currency":{"default":"USD"},"urgent":{"default":false}}}`)),
	}
	base := derive(t, def, "s/t", someFacts, parse(`{"id":"A-1","currency":"USD","amount":1,"memo":"x"}`))
	if got := canonical(base.Payload); got != `{"amount":1,"id":"A-1","memo":"x"}` {
		t.Errorf("payload %s", got)
	}
	if got := canonical(base.Material); got != `{"amount":1}` {
		t.Errorf("material %s", got)
	}
	if base.MaterialDigest != keyderive.Digest([]byte(canonical(base.Material))) {
		t.Error("the digest is not that of the value")
	}
	if _, m := base.Key(1); !strings.Contains(string(m), `"target":{"/currency":"USD","/id":"A-1"}`) {
		t.Errorf("a target equal to its default is no value: %s", m)
	}
	otherEvent := someFacts
	otherEvent.SourceEvent = "evt_2"
	otherTenant := someFacts
	otherTenant.Tenant = "globex"
	otherTurn := someFacts
	otherTurn.Session, otherTurn.CallID, otherTurn.Request, otherTurn.Run, otherTurn.Client = "", "call_9", "req_2", "", "x"
	tests := []struct {
		name, action                    string
		facts                           keyderive.Facts
		args                            string
		key, subject, payload, material bool // the same as base
	}{
		{"another spelling", "s/t", someFacts, `{"memo":"x","urgent":false,"id":" a-1","amount":1.0,"currency":"USD","key":"theirs"}`, true, true, true, true},
		{"another turn", "s/t", otherTurn, `{"id":"A-1","currency":"USD","amount":1,"memo":"x"}`, true, true, true, true},
		{"another memo", "s/t", someFacts, `{"id":"A-1","currency":"USD","amount":1,"memo":"y"}`, true, true, false, true},
		{"another amount", "s/t", someFacts, `{"id":"A-1","currency":"USD","amount":2,"memo":"x"}`, true, true, false, false},
		{"another event", "s/t", otherEvent, `{"id":"A-1","currency":"USD","amount":1,"memo":"x"}`, false, true, true, true},
		{"another target", "s/t", someFacts, `{"id":"A-2","currency":"USD","amount":1,"memo":"x"}`, false, false, false, true},
		{"another tenant", "s/t", otherTenant, `{"id":"A-1","currency":"USD","amount":1,"memo":"x"}`, false, false, true, true},
		{"another action", "s/u", someFacts, `{"id":"A-1","currency":"USD","amount":1,"memo":"x"}`, false, false, true, true},
	}
	baseKey, _ := base.Key(1)
	for _, test := range tests {
		id := derive(t, def, test.action, test.facts, parse(test.args))
		key, _ := id.Key(1)
		got := []bool{key == baseKey, id.Intent == base.Intent, id.Subject == base.Subject, canonical(id.Payload) == canonical(base.Payload), id.MaterialDigest == base.MaterialDigest}
		if want := []bool{test.key, test.key, test.subject, test.payload, test.material}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: same key, intent, subject, payload, material: %v, want %v", test.name, got, want)
		}
	}
	if id := derive(t, def, "s/t", someFacts, parse(`{"id":"A-1","currency":"USD"}`)); id.Definition != def.ID() {
		t.Error("another definition")
	}
}

// TestKeyArgument: what a caller writes in the place of the key plays no part,
// nor does an object that has nothing else but its default.
func TestKeyArgument(t *testing.T) {
	def := keyderive.Definition{Version: 1, KeyArgument: "/meta/key",
		Defaults: keyderive.SchemaDefaults(parse(`{"properties":{"meta":{"default":{"a":1}}}}`))}
	want := derive(t, def, "s/t", someFacts, parse(`{}`))
	for _, args := range []string{`{"meta":{"a":1}}`, `{"meta":{"key":"x","a":1}}`} {
		if id := derive(t, def, "s/t", someFacts, parse(args)); id.Intent != want.Intent || canonical(id.Payload) != canonical(want.Payload) {
			t.Errorf("%s has payload %s", args, canonical(id.Payload))
		}
	}
}

func TestIntentAndSubject(t *testing.T) {
	def := keyderive.Definition{Version: 1, Declared: true, Facts: []string{"run"}, Target: []string{"/id"}}
	id := derive(t, def, "s/t", someFacts, parse(`{"id":1}`))
	sum := func(text string) string { return strings.TrimPrefix(keyderive.Digest([]byte(text)), "sha256:") }
	if want := keyderive.KeyOf([]byte(`{"action":"s/t","occurrence":1,"scope":{"run":"run_1","tenant":"acme","workflow":"default"},"target":{"/id":1},"v":1}`)); id.Intent != want {
		t.Errorf("intent %s, want %s", id.Intent, want)
	}
	if want := sum(`{"action":"s/t","target":{"/id":1},"tenant":"acme","workflow":"default"}`); id.Subject != want {
		t.Errorf("subject %s, want %s", id.Subject, want)
	}
}

func TestKeyIsUUIDv8(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	id := derive(t, keyderive.Definition{Version: 1}, "s/t", someFacts, parse(`{}`))
	seen := map[string]bool{}
	for n := 1; n < 1000; n++ {
		key, _ := id.Key(n)
		if !form.MatchString(key) || seen[key] {
			t.Fatalf("occurrence %d has key %s", n, key)
		}
		seen[key] = true
	}
	first, _ := id.Key(1)
	if key, _ := id.Key(0); key != first {
		t.Error("occurrence 0 is not the first")
	}
	var zero keyderive.Identity
	zero.Key(1)
}

func TestDefinitionJSON(t *testing.T) {
	def := keyderive.Definition{
		Version: 1, Declared: true, Facts: []string{"run", "step"}, Target: []string{"/b<", "/a"}, MayDiffer: []string{"/memo"},
		KeyArgument: "/key", Normalize: keyderive.Normalize{"/to": {"sort"}, "/to/*": {"trim", "lower"}, "/x": nil},
		Defaults: keyderive.SchemaDefaults(parse(`{"properties":{"a":{"default":"<&>"},"o":{"properties":{"x":{"default":null}}}}}`)),
	}
	for _, d := range []keyderive.Definition{def, {Version: 1}, {}, {Version: 1, Declared: true, Facts: []string{}}} {
		text := must(json.Marshal(d))
		if want := keyderive.Digest(must(keyderive.Canonical(text))); d.ID() != want {
			t.Errorf("ID %s, want %s, the digest of %s", d.ID(), want, text)
		}
		var back keyderive.Definition
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if len(d.Facts) == 0 {
			d.Facts = nil
		}
		if !reflect.DeepEqual(back, d) {
			t.Errorf("%s gives back %+v, want %+v", text, back, d)
		}
	}
	if got := string(must(json.Marshal(keyderive.Definition{Version: 1}))); got != `{"v":1,"defaults":[]}` {
		t.Error(got)
	}
}

func TestFacts(t *testing.T) {
	var f keyderive.Facts
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString(v.Type().Field(i).Name)
	}
	identity := map[string]string{"tenant": "Tenant", "workflow": "Workflow", "source_event": "SourceEvent", "request": "Request", "run": "Run", "step": "Step"}
	var names map[string]string
	if err := json.Unmarshal(must(json.Marshal(f)), &names); err != nil {
		t.Fatal(err)
	}
	if len(names) != v.NumField() {
		t.Errorf("JSON %v", names)
	}
	for name, value := range names {
		got, ok := f.Get(name)
		if want, may := identity[name]; ok != may || got != want {
			t.Errorf("%s (%s): %q, %t", name, value, got, ok)
		}
	}
	if text := must(json.Marshal(keyderive.Facts{})); string(text) != "{}" {
		t.Errorf("unknown facts are %s", text)
	}
}

func TestDeriverConcurrently(t *testing.T) {
	def := keyderive.Definition{Version: 1, MayDiffer: []string{"/memo"}, Normalize: keyderive.Normalize{"/to": {"sort"}},
		Defaults: keyderive.SchemaDefaults(parse(`{"properties":{"a":{"default":1}}}`))}
	d := must(def.Compile())
	args := parse(`{"a":1,"to":["b","a"],"memo":"x"}`)
	want := must(d.Derive("s/t", someFacts, args)).Intent
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if id, err := d.Derive("s/t", someFacts, args); err != nil || id.Intent != want {
					t.Error(id.Intent, err)
				}
			}
		})
	}
	wg.Wait()
}
