package mcpguard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
)

// A handler gets what mcp-go would have read from the wire.
func TestTypedRequest(t *testing.T) {
	const key = `"dev.toolguard/key":"K"`
	for name, test := range map[string]struct {
		a       registry.Dispatch // Arguments: {"x":1}, where it has none
		keyMeta string
		want    string // the members of the params besides name; "" for an error
	}{
		"plain":            {a: registry.Dispatch{Key: "K"}, want: `"arguments":{"x":1},"_meta":{` + key + `}`},
		"null arguments":   {a: registry.Dispatch{Key: "K", Arguments: []byte(`null`)}, want: `"arguments":null,"_meta":{` + key + `}`},
		"no object":        {a: registry.Dispatch{Arguments: []byte(`[1,"a"]`)}, want: `"arguments":[1,"a"]`},
		"spaces":           {a: registry.Dispatch{Arguments: []byte(" \n{ \"x\" : 1 }\t")}, want: `"arguments":{ "x" : 1 }`},
		"numbers":          {a: registry.Dispatch{Arguments: []byte(`{"a":1e2,"b":12345678901234567890,"c":-0,"d":0.10,"e":[1.0]}`)}, want: `"arguments":{"a":1e2,"b":12345678901234567890,"c":-0,"d":0.10,"e":[1.0]}`},
		"strings":          {a: registry.Dispatch{Arguments: []byte(`{"a":"\u00e9<&\ud800\/","":"\ud83d\ude00"}`)}, want: `"arguments":{"a":"\u00e9<&\ud800\/","":"\ud83d\ude00"}`},
		"twice":            {a: registry.Dispatch{Arguments: []byte(`{"a":1,"a":{"b":null}}`)}, want: `"arguments":{"a":1,"a":{"b":null}}`},
		"too large":        {a: registry.Dispatch{Arguments: []byte(`{"a":1e400}`)}},
		"nothing":          {a: registry.Dispatch{Arguments: []byte(` `)}},
		"null _meta":       {a: registry.Dispatch{Meta: []byte(`null`)}, want: `"arguments":{"x":1}`},
		"null, and a key":  {a: registry.Dispatch{Meta: []byte(`null`), Key: "K"}, want: `"arguments":{"x":1},"_meta":{` + key + `}`},
		"empty _meta":      {a: registry.Dispatch{Meta: []byte(`{}`)}, want: `"arguments":{"x":1}`},
		"token":            {a: registry.Dispatch{Meta: []byte(`{"progressToken":7,"a":"b"}`), Key: "K"}, want: `"arguments":{"x":1},"_meta":{"progressToken":7,"a":"b",` + key + `}`},
		"token as text":    {a: registry.Dispatch{Meta: []byte(`{"progressToken":"\u0070"}`)}, want: `"arguments":{"x":1},"_meta":{"progressToken":"p"}`},
		"null token":       {a: registry.Dispatch{Meta: []byte(`{"progressToken":null,"n":null}`)}, want: `"arguments":{"x":1},"_meta":{"progressToken":null,"n":null}`},
		"unknown members":  {a: registry.Dispatch{Meta: []byte(`{"a":{"b":[1e2,12345678901234567890]},"c":false,"d":"é\n","":1}`), Key: "K"}, want: `"arguments":{"x":1},"_meta":{"a":{"b":[1e2,12345678901234567890]},"c":false,"d":"é\n","":1,` + key + `}`},
		"protocol":         {a: registry.Dispatch{Meta: []byte(`{` + modernMeta + `}`), Key: "K"}, want: `"arguments":{"x":1},"_meta":{` + modernMeta + `,` + key + `}`},
		"protocol, a read": {a: registry.Dispatch{Meta: []byte(`{` + modernMeta + `}`)}, want: `"arguments":{"x":1},"_meta":{` + modernMeta + `}`},
		"a false key":      {a: registry.Dispatch{Meta: []byte(`{"dev.toolguard/key":"mine","to":"mine"}`), Key: "K"}, keyMeta: "to", want: `"arguments":{"x":1},"_meta":{` + key + `,"to":"K"}`},
		"the key as token": {a: registry.Dispatch{Meta: []byte(`{"progressToken":7}`), Key: "K"}, keyMeta: "progressToken", want: `"arguments":{"x":1},"_meta":{` + key + `,"progressToken":"K"}`},
		"_meta twice":      {a: registry.Dispatch{Meta: []byte(`{"a":1,"a":2}`), Key: "K"}},
		"_meta no object":  {a: registry.Dispatch{Meta: []byte(`5`), Key: "K"}},
		"_meta too large":  {a: registry.Dispatch{Meta: []byte(`{"a":1e400}`), Key: "K"}},
		"_meta too deep":   {a: registry.Dispatch{Meta: []byte(`{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`), Key: "K"}},
		"input":            {a: registry.Dispatch{Input: []byte(`{"inputResponses":{"sure":{"action":"accept","n":1.0}},"requestState":"s"}`)}, want: `"arguments":{"x":1},"inputResponses":{"sure":{"action":"accept","n":1.0}},"requestState":"s"`},
		"input, one":       {a: registry.Dispatch{Input: []byte(`{"requestState":"s"}`)}, want: `"arguments":{"x":1},"requestState":"s"`},
		"input unreadable": {a: registry.Dispatch{Input: []byte(`[]`)}},
	} {
		if test.a.Arguments == nil {
			test.a.Arguments = []byte(`{"x":1}`)
		}
		before := test.a
		before.Arguments = bytes.Clone(test.a.Arguments)
		got, err := mcpguard.TypedRequest("pay", test.keyMeta, &test.a)
		if test.want == "" {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			continue
		}
		want := mcp.CallToolRequest{Request: mcp.Request{Method: "tools/call"}}
		if err := json.Unmarshal([]byte(`{"name":"pay",`+test.want+`}`), &want.Params); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got.Params, err, want.Params)
			continue
		}
		clear(got.Params.RawArguments) // the handler's own
		if !reflect.DeepEqual(test.a, before) {
			t.Errorf("%s: what is recorded changed with what the handler got", name)
		}
	}
}

