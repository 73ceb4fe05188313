package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Tools that are HTTP requests, without any MCP server: checked, listed and served, with a secret that nothing shows.
func TestRequestsOfTheConfiguration(t *testing.T) {
	var made atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cr3t-t0ken" {
			http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		if r.Method == "GET" {
			fmt.Fprintf(w, `{"path":%q}`, r.RequestURI)
			return
		}
		fmt.Fprintf(w, `{"id":"re_%d"}`, made.Add(1))
	}))
	defer api.Close()
	d := newDesk(t)
	d.env = append(d.env, "API_TOKEN=s3cr3t-t0ken", "API="+api.URL)
	d.write("toolguard.yaml", `
httpTools:
  api/create_refund:
    description: Refunds a charge.
    input: {type: object, required: [charge], properties: {charge: {type: string}, amount: {type: integer}}}
    method: POST
    url: ${API}/v1/refunds
    headers: {Authorization: "Bearer ${API_TOKEN}"}
    form: {charge: "{{args.charge}}", amount: "{{args.amount}}"}
  api/get_refund:
    input: {type: object, required: [id], properties: {id: {type: string}}}
    method: GET
    url: ${API}/v1/refunds/{{args.id}}
    headers: {Authorization: "Bearer ${API_TOKEN}"}
tools:
  api/create_refund:
    once_per: [/charge]
    downstream_key: {header: Idempotency-Key, window: 24h}
    lookup: [{tool: get_refund, arguments: {id: "{{key}}"}, applied: "has(result.json.id)"}]
`)
	out := d.good("check")
	for _, want := range []string{"api", "HTTP requests", "api/create_refund", "write (presumed)", "the header Idempotency-Key", "read (presumed)", "Every tool can be guarded."} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	if out := d.good("check", "--drill"); !strings.Contains(out, "api/create_refund  {") || !strings.Contains(out, " 0 FAILED") || made.Load() != 0 {
		t.Errorf("drill, %d made:\n%s", made.Load(), out)
	}
	c := d.serve("serve", "--data", "ledger")
	first := d.call(c, "create_refund", map[string]any{"charge": "ch_1"})
	second := d.call(c, "create_refund", map[string]any{"charge": "ch_1"})
	read := d.call(c, "get_refund", map[string]any{"id": "../x"})
	if first.Meta.Verdict.Outcome != "fresh" || second.Meta.Verdict.Outcome != "replayed" || made.Load() != 1 {
		t.Errorf("%+v, %+v, made %d", first, second, made.Load())
	}
	if text := fmt.Sprintf("%+v", read); !strings.Contains(text, "/v1/refunds/..%2Fx") {
		t.Error(text)
	}
	d.env = append(d.env, "API_TOKEN=wr0ng-t0ken")
	other := d.serve("serve", "--data", "other")
	refused := fmt.Sprintf("%+v", d.call(other, "create_refund", map[string]any{"charge": "ch_1"}))
	if !strings.Contains(refused, "HTTP 401 Unauthorized") || !strings.Contains(refused, "you said …") || strings.Contains(refused, "wr0ng") || !strings.Contains(refused, "failed") {
		t.Error(refused)
	}
}

// TestRequestOfAKilledServer kills the server while its request is being answered. The next one sends the same bytes
// under the same key, and the API, which honours keys, has done it once.
func TestRequestOfAKilledServer(t *testing.T) {
	type sent struct{ key, body string }
	arrived := make(chan sent, 10)
	hold := make(chan bool)
	var mu sync.Mutex
	made := map[string]int{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		if made[key] == 0 {
			made[key] = len(made) + 1
		}
		id := made[key]
		mu.Unlock()
		arrived <- sent{key, string(body)}
		<-hold // the first answer is written only when nobody is there any more
		fmt.Fprintf(w, `{"id":"pay_%d"}`, id)
	}))
	defer api.Close()
	d := newDesk(t)
	d.env = append(d.env, "API="+api.URL)
	d.write("toolguard.yaml", `
httpTools:
  api/pay:
    input: {type: object, properties: {order: {type: string}}}
    method: POST
    url: ${API}/pay
    json: {order: "{{args.order}}", key: "{{key}}"}
tools:
  api/pay: {once_per: [/order], timeout: 2s, downstream_key: {header: Idempotency-Key, window: 1h}}
`)
	c := d.serve("serve", "--data", "ledger")
	go func() { _, _ = c.call(d.soon(), "pay", map[string]any{"order": "A-1"}) }()
	first := <-arrived
	c.kill()
	close(hold)
	again := d.serve("serve", "--data", "ledger")
	done := d.call(again, "pay", map[string]any{"order": "A-1"})
	second := <-arrived
	if text := fmt.Sprintf("%+v", done); done.Meta.Verdict.Status != "succeeded" || !strings.Contains(text, "pay_1") {
		t.Error(text)
	}
	if first != second || len(made) != 1 || len(arrived) != 0 || len(first.key) != 36 || !strings.Contains(first.body, first.key) {
		t.Errorf("%+v, %+v, made %v", first, second, made)
	}
}
