package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/telemetry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A call is a server span below the caller's, its attempt a client span below that one, and the tool gets the context.
func TestSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tracing := telemetry.NewTracing(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	g := open(t, storetest.NewMemory(), &toolguard.Options{Watch: tracing.Watch()})
	var sent []string
	handler := func(says string, fails error) registry.Handler {
		return func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
			sent = append(sent, string(d.Meta))
			if fails != nil {
				return registry.Answer{}, fails
			}
			return registry.Answer{Result: json.RawMessage(says)}, nil
		}
	}
	for _, test := range []struct {
		name, says, meta string
		fails            error
		outcome, err     string // of the call
		attempt          string // its error
	}{
		{"pay", `{"content":[{"type":"text","text":"` + secret + `"}]}`, `{"traceparent":"` + parent + `","other":1}`, nil, "fresh", "", ""},
		{"refuse", `{"isError":true,"content":[{"type":"text","text":"invalid ` + secret + `"}]}`, `null`, nil, "fresh", "tool_error", "tool_error"},
		{"lose", "", `{"traceparent":"no such thing"}`, errors.New(secret), "escalated", "outcome_unknown", "no_answer"},
		{"unsent", "", "", registry.ErrNotSent, "blocked", "tool_unavailable", "not_sent"},
	} {
		exporter.Reset()
		sent = nil
		tl := tool(t, g, registry.Tool{Name: test.name, Handler: handler(test.says, test.fails)})
		r := g.Do(context.Background(), toolguard.Call{Tool: tl, Arguments: json.RawMessage(`{"x":"` + secret + `"}`), Meta: json.RawMessage(test.meta), Facts: keyderive.Facts{Tenant: secret}})
		spans := exporter.GetSpans()
		if len(spans) != 2 || len(sent) != 1 {
			t.Fatalf("%s: %d spans, %d sent", test.name, len(spans), len(sent))
		}
		attempt, call := spans[0], spans[1]
		if call.Name != "tools/call "+test.name || call.SpanKind != trace.SpanKindServer || attempt.Name != call.Name || attempt.SpanKind != trace.SpanKindClient {
			t.Errorf("%s: %s %s, %s %s", test.name, call.Name, call.SpanKind, attempt.Name, attempt.SpanKind)
		}
		if attempt.Parent.SpanID() != call.SpanContext.SpanID() || strings.Contains(test.meta, parent) != (call.Parent.SpanID().String() == "00f067aa0ba902b7") {
			t.Errorf("%s: below %s, and that below %s", test.name, attempt.Parent.SpanID(), call.Parent.SpanID())
		}
		if !strings.Contains(sent[0], attempt.SpanContext.SpanID().String()) || strings.Contains(test.meta, "other") && !strings.Contains(sent[0], `"other":1`) {
			t.Errorf("%s: the tool got %s", test.name, sent[0])
		}
		a, b := attributes(call), attributes(attempt)
		if a["mcp.method.name"] != "tools/call" || a["gen_ai.tool.name"] != test.name || a["gen_ai.operation.name"] != "execute_tool" ||
			a["toolguard.outcome"] != test.outcome || a["error.type"] != test.err || b["error.type"] != test.attempt || (call.Status.Code == codes.Error) != (test.err != "") {
			t.Errorf("%s: %v and %v", test.name, a, b)
		}
		for _, shown := range []any{a, b, call.Events, attempt.Events, call.Status, attempt.Status} {
			if text, _ := json.Marshal(shown); strings.Contains(string(text), secret) || strings.Contains(string(text), r.Verdict.Key) && r.Verdict.Key != "" {
				t.Errorf("%s shows %s", test.name, text)
			}
		}
	}
	if err := tracing.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func attributes(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

// Tracing is what the environment asks for, and nothing else.
func TestOpenTracing(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		on   bool
		says string
	}{
		{nil, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, false, "http/json"},
	} {
		tracing, err := telemetry.OpenTracing(context.Background(), func(name string) (string, bool) { v, ok := test.env[name]; return v, ok }, "v1", nil)
		if (tracing != nil) != test.on || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v, %v", test.env, tracing, err)
		}
		if tracing != nil {
			_ = tracing.Close(context.Background())
		} else if w := tracing.Watch(); w.Call != nil || w.Attempt != nil {
			t.Error("something is watched")
		}
	}
}
