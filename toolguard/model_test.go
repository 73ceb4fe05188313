package toolguard_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "play only the model run with this seed")
	modelRuns  = flag.Int("model.runs", 40, "how many model runs to play")
	modelSteps = flag.Int("model.steps", 60, "steps of one model run")
)

// TestModel plays random calls, faults, deaths and decisions of persons against a simulated downstream, and judges
// them by one function that knows only what the downstream had and what callers were told.
func TestModel(t *testing.T) {
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = seeds[:0]
		for range *modelRuns {
			seeds = append(seeds, rand.Uint64N(1<<40)+1)
		}
	}
	for _, seed := range seeds {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &model{world: newWorld(t), seed: seed, r: rand.New(rand.NewPCG(seed, seed)), keys: map[string]*truth{}, shows: map[string]time.Time{}, yes: map[string]int{}}
				m.play(*modelSteps)
			})
		})
		if !ok {
			t.Fatalf("again with: go test ./toolguard -run TestModel -model.seed %d", seed)
		}
	}
}

// truth is what really happened under one downstream key.
type truth struct {
	tool    string
	effects int  // executions that had the effect
	running int  // attempts in the handler now, of the process that lives
	life    int  // which process that is
	inside  int  // attempts at the downstream now, of dead processes too
	at      int  // the most at once
	asked   int  // attempts that reached the handler
	ordered int  // orders of a person to send again
	allowed bool // the downstream honours the key: executions beyond the first have no effect
}

type model struct {
	*world
	seed  uint64
	r     *rand.Rand // of the main goroutine
	mu    sync.Mutex
	keys  map[string]*truth // by operation key
	life  int
	shows map[string]time.Time // when a lookup by that sent key begins to see an effect
	yes   map[string]int       // approvals by operation key
	told  []*toolguard.Result
	log   []string
}

func (m *model) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// draw makes what happens to an attempt depend on the seed and the attempt alone, whatever the schedule.
func (m *model) draw(operation string, attempt int) *rand.Rand {
	return drawn(m.seed, operation, attempt)
}

func drawn(seed uint64, operation string, attempt int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, operation, attempt)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// act is the downstream: what it does is drawn when the attempt arrives.
func (m *model) act(tool string, honours bool) registry.Handler {
	life := m.life // what a dead process had begun is none of the living one's dispatches
	return func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		m.mu.Lock()
		k := m.keys[d.Operation]
		if k == nil {
			k = &truth{tool: tool, allowed: honours}
			m.keys[d.Operation] = k
		}
		k.asked++
		if k.life != m.life {
			k.life, k.running = m.life, 0
		}
		if k.inside++; life == m.life {
			k.running++
			k.at = max(k.at, k.running)
		}
		r := m.draw(d.Operation, d.Attempt)
		kind, before, after := r.IntN(12), time.Duration(r.IntN(20))*time.Second, time.Duration(r.IntN(80))*time.Second
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			k.inside--
			if k.life == life {
				k.running--
			}
			m.mu.Unlock()
		}()
		effect := func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !k.allowed || k.effects == 0 {
				k.effects++
			}
			if _, ok := m.shows[d.Key]; !ok {
				m.shows[d.Key] = time.Now().Add(time.Duration(r.IntN(20)) * time.Second)
			}
		}
		m.say("  %s attempt %d of %s does %d", tool, d.Attempt, d.Operation[:8], kind)
		switch kind {
		case 0: // the answer is lost
			time.Sleep(before)
			effect()
			return registry.Answer{}, fmt.Errorf("connection reset")
		case 1: // lost before it happened
			time.Sleep(before)
			return registry.Answer{}, fmt.Errorf("connection reset")
		case 2:
			time.Sleep(before)
			return text("invalid amount", true), nil
		case 3:
			return registry.Answer{}, fmt.Errorf("dial: %w", registry.ErrNotSent)
		case 4: // happens, and answers after the deadline perhaps
			time.Sleep(before)
			effect()
			time.Sleep(after)
		case 5: // happens after the deadline perhaps
			time.Sleep(after)
			effect()
		case 6:
			effect()
			return text("internal server error 500", true), nil
		case 7:
			effect()
			panic("the tool broke")
		case 8: // refuses, late
			time.Sleep(after)
			return text("invalid amount", true), nil
		default:
			time.Sleep(time.Duration(r.IntN(3)) * time.Second)
			effect()
		}
		return text("ok", false), nil
	}
}

