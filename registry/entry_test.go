package registry_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

const invoiceSchema = `{"type":"object","properties":{
	"invoice_id":{"type":"string"},"amount":{"type":"number","minimum":0},"memo":{"type":"string"},
	"unit":{"enum":["EUR","USD"]},"dry_run":{"type":"boolean"},"to":{"type":"array","items":{"type":"string"}},
	"card":{"$ref":"#/$defs/card"}},
	"required":["invoice_id"],
	"$defs":{"card":{"type":"object","properties":{"number":{"type":"string"}},"additionalProperties":false}}}`

func TestCompileSchemas(t *testing.T) {
	for name, c := range map[string]struct{ schema, want string }{
		"absent":           {``, ""},
		"null":             {`null`, ""},
		"true":             {`true`, ""},
		"empty":            {`{}`, ""},
		"false":            {`false`, "no arguments satisfy"},
		"array":            {`[]`, "no JSON object"},
		"not JSON":         {`{`, "unreadable"},
		"twice a member":   {`{"type":"object","type":"object"}`, "unreadable"},
		"draft 4":          {`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object"}`, ""},
		"draft 6":          {`{"$schema":"http://json-schema.org/draft-06/schema#","type":"object"}`, ""},
		"draft 7":          {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"items":[{"type":"string"}]}}}`, ""},
		"2019-09":          {`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object"}`, ""},
		"2020-12":          {`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`, ""},
		"meta-schema":      {`{"properties":{"schema":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`, ""},
		"old meta-schema":  {`{"properties":{"schema":{"$ref":"http://json-schema.org/draft-07/schema#"}}}`, ""},
		"own id":           {`{"$id":"https://example.com/a.json","properties":{"x":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`, ""},
		"other draft":      {`{"$schema":"https://example.com/my-draft"}`, "https://example.com/my-draft"},
		"draft is no text": {`{"$schema":7}`, "$schema"},
		"look-ahead":       {`{"properties":{"a":{"pattern":"^(?!x)"}}}`, "look-ahead"},
		"old tuple":        {`{"properties":{"a":{"items":[{"type":"string"}]}}}`, "/properties/a/items"},
		"type is no type":  {`{"type":"objekt"}`, "/type"},
		"huge number":      {`{"properties":{"a":{"maximum":1e999999999}}}`, "out of range"},
		"loop":             {`{"$ref":"#"}`, "loop"},
		"loop of two":      {`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"$ref":"#"}]}}}`, "loop"},
		"recursive":        {`{"properties":{"child":{"$ref":"#"}}}`, ""},
		"no such place":    {`{"properties":{"a":{"$ref":"#/$defs/none"}}}`, "not found"},
		"ref is no text":   {`{"properties":{"a":{"$ref":1}}}`, "$ref"},
		"deep":             {strings.Repeat(`{"not":`, 200) + "true" + strings.Repeat("}", 200), "unreadable"},
		"deep, allowed":    {strings.Repeat(`{"not":`, 100) + "true" + strings.Repeat("}", 100), ""},
		"large":            {`{"description":"` + strings.Repeat("x", 1<<20) + `"}`, "bytes"},
		"many":             {`{"enum":[` + strings.Repeat("[],", 5000) + `1]}`, "more than 5000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := registry.Compile(tool(c.schema, registry.Policy{}))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, registry.ErrSchema) {
				t.Fatalf("got %v", err)
			}
			plain(t, err.Error())
			for _, part := range []string{c.want, "books/pay"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}

