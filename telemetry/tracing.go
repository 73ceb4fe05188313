package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// method is what is called, in the words of the semantic conventions for MCP.
const method = "tools/call"

// Tracing makes spans of calls and attempts: a server span for each call and, below it, a client span for each attempt,
// named and described by OpenTelemetry's semantic conventions for MCP and GenAI. The trace context comes from the request's
// _meta, and goes on in that of each attempt.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// OpenTracing returns the tracing that the standard environment variables ask for; nil if they ask for none: neither
// OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. Spans are sent by OTLP.
func OpenTracing(ctx context.Context, env func(string) (string, bool), version string, log *slog.Logger) (*Tracing, error) {
	get := func(names ...string) string {
		for _, name := range names {
			if v, _ := env(name); v != "" {
				return v
			}
		}
		return ""
	}
	if get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" || get("OTEL_SDK_DISABLED") == "true" || get("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	var exporter *otlptrace.Exporter
	var err error
	switch p := get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p {
	case "", "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	default:
		err = fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, which is neither http/protobuf nor grpc", p)
	}
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	what, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "toolguard"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	var told atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if now := time.Now().Unix(); now-told.Load() >= 60 {
			told.Store(now)
			log.Warn("spans could not be sent", "error", err)
		}
	}))
	return NewTracing(sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(what))), nil
}

// NewTracing returns tracing by a provider, which [Tracing.Close] shuts down.
func NewTracing(p *sdktrace.TracerProvider) *Tracing {
	return &Tracing{provider: p, tracer: p.Tracer("toolguard.dev/telemetry")}
}

// Close sends what is left, as long as ctx lets it.
func (t *Tracing) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Watch is what a guard is told to look at it; of nil, nothing.
func (t *Tracing) Watch() toolguard.Watch {
	if t == nil {
		return toolguard.Watch{}
	}
	return toolguard.Watch{Call: t.call, Attempt: t.attempt}
}

func about(t *registry.Tool) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("mcp.method.name", method), attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", valid(t.Name)), attribute.String("toolguard.server", valid(t.Server)),
	}
}

// carrier is a request's _meta, as far as it holds trace context.
type carrier map[string]json.RawMessage

func (c carrier) Get(key string) string {
	var s string
	_ = json.Unmarshal(c[key], &s)
	return s
}

func (c carrier) Set(key, value string) {
	text, _ := json.Marshal(value)
	c[key] = text
}

func (c carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

var propagator = propagation.TraceContext{}

func (t *Tracing) call(ctx context.Context, c *toolguard.Call) (context.Context, func(*toolguard.Result)) {
	meta := carrier{}
	if json.Unmarshal(c.Meta, &meta) == nil {
		ctx = propagator.Extract(ctx, meta)
	}
	ctx, span := t.tracer.Start(ctx, method+" "+valid(c.Tool.Name), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about(&c.Tool.Tool)...))
	return ctx, func(r *toolguard.Result) {
		v := r.Verdict
		span.SetAttributes(attribute.String("toolguard.outcome", string(v.Outcome)))
		if v.Reason != "" {
			span.SetAttributes(attribute.String("toolguard.reason", string(v.Reason)))
		}
		if v.Status != "" {
			span.SetAttributes(attribute.String("toolguard.status", string(v.Status)), attribute.Int("toolguard.attempt", v.Attempt))
		}
		switch {
		case v.Outcome == toolguard.Blocked, v.Outcome == toolguard.Escalated:
			failed(span, string(v.Reason))
		case r.Answer.IsError():
			failed(span, "tool_error")
		}
		span.End()
	}
}

func (t *Tracing) attempt(ctx context.Context, tool *toolguard.Tool, d *registry.Dispatch) (context.Context, func(registry.Answer, error)) {
	ctx, span := t.tracer.Start(ctx, method+" "+valid(tool.Name), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(about(&tool.Tool)...))
	if d.Attempt > 0 {
		span.SetAttributes(attribute.Int("toolguard.attempt", d.Attempt))
	}
	meta := carrier{}
	if len(d.Meta) == 0 || json.Unmarshal(d.Meta, &meta) == nil {
		if meta == nil { // it was null
			meta = carrier{}
		}
		propagator.Inject(ctx, meta)
		if text, err := json.Marshal(meta); err == nil {
			d.Meta = text
		}
	}
	return ctx, func(a registry.Answer, err error) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			failed(span, "timeout")
		case errors.Is(err, registry.ErrNotSent):
			failed(span, "not_sent")
		case err != nil:
			failed(span, "no_answer")
		case a.Error != nil:
			span.SetAttributes(attribute.String("rpc.response.status_code", strconv.Itoa(a.Error.Code)))
			failed(span, "rpc_error")
		case a.IsError():
			failed(span, "tool_error")
		}
		span.End()
	}
}

// failed marks a span. What a tool or its server said is not in it.
func failed(span trace.Span, kind string) {
	span.SetStatus(codes.Error, "")
	span.SetAttributes(attribute.String("error.type", kind))
}