// find is a truthful lookup by key, which lags, takes its time and fails at times.
func (m *model) find(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
	key := string(d.Arguments)
	m.mu.Lock()
	r := m.draw(key+time.Now().String(), 0)
	m.mu.Unlock()
	time.Sleep(time.Duration(r.IntN(10)) * time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	found := 0
	for sent, at := range m.shows {
		if strings.Contains(key, sent) && !time.Now().Before(at) {
			found = 1
		}
	}
	switch r.IntN(8) {
	case 0:
		return registry.Answer{}, fmt.Errorf("the lookup is down")
	case 1:
		found = 2 // something is wrong there
	}
	return registry.Answer{Result: fmt.Appendf(nil, `{"content":[],"structuredContent":{"n":%d}}`, found)}, nil
}

func (m *model) play(steps int) {
	policy := registry.Policy{Timeout: 30 * time.Second, AnswerWithin: 10 * time.Second}
	strict, keyed := policy, policy
	strict.OncePer = []string{"source_event", "/id"}
	keyed.OncePer = []string{"source_event", "/id"}
	keyed.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: 10 * time.Minute}
	looked, granted := strict, strict
	reference, err := registry.ParseTemplate([]byte(`{"ref":"{{key}}"}`))
	if err != nil {
		m.t.Fatal(err)
	}
	looked.Lookups = []registry.Lookup{{Tool: "find", Arguments: reference, Handler: m.find, Settle: 2 * time.Minute,
		Applied: condition(m.t, "result.json.n == 1", registry.KindAnswer), Absent: condition(m.t, "result.json.n == 0", registry.KindAnswer)}}
	granted.Approval = &registry.Approval{Expires: 5 * time.Minute}
	granted.Errors = registry.ErrorWords
	specs := []registry.Tool{{Name: "pay", Policy: strict}, {Name: "charge", Policy: keyed}, {Name: "append", Policy: policy},
		{Name: "wire", Policy: looked}, {Name: "grant", Policy: granted}}
	m.serve(specs)
	var wg sync.WaitGroup
	for range steps {
		switch n := m.r.IntN(20); {
		case n < 13:
			m.aCall(&wg, specs)
		case n < 15:
			m.aPerson()
		case n == 15:
			wg.Wait()
			m.say("the process dies")
			m.mu.Lock()
			m.life++
			m.mu.Unlock()
			m.crash()
			m.serve(specs)
		default:
			time.Sleep(time.Duration(m.r.IntN(90)) * time.Second)
		}
	}
	wg.Wait()
	time.Sleep(45 * time.Minute) // every attempt ends, every warrant is used or gone
	synctest.Wait()
	m.judge()
	m.close()
	if m.t.Failed() {
		m.t.Log("\n" + strings.Join(m.log, "\n"))
	}
}

// serve registers the tools with the guard that is open now.
func (m *model) serve(specs []registry.Tool) {
	for _, s := range specs {
		s.Server, s.Effect, s.EffectSource = "srv", registry.Write, "declared"
		s.Handler = m.act(s.Name, s.Policy.DownstreamKey.Window > 0)
		e, err := registry.Compile(s)
		if err != nil {
			m.t.Fatal(err)
		}
		if m.tools[s.Name], err = m.g.Register(context.Background(), e); err != nil {
			m.t.Fatal(err)
		}
	}
}

// aCall makes a call in the background; its caller may leave, and may not get the answer.
func (m *model) aCall(wg *sync.WaitGroup, specs []registry.Tool) {
	name := specs[m.r.IntN(len(specs))].Name
	args := fmt.Sprintf(`{"id":"i%d","amount":%d}`, m.r.IntN(2), 1+m.r.IntN(2))
	ev := fmt.Sprintf("evt %d", m.r.IntN(2))
	patience := time.Hour
	if m.r.IntN(4) == 0 {
		patience = time.Duration(m.r.IntN(15)) * time.Second
	}
	arrives := m.r.IntN(3) > 0
	opts := []option{event(ev)}
	if name == "append" {
		opts = nil
	}
	wg.Go(func() {
		r := m.giveUp(patience, name, args, opts...)
		m.say("%s %s %s → %s/%s/%s", name, ev, args, r.Verdict.Outcome, r.Verdict.Reason, r.Verdict.Status)
		m.mu.Lock()
		m.told = append(m.told, r)
		m.mu.Unlock()
		if arrives {
			r.Delivered()
		}
	})
	synctest.Wait()
	time.Sleep(time.Duration(m.r.IntN(2)) * time.Second)
}

// aPerson decides about something that nobody can know, truthfully.
func (m *model) aPerson() {
	page, err := m.store.Operations(context.Background(), toolguard.Query{Open: true})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, op := range page.Operations {
		if a := op.Approval; op.Status == toolguard.StatusAwaitingApproval && m.r.IntN(2) == 0 {
			yes := m.r.IntN(4) > 0
			err := m.decide(a.ID, yes, dana)
			m.say("a person is asked for %s: %v, %v", a.ID, yes, err)
			if yes && err == nil {
				m.mu.Lock()
				m.yes[op.Key]++
				m.mu.Unlock()
			}
			continue
		}
		if op.Status != toolguard.StatusEscalated {
			continue
		}
		m.mu.Lock()
		k := m.keys[op.Key]
		effects, busy := 0, false
		if k != nil {
			effects, busy = k.effects, k.inside > 0
		}
		m.mu.Unlock()
		if busy {
			continue // who decides about what may still happen decides wrongly
		}
		verdict := "not_applied"
		if effects > 0 {
			verdict = "applied"
		}
		if m.r.IntN(5) == 0 && k != nil {
			if err := m.repeat(op.Key, false); err == nil {
				m.mu.Lock()
				k.ordered++
				m.mu.Unlock()
				m.say("a person orders %s again", op.Key[:8])
			}
			return
		}
		if err := m.resolve(op.Key, verdict, false); err == nil {
			m.say("a person decides %s: %s", op.Key[:8], verdict)
		}
		return
	}
}

