package mcpguard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/adapters/mcpguard"
)

// statelessMeta makes parameters ones of the stateless protocol.
const statelessMeta = `"_meta":{` + modernMeta + `}`

// resultOf is the result of a request.
func (c *client) resultOf(method, params string) string {
	c.t.Helper()
	a := readAnswer(c.t, c.call(method, params))
	if a.Error != nil {
		c.t.Fatalf("%s: %s", method, a.raw)
	}
	return string(a.Result)
}

// With one server everything is the server's own.
func TestOneServersResourcesAndPrompts(t *testing.T) {
	w := newWorld(t, nil, "library")
	c := w.client()
	if got := c.initialize(); !strings.Contains(got, `"resources":{"listChanged":true,"subscribe":true}`) && !strings.Contains(got, `"resources":{"subscribe":true,"listChanged":true}`) ||
		!strings.Contains(got, `"prompts":{"listChanged":true}`) || !strings.Contains(got, `"completions":{}`) {
		t.Errorf("capabilities: %s", got)
	}
	same(t, c.resultOf("resources/list", `{}`), `{"resources":[{"uri":"book://shared","name":"shared of library","size":9007199254740993}],"nextCursor":"two"}`)
	same(t, c.resultOf("resources/list", `{"cursor":"two"}`), `{"resources":[{"uri":"book://library","name":"own","x-unknown":{"n":1.1}}],"ttlMs":7}`)
	same(t, c.resultOf("resources/templates/list", `{}`), `{"resourceTemplates":[{"uriTemplate":"library://pages/{n}","name":"page"}]}`)
	same(t, c.resultOf("resources/read", `{"uri":"book://shared","_meta":{"progressToken":"p"}}`), `{"contents":[{"uri":"book://shared","text":"from library","n":18446744073709551617}]}`)
	if len(c.other) != 1 {
		t.Fatalf("progress: %q", c.other)
	}
	same(t, c.other[0], `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
	same(t, c.resultOf("prompts/list", `{}`), `{"prompts":[{"name":"greet","description":"of library","arguments":[{"name":"who"}]}]}`)
	same(t, c.resultOf("prompts/get", `{"name":"greet"}`), `{"messages":[{"role":"user","content":{"type":"text","text":"hello from library"}}],"n":9007199254740993}`)
	same(t, c.resultOf("completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"a"}}`), `{"completion":{"values":["library greet"],"total":9007199254740993}}`)
	same(t, without(t, c.call("resources/read", `{"uri":"book://none"}`), "id"), `{"jsonrpc":"2.0","error":{"code":-32002,"message":"not found","data":{"uri":"book://none"}}}`)
	if got := c.call("resources/read", `{}`); !strings.Contains(got, "-32602") {
		t.Errorf("no uri: %s", got)
	}

	// The stateless protocol wants more in each result, and gets it.
	got := c.resultOf("resources/read", `{"uri":"book://shared",`+statelessMeta+`}`)
	for _, want := range []string{`"resultType":"complete"`, `"ttlMs":`, `"cacheScope":`, `"io.modelcontextprotocol/serverInfo":{"name":"toolguard"`, `18446744073709551617`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if got := c.resultOf("resources/list", `{"cursor":"two",`+statelessMeta+`}`); !strings.Contains(got, `"ttlMs":7`) {
		t.Errorf("the server's own hint: %s", got)
	}
	if got := c.resultOf("prompts/get", `{"name":"greet",`+statelessMeta+`}`); strings.Contains(got, "ttlMs") || !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("a prompt: %s", got)
	}
	if got := c.call("resources/read", `{"uri":"book://shared","_meta":{"io.modelcontextprotocol/protocolVersion":"2036-01-01"}}`); !strings.Contains(got, `"error"`) {
		t.Errorf("an unknown version: %s", got)
	}
}

