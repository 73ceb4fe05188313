package toolguard

import (
	"context"

	"toolguard.dev/keyderive"
)

// factsKey is where a context carries facts.
type factsKey struct{}

// WithFacts returns a context that carries what the runtime knows about the calls made with it: whose data, which
// event, which run. Facts that are "" leave what ctx carries already. Calls through the adapters for Go programs take
// their facts from there and never from the model; a tool's handler finds there the facts of the call it answers.
func WithFacts(ctx context.Context, f keyderive.Facts) context.Context {
	merged := FactsFrom(ctx)
	for to, from := range map[*string]string{
		&merged.Tenant: f.Tenant, &merged.Workflow: f.Workflow, &merged.SourceEvent: f.SourceEvent, &merged.Request: f.Request,
		&merged.Run: f.Run, &merged.Step: f.Step, &merged.Session: f.Session, &merged.Actor: f.Actor, &merged.CallID: f.CallID,
		&merged.WorkflowVersion: f.WorkflowVersion, &merged.Client: f.Client,
	} {
		if from != "" {
			*to = from
		}
	}
	return handling(ctx, &merged)
}

// FactsFrom returns the facts that ctx carries.
func FactsFrom(ctx context.Context) keyderive.Facts {
	if f, ok := ctx.Value(factsKey{}).(*keyderive.Facts); ok {
		return *f
	}
	return keyderive.Facts{}
}

// handling returns the context of a handler that answers for exactly these facts, which nobody changes any more.
func handling(ctx context.Context, f *keyderive.Facts) context.Context {
	return context.WithValue(ctx, factsKey{}, f)
}
