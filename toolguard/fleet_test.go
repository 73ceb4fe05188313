package toolguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// TestFleet plays like TestModel with three processes on one ledger: they die one at a time, have other versions of the
// tools for a while, serve two workflows, and ask lookups with and without the key, and persons for approval.
func TestFleet(t *testing.T) {
	runs := min(*modelRuns, 2)
	if *modelRuns > 40 {
		runs = *modelRuns
	}
	for range runs {
		seed := *modelSeed
		if seed == 0 {
			seed = rand.Uint64N(1<<40) + 1
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, seed)), store: storetest.NewMemory(),
					alive: map[string]bool{}, done: map[string]*deed{}, byKey: map[string]time.Time{}, byID: map[string][]time.Time{}}
				f.play(*modelSteps)
			})
		})
		if !ok {
			t.Fatalf("again with: go test ./toolguard -run TestFleet -model.seed %d", seed)
		}
	}
}

type fleet struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand // of the main goroutine
	store *storetest.Memory
	ships []*ship // that live
	all   []*ship

	mu    sync.Mutex
	alive map[string]bool
	done  map[string]*deed       // by operation key
	byKey map[string]time.Time   // when a lookup by that sent key begins to see an effect
	byID  map[string][]time.Time // the same for lookups by the argument id
	told  []*toolguard.Result
	log   []string
}

// deed is what really happened about one operation.
type deed struct {
	tool             string
	effects, ordered int
}

// ship is one process. Once it is dead, nothing that it does reaches the ledger.
type ship struct {
	toolguard.Store
	name  string
	guard *toolguard.Guard
	tools map[string]*toolguard.Tool
	fleet *fleet
}

func (s *ship) Commit(ctx context.Context, w *toolguard.Write) error {
	if !s.fleet.lives(s.name) {
		return toolguard.ErrStoreClosed
	}
	return s.Store.Commit(ctx, w)
}

func (s *ship) Operations(ctx context.Context, q toolguard.Query) (toolguard.Page, error) {
	if !s.fleet.lives(s.name) {
		return toolguard.Page{}, toolguard.ErrStoreClosed
	}
	return s.Store.Operations(ctx, q)
}

func (f *fleet) lives(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.alive[name]
}

func (f *fleet) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (f *fleet) launch() *ship {
	s := &ship{Store: f.store, name: fmt.Sprint("process ", len(f.all)+1), tools: map[string]*toolguard.Tool{}, fleet: f}
	f.mu.Lock()
	f.alive[s.name] = true
	f.mu.Unlock()
	var err error
	s.guard, err = toolguard.Open(context.Background(), s, &toolguard.Options{Process: s.name, Alive: f.lives, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		f.t.Fatal(err)
	}
	f.all = append(f.all, s)
	f.serve(s, "1")
	return s
}

// fleetTools are the names of the tools; each has a policy of its own.
var fleetTools = []string{"pay", "charge", "append", "wire", "invoice", "grant", "both"}

func (f *fleet) serve(s *ship, version string) {
	one, none := condition(f.t, "result.json.n == 1", registry.KindAnswer), condition(f.t, "result.json.n == 0", registry.KindAnswer)
	lookup := func(arguments string) []registry.Lookup {
		template, err := registry.ParseTemplate([]byte(arguments))
		if err != nil {
			f.t.Fatal(err)
		}
		return []registry.Lookup{{Tool: "find", Arguments: template, Handler: f.find, Settle: 2 * time.Minute, Applied: one, Absent: none}}
	}
	for _, name := range fleetTools {
		p := registry.Policy{Timeout: 30 * time.Second, AnswerWithin: 10 * time.Second, OncePer: []string{"source_event", "/id"}}
		switch name {
		case "charge":
			p.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: 10 * time.Minute}
		case "append":
			p.OncePer = nil
		case "invoice":
			p.Lookups = lookup(`{"id":"{{args.id}}"}`)
		}
		if name == "wire" || name == "both" {
			p.Lookups = lookup(`{"key":"{{key}}"}`)
		}
		if name == "grant" || name == "both" {
			p.Approval, p.Errors = &registry.Approval{Expires: 5 * time.Minute}, registry.ErrorWords
		}
		e, err := registry.Compile(registry.Tool{Server: "srv", Name: name, Version: version, Effect: registry.Write, EffectSource: "declared", Policy: p, Handler: f.act(name)})
		if err != nil {
			f.t.Fatal(err)
		}
		if s.tools[name], err = s.guard.Register(context.Background(), e); err != nil {
			f.t.Fatal(err)
		}
	}
}

