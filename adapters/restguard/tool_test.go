package restguard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/adapters/restguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// downstream is a server that keeps what it was sent and answers as it is told.
type downstream struct {
	*httptest.Server
	answer func(http.ResponseWriter, *http.Request)

	mu   sync.Mutex
	seen []string // "METHOD URI body"
	keys []string // Idempotency-Key of each
}

func newDownstream(t testing.TB, answer func(http.ResponseWriter, *http.Request)) *downstream {
	d := &downstream{answer: answer}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d.mu.Lock()
		d.seen = append(d.seen, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		d.keys = append(d.keys, r.Header.Get("Idempotency-Key"))
		answer := d.answer
		d.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(d.Close)
	return d
}

// requests are what was sent so far.
func (d *downstream) requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

// answers changes how it answers from now on.
func (d *downstream) answers(f func(http.ResponseWriter, *http.Request)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = f
}

func says(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func newGuard(t testing.TB) *toolguard.Guard {
	t.Helper()
	g, err := toolguard.Open(t.Context(), storetest.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// do calls a tool for a source event.
func do(t testing.TB, g *toolguard.Guard, tool *toolguard.Tool, event, args string) *toolguard.Result {
	t.Helper()
	facts := keyderive.Facts{Tenant: "acme corp", SourceEvent: event}
	return g.Do(t.Context(), toolguard.Call{Tool: tool, Facts: facts, Arguments: json.RawMessage(args)})
}

// anything is a schema with the arguments that the tests use.
const anything = `{"type":"object","properties":{"id":{},"to":{},"note":{},"list":{},"deep":{"type":"object","properties":{"er":{}}},"ref":{}}}`

func write(policy registry.Policy) registry.Tool {
	return registry.Tool{Server: "api", Name: "make", Effect: registry.Write, InputSchema: json.RawMessage(anything), Policy: policy}
}

// TestWhatIsSent puts values, hostile ones too, into each place of a request.
func TestWhatIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		request restguard.Request // its URL without the server
		args    string
		want    string // "": not sent
	}{
		"a path":                     {restguard.Request{Method: "DELETE", URL: "/v1/things/{{args.id}}"}, `{"id":"a b"}`, "DELETE /v1/things/a%20b"},
		"a path that would climb":    {restguard.Request{Method: "DELETE", URL: "/v1/things/{{args.id}}"}, `{"id":".."}`, ""},
		"a path in pieces":           {restguard.Request{Method: "DELETE", URL: "/v1/{{args.id}}{{args.to}}"}, `{"id":".","to":"."}`, ""},
		"a path with a slash":        {restguard.Request{Method: "DELETE", URL: "/v1/things/{{args.id}}"}, `{"id":"../../x?y#z"}`, "DELETE /v1/things/..%2F..%2Fx%3Fy%23z"},
		"a path without a value":     {restguard.Request{Method: "DELETE", URL: "/v1/things/{{args.id}}"}, `{}`, ""},
		"the url's own query":        {restguard.Request{Method: "DELETE", URL: "/x?a={{args.id}}", Query: map[string]string{"b": "{{args.to}}", "c": "{{args.note}}"}}, `{"id":"1&b=2","to":"?"}`, "DELETE /x?a=1%26b%3D2&b=%3F"},
		"a list in the query":        {restguard.Request{Method: "DELETE", URL: "/x", Query: map[string]string{"e[]": "{{args.list}}"}}, `{"list":["a",2,true]}`, "DELETE /x?e%5B%5D=a&e%5B%5D=2&e%5B%5D=true"},
		"an object in the query":     {restguard.Request{Method: "DELETE", URL: "/x", Query: map[string]string{"e": "{{args.deep}}"}}, `{"deep":{"er":1}}`, ""},
		"a form":                     {restguard.Request{Method: "POST", URL: "/x", Form: map[string]string{"a": "{{args.id}}", "m[o]": "no. {{args.deep.er}}", "n": "{{args.note}}"}}, `{"id":4200.0,"deep":{"er":"1&2"},"note":null}`, "POST /x a=4200&m%5Bo%5D=no.+1%262"},
		"an empty text in a form":    {restguard.Request{Method: "POST", URL: "/x", Form: map[string]string{"a": "{{args.id}}"}}, `{"id":""}`, "POST /x a="},
		"JSON":                       {restguard.Request{Method: "PUT", URL: "/x", JSON: json.RawMessage(`{"a":"{{args.id}}","b":["{{args.note}}","{{ args.to }}"],"c":{"d":"{{args.note}}"},"t":"for {{context.tenant}}","n":1}`)}, `{"id":9007199254740993,"to":"\"}"}`, `PUT /x {"a":9007199254740993,"b":["\"}"],"c":{},"n":1,"t":"for acme corp"}`},
		"JSON with null":             {restguard.Request{Method: "PUT", URL: "/x", JSON: json.RawMessage(`{"a":"{{args.id}}"}`)}, `{"id":null}`, `PUT /x {"a":null}`},
		"a value with a placeholder": {restguard.Request{Method: "PUT", URL: "/x", JSON: json.RawMessage(`{"a":"{{args.id}}"}`)}, `{"id":"{{key}}"}`, `PUT /x {"a":"{{key}}"}`},
		"text":                       {restguard.Request{Method: "POST", URL: "/x", Text: "to {{args.to}}"}, `{"to":"ann"}`, "POST /x to ann"},
		"text without a value":       {restguard.Request{Method: "POST", URL: "/x", Text: "to {{args.to}}"}, `{}`, ""},
		"a header that would break":  {restguard.Request{Method: "POST", URL: "/x", Header: map[string]string{"X-To": "{{args.to}}"}}, `{"to":"a\r\nX-Admin: 1"}`, ""},
		"a header without a value":   {restguard.Request{Method: "POST", URL: "/x", Header: map[string]string{"X-To": "{{args.to}}"}}, `{}`, "POST /x"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDownstream(t, says(200, `{"id":1}`))
			c.request.URL = d.URL + c.request.URL
			g := newGuard(t)
			tool, err := restguard.New(g, write(registry.Policy{}), c.request)
			if err != nil {
				t.Fatal(err)
			}
			r := do(t, g, tool, "evt-1", c.args)
			switch {
			case c.want == "" && (len(d.requests()) > 0 || r.Verdict.Reason != toolguard.ReasonToolUnavailable):
				t.Errorf("sent %q: %+v %s", d.requests(), r.Verdict, r.Text)
			case c.want != "" && !slices.Equal(d.requests(), []string{c.want}):
				t.Errorf("sent %q, want %q: %s", d.requests(), c.want, r.Text)
			}
		})
	}
}

// TestWhatAnAnswerProves goes through the phases of a connection and the statuses.
func TestWhatAnAnswerProves(t *testing.T) {
	hijack := func(f func(c io.Writer)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				f(c)
				_ = c.Close()
			}
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string // outcome and status
		text   string // somewhere in what is told
	}{
		"done":              {says(201, `{"id":9007199254740993}`), "fresh succeeded", `{"id":9007199254740993}`},
		"done, no words":    {says(204, ``), "fresh succeeded", "receipt"},
		"done, in text":     {says(200, `done`), "fresh succeeded", "done"},
		"done, a picture":   {says(200, "\x89PNG\x00"), "fresh succeeded", "5 bytes, not shown"},
		"not done, it says": {says(200, `{"error":{"message":"out of paper"}}`), "escalated escalated", "out of paper"},
		"refused":           {says(422, `{"message":"no such account","retry":550}`), "fresh failed", "HTTP 422 Unprocessable Entity"},
		"refused, no words": {says(404, ``), "fresh failed", "HTTP 404 Not Found"},
		"too many":          {says(429, `slow down`), "fresh failed", "HTTP 429"},
		"a conflict":        {says(409, `{}`), "escalated escalated", "HTTP 409 Conflict"},
		"a time-out":        {says(408, `not found`), "escalated escalated", "HTTP 408"},
		"a failure":         {says(500, `not found`), "escalated escalated", "HTTP 500"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
		},
			"escalated escalated", "HTTP 308 Permanent Redirect, a redirect, which is not followed"},
		"no answer":       {hijack(func(io.Writer) {}), "escalated escalated", ""},
		"half an answer":  {hijack(func(c io.Writer) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{") }), "escalated escalated", "broke off after HTTP 200"},
		"no HTTP":         {hijack(func(c io.Writer) { _, _ = io.WriteString(c, "220 smtp\r\n") }), "escalated escalated", ""},
		"too large":       {says(200, strings.Repeat("x", 5<<20)), "escalated escalated", "more than"},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, "escalated escalated", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDownstream(t, c.answer)
			g := newGuard(t)
			tool, err := restguard.New(g, write(registry.Policy{}), restguard.Request{Method: "POST", URL: d.URL})
			if err != nil {
				t.Fatal(err)
			}
			r := do(t, g, tool, "evt-1", `{}`)
			if got := fmt.Sprint(r.Verdict.Outcome, " ", r.Verdict.Status); got != c.want || !strings.Contains(r.Text+"\n"+r.Answer.Text(), c.text) {
				t.Errorf("%s, want %s: %s %s", got, c.want, r.Text, r.Answer.Text())
			}
			if len(d.requests()) != 1 {
				t.Errorf("sent %q", d.requests())
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		d := newDownstream(t, nil)
		d.Close()
		g := newGuard(t)
		tool, err := restguard.New(g, write(registry.Policy{}), restguard.Request{Method: "POST", URL: d.URL})
		if err != nil {
			t.Fatal(err)
		}
		if r := do(t, g, tool, "evt-1", `{}`); r.Verdict.Status != toolguard.StatusFailed || r.Verdict.Reason != toolguard.ReasonToolUnavailable {
			t.Errorf("%+v %s", r.Verdict, r.Text)
		}
	})
}

// TestKeys sends the key where the downstream takes it: the operation's own, and after a refusal another.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		key     registry.DownstreamKey
		request restguard.Request
		of      func(d *downstream) []string
	}{
		"in a header": {registry.DownstreamKey{Header: "idempotency-key", Window: time.Hour}, restguard.Request{},
			func(d *downstream) []string { return d.keys }},
		"in a field": {registry.DownstreamKey{Argument: "/ref", Window: time.Hour}, restguard.Request{JSON: json.RawMessage(`"{{args.ref}}"`)},
			func(d *downstream) []string { return bodies(d) }},
		"in a path": {registry.DownstreamKey{}, restguard.Request{URL: "/{{key}}"},
			func(d *downstream) []string { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDownstream(t, says(422, `{}`))
			c.request.Method, c.request.URL = "PUT", d.URL+c.request.URL
			g := newGuard(t)
			tool, err := restguard.New(g, write(registry.Policy{DownstreamKey: c.key}), c.request)
			if err != nil {
				t.Fatal(err)
			}
			first := do(t, g, tool, "evt-1", `{"id":1}`)
			d.answers(says(200, `{}`))
			second := do(t, g, tool, "evt-1", `{"id":1}`)
			if second.Verdict.Key != first.Verdict.Key || second.Verdict.Status != toolguard.StatusSucceeded {
				t.Fatalf("%+v, %+v", first.Verdict, second.Verdict)
			}
			if keys := c.of(d); keys != nil && (len(keys) != 2 || keys[0] != first.Verdict.Key || keys[1] == keys[0] || len(keys[1]) != 36) {
				t.Errorf("keys %q of %s", keys, first.Verdict.Key)
			}
			if !strings.Contains(strings.Join(append(d.requests(), d.keys...), " "), first.Verdict.Key) {
				t.Errorf("no key in %q", d.requests())
			}
		})
	}
}

