package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What Prometheus reads beside /mcp: calls by what they got, and nothing that a tenant sent.
func TestMetricsServed(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", approving)
	_, url := d.serveHTTP("--data", "ledger", "--http", "127.0.0.1:0")
	d.pay(url, "INV-1001", 90)
	asked := d.pay(url, "INV-1002", 240)
	answer, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	status, text := answer.StatusCode, string(body)
	for _, want := range []string{`toolguard_calls_total{outcome="pending",reason="approval_required",tool="office/pay_invoice"} 1`,
		`toolguard_open_operations{status="awaiting_approval"} 1`, `toolguard_events_total{tool="office/pay_invoice",type="dispatched"} 1`, "toolguard_ledger_up 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if status != 200 || strings.Contains(text, "INV-1002") || strings.Contains(text, asked.Meta.Verdict.Key) || strings.Contains(text, "acme") {
		t.Errorf("%d:\n%s", status, text)
	}
}