// What is answered is what mcp-go would have read from the wire, but for what it does not know.
func TestTypedReply(t *testing.T) {
	for _, text := range []string{
		`{"content":[]}`,
		`{"content":[{"type":"text","text":"paid"}],"_meta":{"dev.toolguard/verdict":{"occurrence":1}}}`,
		`{"content":[{"text":"\u00e9\ud83d\ude00 \ud800 <&>\n","type":"text"},{"type":"text","text":""},{"\u0074ype":"te\u0078t","text":"x"}]}`,
		`{"content":[{"type":"text","text":"a","annotations":{"audience":["user"],"priority":0.5,"lastModified":"2026-01-01"}},{"type":"text","text":"b","_meta":{"x":1,"progressToken":2}}]}`,
		`{"content":[{"type":"text","TEXT":"a"},{"type":"text","text":null},{"Type":"text","text":"b"}]}`,
		`{"content":[{"type":"text","text":"a"},{"type":"text"}],"isError":true}`,
		`{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}`,
		`{"content":[{"type":"resource_link","uri":"x:y","name":"n","description":"","mimeType":"","size":0}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"x:y","text":"t","_meta":{"a":1}}},{"type":"resource","resource":{"uri":"x:z","blob":"AA=="}}]}`,
		`{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1e2,"b":12345678901234567890,"c":[0.10]},"isError":false}`,
		`{"content":[],"structuredContent":[1]}`,
		`{"content":[],"structuredContent":null}`,
		`{"content":[],"resultType":"input_required","requestState":"s","inputRequests":{"sure":{"method":"roots/list"}}}`,
		`{"content":[],"resultType":"complete","later":true,"ISERROR":true}`,
		` { "content" : [ { "type" : "text" , "text" : "x" } ] , "_meta" : null } `,
	} {
		got, err := mcpguard.TypedReply(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want := &mcp.CallToolResult{}
		if err := json.Unmarshal([]byte(text), want); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if want.Content == nil {
			want.Content = []mcp.Content{}
		}
		sameJSON(t, got, want)
		got.Meta, want.Meta = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%#v, want\n%#v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`{}`:                          `{"content":[]}`,
		`{"content":null,"_meta":{}}`: `{"content":[],"_meta":{}}`,
		`{"content":[],"_meta":{"n":12345678901234567890,"f":1.10,"big":1e400}}`: `{"content":[],"_meta":{"n":12345678901234567890,"f":1.10,"big":1e400}}`,
		`{"content":[],"_meta":{"progressToken":"p","n":null}}`:                  `{"content":[],"_meta":{"progressToken":"p","n":null}}`,
		`{"content":[],"_meta":{"progressToken":null}}`:                          `{"content":[],"_meta":{}}`,
	} {
		got, err := mcpguard.TypedReply(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		sameJSON(t, got, json.RawMessage(want))
	}
	for _, raw := range []string{ // content that mcp-go does not know is kept
		`{"type":"video","n":12345678901234567890}`, `{"type":"text","text":5}`, `{"type":7}`, `{"text":"x"}`, `{}`, `"x"`, `1.10`,
		`{"type":"resource","resource":{"text":"no uri"}}`, `{"type":"text","text":["x"]}`,
	} {
		got, err := mcpguard.TypedReply(`{"content":[` + raw + `]}`)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		sameJSON(t, got, json.RawMessage(`{"content":[`+raw+`]}`))
	}
	for _, bad := range []string{`[]`, `{"content":[],"isError":"yes"}`, `{"content":[],"_meta":5}`, `{"content":[],"_meta":{"progressToken":1e400}}`, `{"a":1,"a":2}`} {
		if _, err := mcpguard.TypedReply(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// sameJSON checks that two values are written as the same JSON.
func sameJSON(t *testing.T, got, want any) {
	t.Helper()
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	same(t, string(a), string(b))
}

// Whatever a handler returns is what is answered, and what is answered again; whatever it does with it later changes nothing.
func TestResultsInProcess(t *testing.T) {
	annotations := &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}}
	for name, result := range map[string]*mcp.CallToolResult{
		"text":       mcp.NewToolResultText("paid <P-1> é \xff"),
		"nothing":    {},
		"empty":      {Content: []mcp.Content{}},
		"pointer":    {Content: []mcp.Content{&mcp.TextContent{Type: "text", Text: "paid"}}},
		"annotated":  {Content: []mcp.Content{mcp.TextContent{Annotated: mcp.Annotated{Annotations: annotations}, Type: "text", Text: "paid", Meta: &mcp.Meta{AdditionalFields: map[string]any{"n": 1.5}}}}},
		"resource":   mcp.NewToolResultResource("t", mcp.TextResourceContents{URI: "x:y", Text: "z"}),
		"structured": {Content: []mcp.Content{mcp.TextContent{Type: "text", Text: "paid"}}, StructuredContent: map[string]any{"id": json.Number("9007199254740993"), "f": json.RawMessage(`1e2`)}},
		"raw":        {RawStructuredContent: json.RawMessage(`{"b": 1.10, "a":[ ]}`), StructuredContent: 5},
		"meta":       {Result: mcp.Result{Meta: &mcp.Meta{ProgressToken: 7, AdditionalFields: map[string]any{"t": 1.5, "d": json.RawMessage(`{"x":12345678901234567890}`)}}}, Content: []mcp.Content{mcp.NewTextContent("paid")}},
		"unknown":    {Content: []mcp.Content{video{}, mcp.NewTextContent("paid")}},
	} {
		plain, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		p := newInProcess(t, named("pay", func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			clear(req.Params.RawArguments)
			clear(req.GetArguments())
			clear(req.Params.Meta.AdditionalFields)
			return result, nil
		}))
		fresh := p.call(`{"name":"pay","arguments":{"x":"a"},"_meta":{"a":1}}`)
		if fresh.is(t, "fresh"); name != "nothing" && name != "empty" { // those get a receipt
			same(t, withoutVerdict(t, fresh.Result), string(plain))
		}
		result.Content, result.StructuredContent, result.RawStructuredContent = []mcp.Content{mcp.NewTextContent("other")}, nil, nil
		replay := p.call(`{"name":"pay","arguments":{"x":"a"},"_meta":{"a":1}}`)
		replay.is(t, "replayed/done")
		if strings.Contains(replay.raw, "other") {
			t.Errorf("%s: the record changed: %s", name, replay.raw)
		}
		if blocks := replay.body.Content; len(blocks) == 0 || !strings.HasPrefix(blocks[0].Text, "ALREADY DONE") {
			t.Errorf("%s: %s", name, replay.raw)
		}
		var o map[string]json.RawMessage
		var blocks []json.RawMessage
		if json.Unmarshal(replay.Result, &o) != nil || json.Unmarshal(o["content"], &blocks) != nil {
			t.Fatal(replay.raw)
		}
		if name != "nothing" && name != "empty" {
			o["content"], _ = json.Marshal(blocks[1:])
			again, _ := json.Marshal(o)
			same(t, withoutVerdict(t, again), string(plain))
		}
		p.call(`{"name":"pay","arguments":{"x":"b"},"_meta":{"a":1}}`).is(t, "fresh")
	}
}

// video is content of a type that mcp-go does not know.
type video struct{ mcp.TextContent }

func (video) MarshalJSON() ([]byte, error) { return []byte(`{"type":"video","n":1.10}`), nil }

func withoutVerdict(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var o, meta map[string]json.RawMessage
	if err := json.Unmarshal(result, &o); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(o["_meta"], &meta); err != nil {
		t.Fatal(err)
	}
	if delete(meta, "dev.toolguard/verdict"); len(meta) == 0 {
		delete(o, "_meta")
	} else {
		o["_meta"], _ = json.Marshal(meta)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