// judge holds what the downstream had against what was recorded and told.
func (m *model) judge() {
	t := m.t
	page, err := m.store.Operations(context.Background(), toolguard.Query{All: true, Limit: 100000})
	if err != nil {
		t.Fatal(err)
	}
	ops := map[string]*toolguard.Operation{}
	for _, op := range page.Operations {
		ops[op.Key] = op
	}
	for key, k := range m.keys {
		op := ops[key]
		if op == nil {
			t.Errorf("%s %s reached the tool and is not on record", k.tool, key)
			continue
		}
		if k.effects > 1+k.ordered {
			t.Errorf("%s %s had %d effects, and a person ordered it again %d times", k.tool, key, k.effects, k.ordered)
		}
		if k.tool == "grant" && m.yes[key] == 0 {
			t.Errorf("%s was sent without a person's yes", key)
		}
		if k.at > 1 {
			t.Errorf("%s %s was dispatched %d times at once", k.tool, key, k.at)
		}
		switch op.Status {
		case toolguard.StatusSucceeded:
			if k.effects == 0 {
				t.Errorf("%s %s is recorded as done and was not", k.tool, key)
			}
		case toolguard.StatusFailed:
			if k.effects > 0 {
				t.Errorf("%s %s is recorded as failed and was done", k.tool, key)
			}
		case toolguard.StatusApproved:
			t.Errorf("%s %s was approved and never sent", k.tool, key)
		case toolguard.StatusDispatching:
			t.Errorf("%s %s is recorded as dispatching after everything ended", k.tool, key)
		}
	}
	for _, op := range ops {
		if op.Occurrence > 1 {
			m.judgeNext(op, ops)
		}
	}
	for _, r := range m.told {
		v := r.Verdict
		if k := m.keys[v.Key]; (v.Outcome == toolguard.Replayed || v.Outcome == toolguard.Fresh && v.Status == toolguard.StatusSucceeded) && (k == nil || k.effects == 0) {
			t.Errorf("a caller was told that %s was done, and it was not", v.Key)
		}
	}
	v, err := toolguard.Verify(toolguard.Events(context.Background(), m.store))
	if err != nil || v.Break != "" {
		t.Errorf("the audit is broken: %v %s", err, v.Break)
	}
	m.judgeApprovals()
	calls := 0
	for e := range toolguard.Events(context.Background(), m.store) {
		if e.Type == toolguard.EventCall {
			calls++
		}
	}
	if calls != len(m.told) {
		t.Errorf("%d calls were answered, and %d are in the audit", len(m.told), calls)
	}
}

// judgeApprovals: every dispatch of a tool that needs one consumed an approval of its own, unless it went out of unknown.
// An attempt that never left gives its approval back.
func (m *model) judgeApprovals() {
	spent, unknown := map[string]bool{}, map[string]bool{}
	for e := range toolguard.Events(context.Background(), m.store) {
		switch {
		case e.Tool != "srv/grant":
		case e.Type == toolguard.EventSettled:
			unknown[e.Key] = e.Status == toolguard.StatusUnknown || e.Status == toolguard.StatusEscalated
			if e.Detail["attempt_state"] == "unsent" {
				clear(spent) // that one is good again; which it was the record tells
			}
		case e.Type == toolguard.EventDispatched && e.Approval == "" && !unknown[e.Key]:
			m.t.Errorf("%s attempt %d was sent without an approval", e.Key, e.Attempt)
		case e.Type == toolguard.EventDispatched && e.Approval != "":
			if spent[e.Approval] {
				m.t.Errorf("approval %s was used twice", e.Approval)
			}
			spent[e.Approval] = true
		}
	}
}

// judgeNext: a next occurrence was opened only over a final one that somebody had the result of, or that a person allowed.
func (m *model) judgeNext(op *toolguard.Operation, ops map[string]*toolguard.Operation) {
	for _, before := range ops {
		if before.Intent != op.Intent || before.Occurrence != op.Occurrence-1 {
			continue
		}
		if !before.Status.Final() || before.Delivered.IsZero() && before.Allowed == nil && before.Status != toolguard.StatusRejected {
			m.t.Errorf("%s occurrence %d was opened over one that is %s and was delivered %v", op.Action, op.Occurrence, before.Status, before.Delivered)
		}
	}
}