// act is the downstream.
func (f *fleet) act(tool string) registry.Handler {
	return func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		var args struct{ ID string }
		if err := json.Unmarshal(d.Arguments, &args); err != nil {
			f.t.Error(err)
		}
		f.mu.Lock()
		k := f.done[d.Operation]
		if k == nil {
			k = &deed{tool: tool}
			f.done[d.Operation] = k
		}
		f.mu.Unlock()
		r := drawn(f.seed, d.Operation, d.Attempt)
		kind, lag := r.IntN(12), time.Duration(r.IntN(20))*time.Second
		effect := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if tool == "charge" && k.effects > 0 {
				return // it honours keys
			}
			k.effects++
			shows := time.Now().Add(lag)
			f.byID[args.ID+tool] = append(f.byID[args.ID+tool], shows)
			if _, ok := f.byKey[d.Key]; !ok {
				f.byKey[d.Key] = shows
			}
		}
		f.say("  %s attempt %d of %.8s does %d", tool, d.Attempt, d.Operation, kind)
		if r.IntN(3) == 0 {
			d.Sent()
		}
		short, long := time.Duration(r.IntN(20))*time.Second, time.Duration(r.IntN(80))*time.Second
		switch kind {
		case 0:
			return later(short, lost)(nil, ctx, d, effect)
		case 1:
			return later(long, dropped)(nil, ctx, d, effect)
		case 2:
			return later(short, refused("invalid amount"))(nil, ctx, d, effect)
		case 3:
			return unsent(nil, ctx, d, effect)
		case 4:
			effect()
			time.Sleep(long)
			return text("ok", false), nil
		case 5:
			return slow(long)(nil, ctx, d, effect)
		case 6:
			effect()
			return text("internal server error 500", true), nil
		case 7:
			effect()
			panic("the tool broke")
		case 8:
			return later(long, refused("invalid amount"))(nil, ctx, d, effect)
		}
		return slow(short/10)(nil, ctx, d, effect)
	}
}

// find is a truthful lookup, by key or by id, which lags, takes its time before and after it looks, and fails at times.
func (f *fleet) find(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
	var args struct{ Key, ID string }
	if err := json.Unmarshal(d.Arguments, &args); err != nil {
		f.t.Error(err)
	}
	r := drawn(f.seed, time.Now().String()+args.Key+args.ID, 0)
	time.Sleep(time.Duration(r.IntN(10)) * time.Second)
	f.mu.Lock()
	n := 0
	for _, at := range f.byID[args.ID+"invoice"] {
		if !time.Now().Before(at) {
			n++
		}
	}
	if at, ok := f.byKey[args.Key]; ok && !time.Now().Before(at) {
		n++
	}
	f.mu.Unlock()
	time.Sleep(time.Duration(r.IntN(5)) * time.Second)
	if r.IntN(8) == 0 {
		return registry.Answer{}, fmt.Errorf("the lookup is down")
	}
	return registry.Answer{Result: fmt.Appendf(nil, `{"content":[],"structuredContent":{"n":%d}}`, n)}, nil
}

func (f *fleet) play(steps int) {
	for range 3 {
		f.ships = append(f.ships, f.launch())
	}
	var wg sync.WaitGroup
	for range steps {
		i := f.r.IntN(len(f.ships))
		switch n := f.r.IntN(20); {
		case n < 12:
			f.aCall(&wg, f.ships[i])
		case n < 15:
			f.aPerson()
		case n == 15:
			f.say("%s dies", f.ships[i].name)
			f.mu.Lock()
			f.alive[f.ships[i].name] = false
			f.mu.Unlock()
			if err := toolguard.Recover(context.Background(), f.store, f.lives); err != nil {
				f.t.Fatal(err)
			}
			f.ships[i] = f.launch()
		case n == 16 && f.r.IntN(3) == 0:
			f.serve(f.ships[i], fmt.Sprint(f.r.IntN(3)))
		default:
			time.Sleep(time.Duration(f.r.IntN(90)) * time.Second)
		}
	}
	wg.Wait()
	time.Sleep(30 * time.Minute)
	synctest.Wait()
	f.judge()
	for _, s := range f.all {
		s.guard.Close(context.Background())
	}
	f.store.Close()
	if f.t.Failed() {
		f.t.Log("\n" + strings.Join(f.log, "\n"))
	}
}