// With several servers prompts have their server's name, and a URI is the first server's that lists it.
func TestSeveralServersResourcesAndPrompts(t *testing.T) {
	w := newWorldOf(t, nil, namedServer{"one", "library"}, namedServer{"two", "library2"}, namedServer{"plain", "normal"})
	c := w.client()
	c.initialize()
	same(t, c.resultOf("resources/list", `{}`), `{"resources":[
		{"uri":"book://shared","name":"shared of library","size":9007199254740993},{"uri":"book://library","name":"own","x-unknown":{"n":1.1}},{"uri":"book://library2","name":"own","x-unknown":{"n":1.1}}]}`)
	same(t, c.resultOf("prompts/list", `{}`), `{"prompts":[{"name":"one__greet","description":"of library","arguments":[{"name":"who"}]},{"name":"two__greet","description":"of library2","arguments":[{"name":"who"}]}]}`)
	for uri, from := range map[string]string{
		"book://shared": "library", "book://library2": "library2", "library2://pages/7": "library2", "library://pages/7": "library",
		"hidden://library2": "library2", "hidden://library": "library", // not listed: whoever has it
	} {
		if got := c.resultOf("resources/read", fmt.Sprintf(`{"uri":%q}`, uri)); !strings.Contains(got, `"from `+from+`"`) {
			t.Errorf("%s: %s", uri, got)
		}
	}
	if got := c.call("resources/read", `{"uri":"book://none"}`); !strings.Contains(got, `"code":-32002`) {
		t.Error(got)
	}
	if got := c.resultOf("prompts/get", `{"name":"two__greet"}`); !strings.Contains(got, "hello from library2") {
		t.Error(got)
	}
	for _, name := range []string{"greet", "three__greet", "plain__greet", ""} {
		if got := c.call("prompts/get", fmt.Sprintf(`{"name":%q}`, name)); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := c.resultOf("completion/complete", `{"ref":{"type":"ref/prompt","name":"two__greet"},"argument":{"name":"who","value":"a"}}`); !strings.Contains(got, "library2 greet") {
		t.Error(got)
	}
	if got := c.resultOf("completion/complete", `{"ref":{"type":"ref/resource","uri":"library2://pages/{n}"},"argument":{"name":"n","value":"a"}}`); !strings.Contains(got, "library2 library2://pages/{n}") {
		t.Error(got)
	}

	// One that is down takes nothing from the other.
	if err := w.gateway.Upstreams()[0].Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.resultOf("resources/list", `{}`); !strings.Contains(got, "shared of library2") {
		t.Error(got)
	}
}

// A server whose templates make no sense takes nothing from another.
func TestHostileTemplates(t *testing.T) {
	w := newWorldOf(t, nil, namedServer{"one", "library_hostile"}, namedServer{"two", "library2"})
	c := w.client()
	c.initialize()
	for _, uri := range []string{"hidden://library2", "library2://pages/7", "book://library2"} {
		if got := c.resultOf("resources/read", fmt.Sprintf(`{"uri":%q}`, uri)); !strings.Contains(got, `"from library2"`) {
			t.Errorf("%s: %s", uri, got)
		}
	}
}

// Servers without resources announce none.
func TestNothingToPassOn(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	if got := c.initialize(); strings.Contains(got, "resources") || strings.Contains(got, "prompts") || strings.Contains(got, "completions") {
		t.Error(got)
	}
	same(t, c.resultOf("resources/list", `{}`), `{"resources":[]}`)
	if got := c.call("resources/read", `{"uri":"book://x"}`); !strings.Contains(got, "no server has this resource") {
		t.Error(got)
	}
	if got := c.call("prompts/get", `{"name":"x"}`); !strings.Contains(got, "no server has this prompt") {
		t.Error(got)
	}
}

// Who has subscribed to a resource hears of its changes, and nobody else; its server is asked once.
func TestSubscriptions(t *testing.T) {
	w := newWorldOf(t, nil, namedServer{"one", "library"}, namedServer{"two", "library2"})
	c, other, third := w.client(), w.client(), w.client()
	for _, c := range []*client{c, other, third} {
		c.initialize()
	}
	c.resultOf("resources/subscribe", `{"uri":"book://library2"}`)
	other.resultOf("resources/subscribe", `{"uri":"book://library2"}`)
	asked := func(method string) (n int) {
		for _, line := range w.noted("wire") {
			if strings.Contains(line, method) {
				n++
			}
		}
		return n
	}
	if n := asked("resources/subscribe"); n != 1 {
		t.Errorf("subscribed %d times", n)
	}
	c.tool("two__turn", `{}`).is(t, "fresh")
	const updated = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"book://library2","title":"turned"}}`
	heard := func(c *client) []string {
		t.Helper()
		// A client without a subscription hears of the lists; those come after the update.
		for !slices.ContainsFunc(c.other, func(l string) bool { return strings.Contains(l, "prompts/list_changed") }) {
			c.other = append(c.other, c.receive())
		}
		got := c.other
		c.other = nil
		return got
	}
	for _, c := range []*client{c, other} {
		if got := heard(c); len(got) != 3 {
			t.Errorf("heard %q", got)
		} else {
			same(t, got[0], updated)
		}
	}
	if got := heard(third); len(got) != 2 {
		t.Errorf("heard %q", got)
	}
	c.resultOf("resources/unsubscribe", `{"uri":"book://library2"}`)
	other.resultOf("resources/unsubscribe", `{"uri":"book://library2"}`)
	w.untilNoted("wire", "resources/unsubscribe")
	c.tool("two__turn", `{"x":1}`).is(t, "fresh")
	if got := heard(c); len(got) != 2 {
		t.Errorf("heard after the end: %q", got)
	}

	// A stateless client names what it wants to hear of when it listens.
	third.send(`{"jsonrpc":"2.0","id":"listen","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["book://library"]},` + statelessMeta + `}}`)
	if got := third.receive(); strings.Contains(got, "list_changed") { // of the second turn
		for !strings.Contains(got, "acknowledged") {
			got = third.receive()
		}
	}
	c.tool("one__turn", `{}`).is(t, "fresh")
	got := third.receive()
	for strings.Contains(got, "list_changed") {
		got = third.receive()
	}
	if !strings.Contains(got, `"uri":"book://library"`) || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":"listen"`) {
		t.Error(got)
	}
}

