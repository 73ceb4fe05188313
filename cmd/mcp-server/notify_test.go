package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A server that was killed before it could tell the endpoint, which was down, is made up for by the next one.
func TestNotifiesAfterKill(t *testing.T) {
	d := newDesk(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	d.env = append(d.env, "HOOK=http://"+address+"/hook", "HOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	d.write("toolguard.yaml", approving+`notify: [{url: "${HOOK}", secret: "${HOOK_SECRET}", on: [approval]}]`+"\n")
	first := d.serve("serve", "--data", "ledger")
	asked := d.call(first, "pay_invoice", map[string]any{"invoice_id": "INV-1001", "amount": 240.25})
	first.kill()
	if asked.Meta.Verdict.Reason != "approval_required" {
		t.Fatalf("%+v", asked)
	}

	type hook struct {
		id, signature string
		Type          string
		Data          struct{ Key, Tool, Tenant, Approval, Owner, Link string }
		raw           string
	}
	got := make(chan hook, 10)
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal("the port was taken meanwhile:", err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := hook{id: r.Header.Get("webhook-id"), signature: r.Header.Get("webhook-signature"), raw: string(body)}
		if err := json.Unmarshal(body, &h); err != nil {
			t.Error(err)
		}
		got <- h
	})}}
	s.Start()
	defer s.Close()
	second := d.serve("serve", "--data", "ledger", "--http", "127.0.0.1:0")
	defer second.kill()
	select {
	case h := <-got:
		v := asked.Meta.Verdict
		if h.Type != "approval.requested" || h.Data.Key != v.Key || h.Data.Approval != v.Approval || h.Data.Owner != "accounting" || h.Data.Tenant != "acme" ||
			h.id == "" || h.signature[:3] != "v1," || h.Data.Link == "" {
			t.Errorf("%s %s", h.id, h.raw)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the endpoint was told nothing")
	}
}
