package goguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Func is a Go function as a guarded tool. It is safe for concurrent use, as far as the function is.
type Func[In, Out any] struct {
	*toolguard.Tool
	guard *toolguard.Guard
	shape shape
}

// New registers f with the guard as the tool that t describes. In must be a struct, or a map with text keys; its JSON
// form is what a call's arguments look like. t needs Server and Name; the schemas are derived from In and Out where it
// has none, an effect that it does not give is presumed from the name, and its handler is f.
func New[In, Out any](g *toolguard.Guard, t registry.Tool, f func(context.Context, In) (Out, error)) (*Func[In, Out], error) {
	action := t.Action()
	if f == nil {
		return nil, fmt.Errorf("%s: there is no function", action)
	}
	input, err := schemaOf(reflect.TypeFor[In]())
	if err == nil && input.object == nil {
		err = fmt.Errorf("arguments are an object, and %s is none", reflect.TypeFor[In]())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	output, err := schemaOf(reflect.TypeFor[Out]())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	if t.InputSchema == nil {
		t.InputSchema = input.object
	}
	if t.OutputSchema == nil && !output.empty {
		t.OutputSchema = output.object
	}
	t.SetEffect()
	t.Handler = handler(output, f)
	entry, err := registry.Compile(t)
	if err != nil {
		return nil, err
	}
	tool, err := g.Register(context.Background(), entry)
	if err != nil {
		return nil, err
	}
	return &Func[In, Out]{tool, g, output}, nil
}

// Call calls the function through the guard. The facts of the call are those that ctx carries: see
// [toolguard.WithFacts]. Without an error, out is what the function returned, now or, where the verdict says replayed,
// when it was done. Everything else is an [*Error].
//
// The result counts as delivered when Call returns it. So a call without a source event, run or step that is made again
// later may be meant, and is then done again; one with such a fact is done once.
func (f *Func[In, Out]) Call(ctx context.Context, in In) (out Out, v toolguard.Verdict, err error) {
	arguments, err := encode(in)
	if err != nil {
		return out, v, fmt.Errorf("the arguments of %s: %w", f.Action(), err)
	}
	r := f.guard.Do(ctx, toolguard.Call{Tool: f.Tool, Arguments: arguments, Facts: toolguard.FactsFrom(ctx)})
	done := r.Verdict.Outcome == toolguard.Fresh && r.Verdict.Status != toolguard.StatusFailed || r.Verdict.Outcome == toolguard.Replayed || !r.Guarded
	if !done || r.Answer.Result == nil && !f.shape.empty {
		return out, r.Verdict, &Error{Verdict: r.Verdict, Text: cmp.Or(r.Text, r.Answer.Text())}
	}
	if out, err = decode[Out](f.shape, r.Answer); err != nil {
		return out, r.Verdict, &Error{Verdict: r.Verdict, Text: fmt.Sprintf("%s was done, but its recorded result does not fit %T: %v", f.Action(), out, err)}
	}
	r.Delivered()
	return out, r.Verdict, nil
}

// Error says why [Func.Call] has no result: the call was refused, waits, was held back, or its outcome is not known.
// The verdict tells which. errors.Is(err, registry.ErrNotApplied) holds where the function ran and did nothing.
type Error struct {
	Verdict toolguard.Verdict
	Text    string // what happened and what to do, in one or a few sentences
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Is tells whether the function is known to have done nothing.
func (e *Error) Is(target error) bool {
	return target == registry.ErrNotApplied && e.Verdict.Outcome == toolguard.Fresh && e.Verdict.Status == toolguard.StatusFailed
}

// handler calls f with the arguments of an attempt.
func handler[In, Out any](s shape, f func(context.Context, In) (Out, error)) registry.Handler {
	return func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		var in In
		arguments, err := keyderive.Canonical(d.Arguments) // 4.2e3 is an integer, and in Go only 4200 is
		if err != nil {
			arguments = d.Arguments
		}
		if err := exactly(arguments, &in); err != nil {
			return registry.Answer{}, fmt.Errorf("%w: the arguments do not fit: %w", registry.ErrNotSent, err)
		}
		if err := d.Sending(); err != nil {
			return registry.Answer{}, err
		}
		out, err := f(ctx, in)
		if err != nil {
			return registry.Answer{}, err
		}
		return answer(s, out)
	}
}

// shape is how a Go type looks as a tool's arguments or result.
type shape struct {
	object []byte // its schema, where it is an object
	text   bool   // it is a string
	empty  bool   // it says nothing
}

func schemaOf(t reflect.Type) (shape, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		return shape{}, err
	}
	s := shape{text: t.Kind() == reflect.String, empty: t.Kind() == reflect.Struct && t.NumField() == 0}
	if schema.Type == "object" {
		s.object, err = encode(schema)
	}
	return s, err
}

var errNothing = errors.New("the function returned neither a result nor an error")