// The same to clients over HTTP.
func TestPassedOnOverHTTP(t *testing.T) {
	eras(t, func(t *testing.T, modern bool) {
		w := newWorld(t, nil, "library")
		b := w.site(nil).browser(modern)
		if got := b.call("resources/list", `{}`); !strings.Contains(got, `"size":9007199254740993`) {
			t.Error(got)
		}
		if got := b.call("resources/read", `{"uri":"book://shared"}`); !strings.Contains(got, `18446744073709551617`) {
			t.Error(got)
		}
		if got := b.call("prompts/get", `{"name":"greet"}`); !strings.Contains(got, "hello from library") {
			t.Error(got)
		}
		if !modern {
			b.call("resources/subscribe", `{"uri":"book://library"}`)
		}
		next := b.listenTo(`{"resourceSubscriptions":["book://library"],"promptsListChanged":true}`)
		if modern {
			if got := next(); !strings.Contains(got, "acknowledged") {
				t.Fatal(got)
			}
		}
		b.tool("turn", `{}`).is(t, "fresh")
		if got := next(); !strings.Contains(got, "resources/updated") || !strings.Contains(got, `"uri":"book://library"`) {
			t.Error(got)
		}
		if got := next(); !strings.Contains(got, "list_changed") {
			t.Error(got)
		}
		// What the client subscribed to ends with it.
		if !modern {
			r, err := b.del()
			if err != nil || r != 204 {
				t.Fatal(r, err)
			}
			w.untilNoted("wire", "resources/unsubscribe")
		}
	})
}

// And from servers over HTTP, of both eras: here a gateway is the server of another.
func TestPassedOnFromAServerOverHTTP(t *testing.T) {
	inner := newWorld(t, nil, "library")
	site := inner.site(nil)
	w := newGuard(t)
	w.open(nil, mcpguard.Server{Name: "far", URL: "http://" + site.address + "/mcp"})
	c := w.client()
	c.initialize()
	if v := w.gateway.Upstreams()[0].Info().Protocol; v != "2026-07-28" {
		t.Errorf("spoken: %s", v)
	}
	if got := c.resultOf("resources/read", `{"uri":"book://shared"}`); !strings.Contains(got, `18446744073709551617`) {
		t.Error(got)
	}
	if got := c.resultOf("prompts/get", `{"name":"greet"}`); !strings.Contains(got, "hello from library") {
		t.Error(got)
	}
	c.resultOf("resources/subscribe", `{"uri":"book://library"}`)
	inner.untilNoted("wire", "resources/subscribe")
	c.tool("turn", `{}`).is(t, "fresh")
	for !slices.ContainsFunc(c.other, func(l string) bool { return strings.Contains(l, "resources/updated") }) {
		c.other = append(c.other, c.receive())
	}
	c.resultOf("resources/unsubscribe", `{"uri":"book://library"}`)
	inner.untilNoted("wire", "resources/unsubscribe")
}
