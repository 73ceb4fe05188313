package toolguard

import (
	"context"

	"toolguard.dev/registry"
)

// Watch is told of calls and attempts while they happen, for tracing. Members that are nil are not called. They are called
// concurrently, must not block, and must change nothing that they are given but [registry.Dispatch].Meta.
type Watch struct {
	// Call is told of a call; done is told what it got. The context is that of the call, and of the attempts it starts.
	Call func(ctx context.Context, c *Call) (of context.Context, done func(*Result))
	// Attempt is told of an attempt, or of a read, right before its handler is called; done is told how that ended.
	Attempt func(ctx context.Context, t *Tool, d *registry.Dispatch) (of context.Context, done func(registry.Answer, error))
}

func (w Watch) call(ctx context.Context, c Call) (context.Context, func(*Result)) {
	if w.Call == nil {
		return ctx, func(*Result) {}
	}
	watched := c // its place on the heap is for those who watch alone
	return w.Call(ctx, &watched)
}

func (w Watch) attempt(ctx context.Context, t *Tool, d *registry.Dispatch) (context.Context, func(registry.Answer, error)) {
	if w.Attempt == nil {
		return ctx, func(registry.Answer, error) {}
	}
	return w.Attempt(ctx, t, d)
}
