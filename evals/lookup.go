package evals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// lookupTool is the downstream's own lookup, as its tool.
const lookupTool = "find_effect"

// ownLookup asks for a key: it is for tools whose policy has no lookup.
var ownLookup = sync.OnceValues(func() (l registry.Lookup, err error) {
	l = registry.Lookup{Tool: lookupTool, Settle: settles}
	if l.Arguments, err = registry.ParseTemplate(json.RawMessage(`{"reference":"{{key}}"}`)); err != nil {
		return l, err
	}
	if l.Applied, err = registry.CompileExpression("result.json.found > 0", registry.KindAnswer); err != nil {
		return l, err
	}
	l.Absent, err = registry.CompileExpression("result.json.found == 0", registry.KindAnswer)
	return l, err
})

// query is a lookup of a tool's policy as the downstream understands it: an effect is found where the lookup's question,
// filled in for that effect, is the one that is asked. The answer is one that the lookup's own conditions understand.
type query struct {
	tool   string // whose effects it finds
	lookup registry.Lookup
	asks   any             // the question, with placeholders
	probe  *registry.Entry // understands an answer as the guard does
	forms  []registry.Answer
}

// errNoForm: no answer can be thought of that says what a lookup's condition asks for.
var errNoForm = errors.New("no answer could be made up for")

// newQuery reads a lookup. The error says that its conditions are not understood.
func newQuery(tool string, l registry.Lookup) (*query, error) {
	q := &query{tool: tool, lookup: l, asks: map[string]any{}}
	var err error
	if l.Arguments != nil {
		source, _ := l.Arguments.MarshalJSON()
		if q.asks, err = keyderive.Parse(source); err != nil {
			return nil, err
		}
	}
	probe := l
	probe.Arguments = nil
	probe.Handler = func(ctx context.Context, _ *registry.Dispatch) (registry.Answer, error) {
		form, _ := ctx.Value(formKey{}).(registry.Answer)
		return form, nil
	}
	if q.probe, err = registry.Compile(registry.Tool{Server: "chaos", Name: tool, Policy: registry.Policy{Lookups: []registry.Lookup{probe}}}); err != nil {
		return nil, err
	}
	q.forms = formsOf(nil, l.Applied, l.Absent)
	for want, x := range map[registry.Finding]*registry.Expression{registry.Applied: l.Applied, registry.Absent: l.Absent} {
		if x == nil {
			continue
		}
		if _, err := q.answer(want, nil); err != nil && !strings.Contains(x.String(), "args") {
			return nil, fmt.Errorf("%w %q", err, clip(x.String(), 200))
		}
	}
	return q, nil
}

// formKey is where a context carries the answer that is tried.
type formKey struct{}

// answer is one that the lookup takes for a finding. Where it has no condition for that, any that tells nothing will do.
func (q *query) answer(want registry.Finding, args any) (registry.Answer, error) {
	if want == registry.Applied && q.lookup.Applied == nil || want == registry.Absent && q.lookup.Absent == nil {
		want = registry.Unclear
	}
	given, _ := args.(map[string]any)
	for _, forms := range [][]registry.Answer{q.forms, formsOf(given, q.lookup.Applied, q.lookup.Absent)} {
		for _, form := range forms {
			ctx := context.WithValue(context.Background(), formKey{}, form)
			if q.probe.Look(ctx, 0, registry.Values{Arguments: args}).Finding == want {
				return form, nil
			}
		}
	}
	return registry.Answer{}, errNoForm
}

// about reports whether a question is about an effect.
func about(asks, asked any, v registry.Values) bool {
	switch x := asks.(type) {
	case string:
		for _, name := range registry.Placeholders(x) {
			if strings.HasPrefix(name, "context.") || name == "downstream_id" {
				return true // of one run all facts are the same, or not the downstream's business
			}
		}
		want, ok, err := registry.ExpandJSON(x, v)
		return err == nil && ok && same(want, asked)
	case map[string]any:
		y, ok := asked.(map[string]any)
		for name, e := range x {
			ok = ok && about(e, y[name], v)
		}
		return ok
	case []any:
		y, ok := asked.([]any)
		ok = ok && len(x) == len(y)
		for i := 0; ok && i < len(x); i++ {
			ok = about(x[i], y[i], v)
		}
		return ok
	}
	return same(asks, asked)
}

func same(a, b any) bool {
	return string(keyderive.AppendCanonical(nil, a)) == string(keyderive.AppendCanonical(nil, b))
}

// Find answers a lookup: one of some that are asked in the same way.
func (w *World) Find(of []*query, arguments json.RawMessage) (registry.Answer, error) {
	asked, err := keyderive.Parse(arguments)
	if err != nil {
		return registry.Answer{}, err
	}
	time.Sleep(w.Took / 2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.away) {
		return registry.Answer{}, fmt.Errorf("%w: dial tcp: connection refused", registry.ErrNotSent)
	}
	step, want, found, args := -1, registry.Absent, of[0], any(nil)
	for _, q := range of {
		for i := range w.effects {
			e := &w.effects[i]
			given, err := keyderive.Parse(e.Arguments)
			if err == nil && e.Tool == q.tool && about(q.asks, asked, registry.Values{Key: e.Key, Arguments: given}) {
				found, step, args = q, e.Step, given
				if time.Since(e.At) >= w.Lag {
					want = registry.Applied
				}
			}
		}
		if text := string(arguments); want == registry.Absent && step < 0 { // it may be the key that tells whose it is
			for key, of := range w.stepOf {
				if of >= 0 && of < len(w.steps) && strings.Contains(text, key) && w.steps[of].call.Tool == q.tool {
					found, step = q, of
					args, _ = keyderive.Parse(w.steps[of].call.Arguments)
				}
			}
		}
	}
	w.note(step, "the lookup says: "+string(want))
	return found.answer(want, args)
}
