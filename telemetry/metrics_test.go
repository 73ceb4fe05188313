package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/telemetry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

const secret = "tenant-s3cret"

// tool registers one whose handler is given.
func tool(t *testing.T, g *toolguard.Guard, spec registry.Tool) *toolguard.Tool {
	t.Helper()
	if spec.Server == "" {
		spec.Server, spec.Effect, spec.EffectSource = "books", registry.Write, "declared"
	}
	e, err := registry.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	registered, err := g.Register(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return registered
}

func answer(text string) registry.Handler {
	return func(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
		if err := d.Sending(); err != nil {
			return registry.Answer{}, err
		}
		return registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"` + text + `"}]}`)}, nil
	}
}

func open(t *testing.T, store toolguard.Store, o *toolguard.Options) *toolguard.Guard {
	t.Helper()
	g, err := toolguard.Open(context.Background(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

func scrape(t *testing.T, m *telemetry.Metrics, store toolguard.Store) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(store).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	memory := storetest.NewMemory()
	m := telemetry.NewMetrics("v1")
	store := m.Store(memory)
	g := open(t, store, nil)
	pay := tool(t, g, registry.Tool{Name: "pay", Handler: answer("ok")})
	lost := tool(t, g, registry.Tool{Name: "lost", Handler: func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		return registry.Answer{}, errors.New("reset")
	}})
	asked := tool(t, g, registry.Tool{Name: "asked", Policy: registry.Policy{Approval: &registry.Approval{}}, Handler: answer("ok")})
	do := func(tl *toolguard.Tool) {
		g.Do(context.Background(), toolguard.Call{Tool: tl, Arguments: json.RawMessage(`{"x":"` + secret + `"}`), Facts: keyderive.Facts{Tenant: secret, SourceEvent: secret}})
	}
	do(pay)
	do(pay)
	do(lost)
	do(asked)
	text := scrape(t, m, store)
	for _, want := range []string{
		`toolguard_calls_total{outcome="fresh",reason="",tool="books/pay"} 1`,
		`toolguard_calls_total{outcome="replayed",reason="done",tool="books/pay"} 1`,
		`toolguard_calls_total{outcome="escalated",reason="outcome_unknown",tool="books/lost"} 1`,
		`toolguard_calls_total{outcome="pending",reason="approval_required",tool="books/asked"} 1`,
		`toolguard_events_total{tool="books/lost",type="dispatched"} 1`,
		`toolguard_open_operations{status="escalated"} 1`,
		`toolguard_open_operations{status="awaiting_approval"} 1`,
		`toolguard_open_operations{status="dispatching"} 0`,
		`toolguard_oldest_waiting_seconds{queue="approval"} `,
		`toolguard_store_duration_seconds_count{method="commit"} `,
		"toolguard_ledger_up 1\n", `toolguard_build_info{version="v1"} 1`, "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, `queue="escalated"} 0`+"\n") {
		t.Error("nothing waits for a person")
	}
	if strings.Contains(text, secret) {
		t.Error("what a tenant sent is shown")
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	// The ledger is away: the rest is shown all the same.
	other := telemetry.NewMetrics("v1")
	memory.Reopen()
	if text := scrape(t, other, other.Store(memory)); !strings.Contains(text, "toolguard_ledger_up 0\n") || strings.Contains(text, "toolguard_open_operations{") {
		t.Errorf("%s", text)
	}
}

// Servers that list ever new tools do not make ever more time series.
func TestBounded(t *testing.T) {
	m := telemetry.NewMetrics("\xff")
	store := m.Store(storetest.NewMemory())
	for i := range 2000 {
		w := &toolguard.Write{Token: fmt.Sprint("t", i), Events: []toolguard.Event{{Type: toolguard.EventCall, Tool: fmt.Sprintf("s/\xff%d", i), Outcome: toolguard.Fresh}}}
		if err := store.Commit(context.Background(), w); err != nil {
			t.Fatal(err)
		}
	}
	text := scrape(t, m, store)
	if n := strings.Count(text, "toolguard_calls_total{"); n != 501 || !strings.Contains(text, `tool="other"} 1500`) {
		t.Errorf("%d series", n)
	}
}

// The decorated store keeps the contract.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Opener {
		memory := storetest.NewMemory()
		return func(*testing.T) toolguard.Store {
			memory = memory.Reopen()
			return telemetry.NewMetrics("v1").Store(memory)
		}
	})
}
