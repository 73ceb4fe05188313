package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// With the standard variables set, a collector gets the spans of what was called, the last ones when the server ends.
func TestTracing(t *testing.T) {
	got := make(chan []byte, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" && r.Header.Get("Content-Type") == "application/x-protobuf" {
			got <- body
		}
	}))
	defer collector.Close()
	d := newDesk(t)
	d.write("toolguard.yaml", approving)
	d.env = append(d.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	c := d.serve("serve", "--data", "ledger")
	d.call(c, "pay_invoice", map[string]any{"invoice_id": "INV-1001", "amount": 90})
	if err := c.end(); err != nil {
		t.Error(err)
	}
	select {
	case spans := <-got:
		if !bytes.Contains(spans, []byte("tools/call pay_invoice")) || !bytes.Contains(spans, []byte("toolguard.outcome")) || bytes.Contains(spans, []byte("INV-1001")) {
			t.Errorf("%q", spans)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no span came")
	}
	d.env = append(d.env, "OTEL_EXPORTER_OTLP_PROTOCOL=carrier-pigeon")
	if _, errs, code := d.run("serve", "--data", "ledger"); code != 2 {
		t.Errorf("exit %d, %s", code, errs)
	}
}