func bodies(d *downstream) []string {
	var out []string
	for _, s := range d.requests() {
		fields := strings.Fields(s)
		out = append(out, strings.Trim(fields[len(fields)-1], `"`))
	}
	return out
}

func TestSecretsAreNotSaidBack(t *testing.T) {
	d := newDownstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		fmt.Fprintf(w, "<p>you sent %s and %s</p>", r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"))
	})
	g := newGuard(t)
	tool, err := restguard.New(g, write(registry.Policy{}), restguard.Request{Method: "POST", URL: d.URL,
		Header: map[string]string{"authorization": "Bearer sk_live_4242424242", "X-API-Key": "k-12345678"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := do(t, g, tool, "evt-1", `{}`); strings.Contains(r.Text, "42424242") || strings.Contains(r.Text, "12345678") || !strings.Contains(r.Text, "you sent …") {
		t.Error(r.Text)
	}
	d.Close()
	if r := do(t, g, tool, "evt-2", `{}`); strings.Contains(r.Text, "42424242") {
		t.Error(r.Text)
	}
}

func TestUnfitRequests(t *testing.T) {
	good := restguard.Request{Method: "POST", URL: "https://example.org/x"}
	with := func(change func(*restguard.Request)) restguard.Request {
		r := good
		change(&r)
		return r
	}
	key := func(k registry.DownstreamKey) registry.Policy { return registry.Policy{DownstreamKey: k} }
	for name, c := range map[string]struct {
		request restguard.Request
		policy  registry.Policy
		want    string
	}{
		"no method":                  {with(func(r *restguard.Request) { r.Method = "" }), registry.Policy{}, "method"},
		"another scheme":             {with(func(r *restguard.Request) { r.URL = "file:///etc/passwd" }), registry.Policy{}, "http"},
		"a host of the model's":      {with(func(r *restguard.Request) { r.URL = "https://{{args.id}}/x" }), registry.Policy{}, "plain host"},
		"a host with a model's port": {with(func(r *restguard.Request) { r.URL = "https://example.org:{{args.id}}" }), registry.Policy{}, "plain host"},
		"a user":                     {with(func(r *restguard.Request) { r.URL = "https://a:s3cr3t@example.org" }), registry.Policy{}, "user name"},
		"a fragment":                 {with(func(r *restguard.Request) { r.URL += "#x" }), registry.Policy{}, "#"},
		"half a placeholder":         {with(func(r *restguard.Request) { r.URL += "/{{args.id" }), registry.Policy{}, "{{"},
		"an unknown placeholder":     {with(func(r *restguard.Request) { r.Text = "{{env.HOME}}" }), registry.Policy{}, "{{env.HOME}}"},
		"an unknown argument":        {with(func(r *restguard.Request) { r.Text = "{{args.name}}" }), registry.Policy{}, "{{args.name}}"},
		"the id of what is made":     {with(func(r *restguard.Request) { r.Text = "{{downstream_id}}" }), registry.Policy{}, "downstream_id"},
		"two bodies":                 {with(func(r *restguard.Request) { r.Text, r.Form = "x", map[string]string{"a": "b"} }), registry.Policy{}, "one of"},
		"a body that is no JSON":     {with(func(r *restguard.Request) { r.JSON = json.RawMessage(`{`) }), registry.Policy{}, "JSON"},
		"a GET with a body":          {with(func(r *restguard.Request) { r.Method, r.Text = "GET", "x" }), registry.Policy{}, "no body"},
		"the transport's header":     {with(func(r *restguard.Request) { r.Header = map[string]string{"host": "x"} }), registry.Policy{}, "transport"},
		"a header twice":             {with(func(r *restguard.Request) { r.Header = map[string]string{"x-a": "x", "X-A": "y"} }), registry.Policy{}, "twice"},
		"no header":                  {with(func(r *restguard.Request) { r.Header = map[string]string{"x a": "x"} }), registry.Policy{}, "no name"},
		"a key in _meta":             {good, key(registry.DownstreamKey{Meta: "key"}), "_meta"},
		"a key that never arrives":   {good, key(registry.DownstreamKey{Argument: "/ref"}), "never arrive"},
		"a key's header that is set": {with(func(r *restguard.Request) { r.Header = map[string]string{"X-Key": "x"} }), key(registry.DownstreamKey{Header: "x-key"}), "sets too"},
	} {
		_, err := restguard.Compile(write(c.policy), c.request)
		if !errors.Is(err, registry.ErrPolicy) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
	read := registry.Tool{Server: "api", Name: "get_it", InputSchema: json.RawMessage(anything)}
	if _, err := restguard.Compile(read, with(func(r *restguard.Request) { r.Text = "{{key}}" })); !errors.Is(err, registry.ErrPolicy) {
		t.Errorf("a read with a key: %v", err)
	}
}
