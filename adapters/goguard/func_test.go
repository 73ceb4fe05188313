package goguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"toolguard.dev/adapters/goguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

func newGuard(t *testing.T) *toolguard.Guard {
	t.Helper()
	g, err := toolguard.Open(t.Context(), storetest.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

type thing struct {
	Name string `json:"name"`
	Any  any    `json:"any,omitempty"`
}

// make registers f as a write tool that is done once per name.
func made[Out any](t *testing.T, f func(context.Context, thing) (Out, error)) *goguard.Func[thing, Out] {
	t.Helper()
	fn, err := goguard.New(newGuard(t), registry.Tool{
		Server: "shop", Name: "make", Effect: registry.Write, Policy: registry.Policy{OncePer: []string{"/name"}},
	}, f)
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

// twice calls a function two times and returns what it got at last.
func twice[Out any](t *testing.T, f *goguard.Func[thing, Out]) (Out, toolguard.Verdict, error) {
	t.Helper()
	if _, _, err := f.Call(t.Context(), thing{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	return f.Call(t.Context(), thing{Name: "a"})
}

func TestResultsComeBackAsTheyWere(t *testing.T) {
	t.Run("struct", func(t *testing.T) {
		f := made(t, func(_ context.Context, in thing) (*thing, error) { return &thing{Name: "<" + in.Name + ">"}, nil })
		if out, v, err := twice(t, f); err != nil || out.Name != "<a>" || v.Outcome != toolguard.Replayed {
			t.Error(out, v, err)
		}
		if !f.HasOutput || !strings.Contains(string(f.ListedInput()), `"name"`) {
			t.Errorf("schemas: %s, %s", f.ListedInput(), f.OutputSchema)
		}
	})
	t.Run("text", func(t *testing.T) {
		f := made(t, func(context.Context, thing) (string, error) { return `"1"`, nil })
		if out, v, err := twice(t, f); err != nil || out != `"1"` || v.Outcome != toolguard.Replayed {
			t.Error(out, v, err)
		}
	})
	t.Run("list", func(t *testing.T) {
		f := made(t, func(context.Context, thing) ([]int64, error) { return []int64{9007199254740993}, nil })
		if out, v, err := twice(t, f); err != nil || len(out) != 1 || out[0] != 9007199254740993 || v.Outcome != toolguard.Replayed {
			t.Error(out, v, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		f := made(t, func(context.Context, thing) (struct{}, error) { return struct{}{}, nil })
		if _, v, err := twice(t, f); err != nil || v.Outcome != toolguard.Replayed || f.HasOutput {
			t.Error(v, err)
		}
	})
}

func TestWhatAnErrorMeans(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
		ran     int
		second  toolguard.Outcome
	}{
		"not applied": {registry.NotApplied(errors.New("no funds")), true, 2, toolguard.Fresh},
		"not sent":    {registry.ErrNotSent, false, 2, toolguard.Blocked},
		"any other":   {errors.New("connection reset"), false, 1, toolguard.Escalated},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			f := made(t, func(context.Context, thing) (string, error) { ran++; return "", c.err })
			_, _, err := f.Call(t.Context(), thing{Name: "a"})
			if errors.Is(err, registry.ErrNotApplied) != c.refused {
				t.Errorf("known to have done nothing: %v (%v)", !c.refused, err)
			}
			var told *goguard.Error
			if !errors.As(err, &told) || told.Text == "" {
				t.Errorf("no words: %v", err)
			}
			_, v, err := f.Call(t.Context(), thing{Name: "a"})
			if ran != c.ran || v.Outcome != c.second || err == nil {
				t.Errorf("ran %d times, then %v, %v", ran, v, err)
			}
		})
	}
}

func TestHandlerSeesItsCall(t *testing.T) {
	var d registry.Dispatch
	var facts keyderive.Facts
	f := made(t, func(ctx context.Context, in thing) (string, error) {
		if at, ok := registry.DispatchFrom(ctx); ok {
			d = *at
		}
		facts = toolguard.FactsFrom(ctx)
		return "", nil
	})
	ctx := toolguard.WithFacts(t.Context(), keyderive.Facts{Tenant: "acme", Run: "r1"})
	ctx = toolguard.WithFacts(ctx, keyderive.Facts{Run: "r2"})
	_, v, err := f.Call(ctx, thing{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if d.Key == "" || d.Operation != v.Key || d.Attempt != 1 {
		t.Errorf("the attempt: %+v", d)
	}
	if facts.Tenant != "acme" || facts.Run != "r2" || facts.Workflow != "default" {
		t.Errorf("the facts: %+v", facts)
	}
	if _, ok := registry.DispatchFrom(ctx); ok {
		t.Error("there is an attempt outside the handler")
	}
}

func TestIntegersHoweverSpelled(t *testing.T) {
	g := newGuard(t)
	f, err := goguard.New(g, registry.Tool{Server: "shop", Name: "add"}, func(_ context.Context, in struct{ N int64 }) (int64, error) { return in.N, nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, spelled := range []string{"4200", "4.2e3", "4200.0", "9007199254740993"} {
		facts := keyderive.Facts{SourceEvent: fmt.Sprint(i)}
		r := g.Do(t.Context(), toolguard.Call{Tool: f.Tool, Facts: facts, Arguments: json.RawMessage(`{"N":` + spelled + `}`)})
		if text := r.Answer.Text(); text != "4200" && text != spelled {
			t.Errorf("%s: %s %s", spelled, text, r.Text)
		}
	}
}

// What is missing is named, without the words of a library.
func TestWhatIsMissing(t *testing.T) {
	for missing, once := range map[string]string{"source_event is not known": "source_event", "/name": "/name"} {
		f, err := goguard.New(newGuard(t), registry.Tool{Server: "shop", Name: "make", Policy: registry.Policy{OncePer: []string{once}}},
			func(context.Context, thing) (int, error) { return 1, nil })
		if err != nil {
			t.Fatal(err)
		}
		_, verdict, err := f.Call(t.Context(), thing{})
		if verdict.Reason != toolguard.ReasonContextRequired || err == nil || !strings.Contains(err.Error(), "did not come with this call: "+missing+". ") {
			t.Errorf("%s: %+v, %v", once, verdict, err)
		}
	}
}

func TestUnfitFunctions(t *testing.T) {
	g, tool := newGuard(t), registry.Tool{Server: "shop", Name: "make"}
	if _, err := goguard.New[thing, string](g, tool, nil); err == nil {
		t.Error("no function: no error")
	}
	if _, err := goguard.New(g, tool, func(context.Context, string) (string, error) { return "", nil }); err == nil {
		t.Error("a text as arguments: no error")
	}
	if _, err := goguard.New(g, tool, func(context.Context, thing) (func(), error) { return nil, nil }); err == nil {
		t.Error("a function as result: no error")
	}
	f := made(t, func(context.Context, thing) (*thing, error) { return nil, nil })
	if _, v, _ := f.Call(t.Context(), thing{Name: "a"}); v.Outcome != toolguard.Escalated {
		t.Errorf("neither result nor error: %v", v)
	}
}