// A schema that refers to a file or a page must not make us read it.
func TestCompileFollowsNoReference(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = true
		_, _ = w.Write([]byte(`{"type":"object"}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file://" + file, file, "../../" + file, server.URL + "/schema.json", "file:///dev/zero",
		"schema.json", "urn:other", "//127.0.0.1/x", "https://json-schema.org/draft/2020-12/none"} {
		for _, schema := range []string{
			`{"$ref":"` + ref + `"}`,
			`{"properties":{"a":{"$ref":"` + ref + `"}}}`,
			`{"$schema":"` + ref + `"}`,
			`{"$id":"file:///","properties":{"a":{"$dynamicRef":"` + ref + `"}}}`,
		} {
			_, err := registry.Compile(tool(schema, registry.Policy{}))
			if !errors.Is(err, registry.ErrSchema) {
				t.Errorf("%s: %v", schema, err)
			}
		}
	}
	if asked {
		t.Error("a page was fetched")
	}
}

func TestCompilePolicy(t *testing.T) {
	answer := expression(t, `result.status == 1`, registry.KindAnswer)
	text := expression(t, `"a"`, registry.KindArguments)
	for name, c := range map[string]struct {
		schema string
		policy registry.Policy
		want   string // "" is fine
	}{
		"all of it": {invoiceSchema, registry.Policy{
			OncePer: []string{"source_event", "tenant", "workflow", "/invoice_id"}, MayDiffer: []string{"/memo"},
			Entity: []string{"/card/number"}, Normalize: keyderive.Normalize{"/to/*": {"lower"}, "/to": {"sort"}},
		}, ""},
		"misspelt":                 {invoiceSchema, registry.Policy{OncePer: []string{"/invoice"}}, "/invoice"},
		"misspelt may_differ":      {invoiceSchema, registry.Policy{MayDiffer: []string{"/nemo"}}, "/nemo"},
		"misspelt entity":          {invoiceSchema, registry.Policy{Entity: []string{"/path"}}, "/path"},
		"misspelt normalize":       {invoiceSchema, registry.Policy{Normalize: keyderive.Normalize{"/too/*": {"lower"}}}, "/too/*"},
		"misspelt key":             {invoiceSchema, registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: "/key"}}, "/key"},
		"below a reference":        {invoiceSchema, registry.Policy{OncePer: []string{"/card/numero"}}, "/card/numero"},
		"below a string":           {invoiceSchema, registry.Policy{OncePer: []string{"/memo/x"}}, "/memo/x"},
		"name in an array":         {invoiceSchema, registry.Policy{OncePer: []string{"/to/x"}}, "/to/x"},
		"index in an array":        {invoiceSchema, registry.Policy{OncePer: []string{"/to/0"}}, ""},
		"pattern in once_per":      {invoiceSchema, registry.Policy{OncePer: []string{"/to/*"}}, "/to/*"},
		"no properties":            {`{"type":"object"}`, registry.Policy{OncePer: []string{"/x"}}, ""},
		"no arguments":             {`{"type":"object","properties":{}}`, registry.Policy{OncePer: []string{"/x"}}, "/x"},
		"closed":                   {`{"additionalProperties":false}`, registry.Policy{OncePer: []string{"/x"}}, "/x"},
		"open but listed":          {`{"properties":{"a":{}},"additionalProperties":true}`, registry.Policy{OncePer: []string{"/x"}}, "/x"},
		"described others":         {`{"properties":{"a":{}},"additionalProperties":{"type":"string"}}`, registry.Policy{OncePer: []string{"/x"}}, ""},
		"patterns":                 {`{"properties":{"a":{}},"patternProperties":{"^x":{}}}`, registry.Policy{OncePer: []string{"/x"}}, ""},
		"alternatives":             {`{"properties":{"a":{}},"anyOf":[{"properties":{"x":{}}}]}`, registry.Policy{OncePer: []string{"/x"}}, ""},
		"anything below":           {`{"properties":{"a":true}}`, registry.Policy{OncePer: []string{"/a/b/c"}}, ""},
		"any array":                {`{"properties":{"a":{"type":"array"}}}`, registry.Policy{OncePer: []string{"/a/0/b"}}, ""},
		"no pointer":               {invoiceSchema, registry.Policy{MayDiffer: []string{"memo"}}, "memo"},
		"bad pointer":              {invoiceSchema, registry.Policy{OncePer: []string{"/a~2"}}, "/a~2"},
		"root":                     {invoiceSchema, registry.Policy{MayDiffer: []string{""}}, "no JSON Pointer"},
		"unknown fact":             {invoiceSchema, registry.Policy{OncePer: []string{"sourceevent"}}, "sourceevent"},
		"empty word":               {invoiceSchema, registry.Policy{OncePer: []string{""}}, "neither"},
		"session":                  {invoiceSchema, registry.Policy{OncePer: []string{"session"}}, "chat session"},
		"actor":                    {invoiceSchema, registry.Policy{OncePer: []string{"actor"}}, "actor"},
		"call id":                  {invoiceSchema, registry.Policy{OncePer: []string{"call_id"}}, "call id"},
		"version":                  {invoiceSchema, registry.Policy{OncePer: []string{"workflow_version"}}, "version"},
		"unknown step":             {invoiceSchema, registry.Policy{Normalize: keyderive.Normalize{"/memo": {"rot13"}}}, "rot13"},
		"two keys":                 {invoiceSchema, registry.Policy{DownstreamKey: registry.DownstreamKey{Meta: "a", Header: "b"}}, "one of"},
		"key in identity":          {invoiceSchema, registry.Policy{OncePer: []string{"/memo"}, DownstreamKey: registry.DownstreamKey{Argument: "/memo"}}, "downstream key"},
		"error mode":               {invoiceSchema, registry.Policy{Errors: "maybe"}, "maybe"},
		"reads_when of an answer":  {invoiceSchema, registry.Policy{ReadsWhen: answer}, "reads_when"},
		"reads_when is no bool":    {invoiceSchema, registry.Policy{ReadsWhen: text}, "reads_when"},
		"classify is no bool":      {invoiceSchema, registry.Policy{NotApplied: []*registry.Expression{text}}, "condition"},
		"classify has nil":         {invoiceSchema, registry.Policy{Unknown: []*registry.Expression{nil}}, "condition"},
		"downstream_id is no text": {invoiceSchema, registry.Policy{DownstreamID: answer}, "downstream_id"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := registry.Compile(tool(c.schema, c.policy))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, registry.ErrPolicy) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			plain(t, err.Error())
		})
	}
	for _, bad := range []registry.Tool{{Name: "x"}, {Server: "x"}, {Server: "x", Name: "y", Effect: "loud"}} {
		if _, err := registry.Compile(bad); !errors.Is(err, registry.ErrPolicy) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestDefinition(t *testing.T) {
	e := compile(t, invoiceSchema, registry.Policy{OncePer: []string{"run", "/invoice_id", "tenant"}})
	d := e.Definition
	if !d.Declared || len(d.Facts) != 1 || d.Facts[0] != "run" || len(d.Target) != 1 || d.Target[0] != "/invoice_id" {
		t.Errorf("got %+v", d)
	}
	if compile(t, invoiceSchema, registry.Policy{}).Definition.Declared {
		t.Error("declared without once_per")
	}
	if d := compile(t, invoiceSchema, registry.Policy{OncePer: []string{}}).Definition; !d.Declared || d.Target != nil {
		t.Errorf("an empty once_per is a declaration: %+v", d)
	}
}

func TestPolicyHash(t *testing.T) {
	base := tool(invoiceSchema, registry.Policy{NotApplied: conditions(t, `result.is_error`)})
	hash := func(change func(*registry.Tool)) string {
		changed := base
		change(&changed)
		e, err := registry.Compile(changed)
		if err != nil {
			t.Fatal(err)
		}
		return e.PolicyHash
	}
	want := hash(func(*registry.Tool) {})
	if !strings.HasPrefix(want, "sha256:") {
		t.Errorf("got %s", want)
	}
	for name, change := range map[string]func(*registry.Tool){
		"condition":     func(x *registry.Tool) { x.Policy.NotApplied = conditions(t, `!result.is_error`) },
		"once_per":      func(x *registry.Tool) { x.Policy.OncePer = []string{} },
		"window":        func(x *registry.Tool) { x.Policy.DownstreamKey.Window = time.Hour },
		"input schema":  func(x *registry.Tool) { x.InputSchema = json.RawMessage(`{}`) },
		"output schema": func(x *registry.Tool) { x.OutputSchema = json.RawMessage(`{}`) },
		"version":       func(x *registry.Tool) { x.Version = "2" },
		"effect":        func(x *registry.Tool) { x.Effect = registry.Idempotent },
	} {
		if hash(change) == want {
			t.Errorf("%s does not change it", name)
		}
	}
	if hash(func(x *registry.Tool) { x.InputSchema = json.RawMessage(" " + invoiceSchema) }) != want {
		t.Error("white space changes it")
	}
}