func (f *fleet) aCall(wg *sync.WaitGroup, s *ship) {
	name := fleetTools[f.r.IntN(len(fleetTools))]
	args := fmt.Sprintf(`{"id":"i%d","amount":%d}`, f.r.IntN(2), 1+f.r.IntN(2))
	facts := keyderive.Facts{Workflow: fmt.Sprint("w", f.r.IntN(2)), Actor: "agent"}
	if ev := fmt.Sprint("evt ", f.r.IntN(2)); name != "append" {
		facts.SourceEvent = ev
	}
	patience := time.Hour
	if f.r.IntN(4) == 0 {
		patience = time.Duration(f.r.IntN(15)) * time.Second
	}
	arrives := f.r.IntN(3) > 0
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r := s.guard.Do(ctx, toolguard.Call{Tool: s.tools[name], Arguments: json.RawMessage(args), Facts: facts})
		f.say("%s: %s %s %s %s → %s/%s/%s %.8s", s.name, name, facts.SourceEvent, facts.Workflow, args, r.Verdict.Outcome, r.Verdict.Reason, r.Verdict.Status, r.Verdict.Key)
		f.mu.Lock()
		f.told = append(f.told, r)
		f.mu.Unlock()
		if arrives {
			r.Delivered()
		}
	})
	synctest.Wait()
	time.Sleep(time.Duration(f.r.IntN(2)) * time.Second)
}

// aPerson decides about what waits for approval, and orders what is not known to be sent again.
func (f *fleet) aPerson() {
	page, err := f.store.Operations(context.Background(), toolguard.Query{Open: true})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, op := range page.Operations {
		switch {
		case op.Status == toolguard.StatusAwaitingApproval && f.r.IntN(2) == 0:
			yes := f.r.IntN(4) > 0
			_, err := toolguard.DecideApproval(context.Background(), f.store, toolguard.ApprovalVerdict{ID: op.Approval.ID, Approve: yes, By: dana})
			f.say("a person is asked for %s: %v, %v", op.Approval.ID, yes, err)
		case (op.Status == toolguard.StatusEscalated || op.Status == toolguard.StatusUnknown) && f.r.IntN(8) == 0:
			_, err := toolguard.Repeat(context.Background(), f.store, toolguard.RepeatOrder{Key: op.Key, By: dana})
			f.mu.Lock()
			if k := f.done[op.Key]; err == nil && k != nil {
				k.ordered++
			}
			f.mu.Unlock()
			f.say("a person orders %.8s again: %v", op.Key, err)
		}
	}
}

// judge holds what really happened against what was recorded and told.
func (f *fleet) judge() {
	page, err := f.store.Operations(context.Background(), toolguard.Query{All: true, Limit: 100000})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, op := range page.Operations {
		k := f.done[op.Key]
		if k == nil {
			k = &deed{tool: op.Action}
		}
		uses := map[string]int{}
		for _, a := range op.Attempts {
			if a.Approval != "" && a.State != toolguard.AttemptUnsent {
				uses[a.Approval]++
			}
		}
		for id, n := range uses {
			if n > 1 {
				f.t.Errorf("approval %s was used %d times", id, n)
			}
		}
		switch {
		case k.effects > 1+k.ordered:
			f.t.Errorf("%s %s had %d effects, and a person ordered it again %d times", k.tool, op.Key, k.effects, k.ordered)
		case op.Status == toolguard.StatusSucceeded && k.effects == 0:
			f.t.Errorf("%s %s is recorded as done and was not", k.tool, op.Key)
		case op.Status == toolguard.StatusFailed && k.effects > 0:
			f.t.Errorf("%s %s is recorded as failed and was done", k.tool, op.Key)
		case op.Status == toolguard.StatusDispatching:
			f.t.Errorf("%s %s is on its way after everything ended", k.tool, op.Key)
		}
	}
	for _, r := range f.told {
		v := r.Verdict
		if k := f.done[v.Key]; (v.Outcome == toolguard.Replayed || v.Outcome == toolguard.Fresh && v.Status == toolguard.StatusSucceeded) && (k == nil || k.effects == 0) {
			f.t.Errorf("a caller was told that %s was done, and it was not", v.Key)
		}
	}
	if v, err := toolguard.Verify(toolguard.Events(context.Background(), f.store)); err != nil || v.Break != "" {
		f.t.Errorf("the audit is broken: %v %s", err, v.Break)
	}
}
