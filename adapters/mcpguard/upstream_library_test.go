package mcpguard_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// library answers what belongs to resources, prompts and completions. Its mode, library or library2, is in what it says.
func (s *toolServer) library(c rpcCall) {
	var p struct {
		URI    string            `json:"uri"`
		Name   string            `json:"name"`
		Cursor string            `json:"cursor"`
		Ref    map[string]string `json:"ref"`
		Meta   struct {
			Progress json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	var whole struct{ Params json.RawMessage }
	_ = json.Unmarshal(c.raw, &whole)
	_ = json.Unmarshal(whole.Params, &p)
	switch c.Method {
	case "resources/list":
		if p.Cursor == "" {
			s.result(c, `{"resources":[{"uri":"book://shared","name":"shared of `+s.mode+`","size":9007199254740993}],"nextCursor":"two"}`)
			return
		}
		s.result(c, `{"resources":[{"uri":"book://`+s.mode+`","name":"own","x-unknown":{"n":1.10}}],"ttlMs":7}`)
	case "resources/templates/list":
		if s.mode == "library_hostile" {
			s.result(c, `{"resourceTemplates":[{"uriTemplate":"hidden://{a:5000}","name":"long"},{"uriTemplate":"{","name":"open"},{"uriTemplate":7},"no template"]}`)
			return
		}
		s.result(c, `{"resourceTemplates":[{"uriTemplate":"`+s.mode+`://pages/{n}","name":"page"}]}`)
	case "resources/read":
		if p.URI == "book://none" || strings.HasPrefix(p.URI, "hidden") && p.URI != "hidden://"+s.mode {
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"not found","data":{"uri":%q}}}`, c.ID, p.URI)
			return
		}
		if p.Meta.Progress != nil {
			say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, p.Meta.Progress)
		}
		s.result(c, fmt.Sprintf(`{"contents":[{"uri":%q,"text":"from %s","n":18446744073709551617}]}`, p.URI, s.mode))
	case "prompts/list":
		s.result(c, `{"prompts":[{"name":"greet","description":"of `+s.mode+`","arguments":[{"name":"who"}]}]}`)
	case "prompts/get":
		if p.Name != "greet" {
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no prompt %s"}}`, c.ID, p.Name)
			return
		}
		s.result(c, `{"messages":[{"role":"user","content":{"type":"text","text":"hello from `+s.mode+`"}}],"n":9007199254740993}`)
	case "completion/complete":
		s.result(c, fmt.Sprintf(`{"completion":{"values":["%s %s%s"],"total":9007199254740993}}`, s.mode, p.Ref["name"], p.Ref["uri"]))
	case "resources/subscribe", "resources/unsubscribe":
		s.result(c, `{}`)
	case "tools/list":
		s.result(c, `{"tools":[`+tool("turn", "")+`]}`)
	case "tools/call":
		say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"book://%s","title":"turned"}}`, s.mode)
		say(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
		say(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
		s.result(c, `{"content":[{"type":"text","text":"turned"}]}`)
	}
}

// libraryOffers is what such a server says of itself, without the braces.
const libraryOffers = `"capabilities":{"tools":{},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{}}`
