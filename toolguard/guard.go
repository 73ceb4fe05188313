package toolguard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Guard makes the calls of its tools safe to repeat. It is safe for concurrent use.
type Guard struct {
	store   Store
	log     *slog.Logger
	observe bool
	process string

	rooms    rooms
	arrivals atomic.Uint64

	mu      sync.Mutex
	tools   map[string]*Tool
	flights map[string]*flight   // by operation key
	marks   map[string]time.Time // deliveries whose lazy write may not be visible yet
	timers  map[string]*time.Timer
	running sync.WaitGroup // attempts whose outcome is not recorded
	closing chan struct{}
}

// Options of [Open]. The zero value is good.
type Options struct {
	Observe bool         // dispatch everything, record what would have been done
	Log     *slog.Logger // nil: slog.Default
	Process string       // names this process in attempts; "": a random name
}

// Open returns a guard on a store, after it has recovered what earlier processes left: see [Recover]. The store
// stays the caller's to close, after [Guard.Close].
func Open(ctx context.Context, store Store, o *Options) (*Guard, error) {
	if o == nil {
		o = &Options{}
	}
	g := &Guard{
		store: store, log: o.Log, observe: o.Observe, process: o.Process,
		tools: map[string]*Tool{}, flights: map[string]*flight{}, marks: map[string]time.Time{}, timers: map[string]*time.Timer{}, closing: make(chan struct{}),
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	if g.process == "" {
		g.process = rand.Text()
	}
	if err := Recover(ctx, store, g.process); err != nil {
		return nil, err
	}
	return g, nil
}

// Close stops starting attempts and waits until those on their way are recorded or ctx ends; what is still on its way
// then is found by the next Open.
func (g *Guard) Close(ctx context.Context) error {
	g.mu.Lock()
	select {
	case <-g.closing:
	default:
		close(g.closing)
	}
	for _, t := range g.timers {
		t.Stop()
	}
	g.mu.Unlock()
	done := make(chan struct{})
	go func() { g.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Call is one call as it arrived.
type Call struct {
	Tool      *Tool
	Arguments json.RawMessage // the caller's bytes; nil means {}
	Facts     keyderive.Facts // what the runtime knows; Tenant and Workflow "" mean "default"
	Missing   []string        // facts that are declared and did not come
	Conflict  []string        // facts of which two sources disagree
	Meta      json.RawMessage // the request's _meta, handed on
	Input     json.RawMessage // answers to what the tool asked for: the call continues its operation
}

// Result is what one call got.
type Result struct {
	Verdict Verdict
	Answer  registry.Answer // the tool's own or the recorded answer; zero where Text is all there is
	Text    string          // what happened and what to do, for the reader of the answer; "" where the answer says it all
	Guarded bool            // false: a read, or observe mode; the answer is shown as it is, without the verdict
	// Delivered is called when proof came that the caller has this result, and only then; at most once, and never nil.
	Delivered func()
}

// Verdict is shown on every guarded call's result.
type Verdict struct {
	Outcome      Outcome    `json:"outcome"`
	Reason       Reason     `json:"reason,omitempty"`
	Status       Status     `json:"status,omitempty"`
	Key          string     `json:"key,omitempty"`
	Tool         string     `json:"tool"`
	Occurrence   int        `json:"occurrence,omitempty"`
	Attempt      int        `json:"attempt,omitempty"`
	RecordedAt   *time.Time `json:"recorded_at,omitempty"`
	SettledAt    *time.Time `json:"settled_at,omitempty"`
	Differs      []string   `json:"differs,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
}

// visit is one call on its way through the guard.
type visit struct {
	Call
	ctx     context.Context
	args    any
	id      keyderive.Identity
	frozen  string
	entity  string
	arrived uint64
	until   time.Time // how long the caller waits
	would   *Verdict  // observe mode: what would have been answered
}

// Do answers one call: with the tool's own answer, with the recorded one, or with what stands in the way. It
// returns within the tool's answer_within, and earlier when ctx ends; an attempt once begun goes on without the caller.
func (g *Guard) Do(ctx context.Context, c Call) *Result {
	v := &visit{Call: c, ctx: ctx}
	v.Facts.Tenant = cmpOr(v.Facts.Tenant, "default")
	v.Facts.Workflow = cmpOr(v.Facts.Workflow, "default")
	if len(v.Arguments) == 0 {
		v.Arguments = json.RawMessage("{}")
	}
	if refusal := g.admit(v); refusal != nil {
		return refusal
	}
	if v.Tool.Effective == registry.Read {
		return g.read(v, nil)
	}
	in := registry.Input{Arguments: v.args, Facts: v.Facts, Tool: v.Tool.Action()}
	if v.Tool.Reads(in) {
		return g.read(v, nil)
	}
	return g.guard(v)
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// admit checks what needs no ledger. It returns the refusal, or nil.
func (g *Guard) admit(v *visit) *Result {
	refuse := func(r Reason, what string) *Result {
		if g.observe {
			return g.read(v, &Verdict{Outcome: Blocked, Reason: r, Tool: v.Tool.Action()})
		}
		return g.refuse(v, r, what)
	}
	if v.Tool.Effective == registry.Deny {
		return refuse(ReasonDenied, "")
	}
	args, err := keyderive.Parse(v.Arguments)
	if v.Tool.Effective == registry.Read {
		v.args = args
		return nil // a read goes to its server as it is
	}
	if err != nil {
		return refuse(ReasonInvalidArguments, plain(err))
	}
	v.args = args
	in := registry.Input{Arguments: v.args, Facts: v.Facts, Tool: v.Tool.Action()}
	if v.Tool.Reads(in) {
		return nil
	}
	if len(v.Conflict) > 0 {
		return refuse(ReasonContextConflict, strings.Join(v.Conflict, ", "))
	}
	if len(v.Missing) > 0 {
		return refuse(ReasonContextRequired, strings.Join(v.Missing, ", "))
	}
	if err := v.Tool.Validate(args); err != nil {
		return refuse(ReasonInvalidArguments, plain(err))
	}
	v.id, err = v.Tool.Deriver.Derive(v.Tool.Action(), v.Facts, args)
	if err != nil {
		return refuse(ReasonContextRequired, plain(err))
	}
	sum := sha256.Sum256(v.Arguments)
	v.frozen = hex.EncodeToString(sum[:])
	v.entity = v.Tool.Entity(args)
	return nil
}

// guard is the way of every call that writes: survey, decide, act, until there is an answer.
func (g *Guard) guard(v *visit) *Result {
	wait := v.Tool.Policy.AnswerWithin
	if wait == 0 {
		wait = registry.DefaultAnswerWithin
	}
	v.until = time.Now().Add(wait)
	r := g.rooms.enter(v.room())
	defer g.rooms.leave(r)
	v.arrived = g.arrivals.Add(1)

	for {
		r.Lock()
		s, seq, err := g.survey(v)
		if err != nil {
			r.Unlock()
			return g.unavailable(v, err)
		}
		d := decide(s)
		if f := r.end(d.op); f != nil && f.out.seq >= v.arrived && d.digest == f.out.op.Digest && !s.idempotent {
			r.Unlock()
			return g.landed(v, f, false) // it came while that attempt was on its way
		}
		if g.observe && d.act != actDispatch {
			r.Unlock()
			return g.read(v, g.would(v, d))
		}
		switch d.act {
		case actAnswer:
			r.Unlock()
			return g.answer(v, d)
		case actDispatch:
			f, err := g.dispatch(v, s, d, seq)
			r.Unlock()
			switch {
			case isConflict(err):
				continue
			case err != nil:
				return g.unavailable(v, err)
			}
			return g.await(v, f, true)
		case actJoin:
			f := g.flightOf(r, d.op)
			r.Unlock()
			if f == nil {
				return g.answer(v, decision{op: d.op, digest: d.digest, outcome: Pending, reason: ReasonInProgress})
			}
			return g.join(v, f)
		case actQueue:
			f := g.flightOf(r, d.op)
			r.Unlock()
			if f == nil || !g.sit(v, f.done, time.Time{}) {
				return g.answer(v, decision{op: d.op, digest: d.digest, outcome: Pending, reason: ReasonInProgress})
			}
		case actWait:
			f := g.started(d.op.Key)
			r.Unlock()
			if d.at.After(v.until) || !g.sit(v, f, d.at) {
				return g.answer(v, decision{op: d.op, digest: d.digest, outcome: Pending, reason: ReasonReconciling, at: d.at})
			}
		}
	}
}

// room names what only one call at a time may decide about.
func (v *visit) room() string {
	return roomOf(v.Tool.Effective, v.Facts, v.Tool.Action(), v.id.Subject, v.entity)
}

func roomOf(e registry.Effect, f keyderive.Facts, action, subject, entity string) string {
	if e == registry.Idempotent {
		return lane("i", f, action, entity)
	}
	return lane("s", f, action, subject)
}

// lane is a name made of parts that cannot run into each other.
func lane(kind string, f keyderive.Facts, parts ...string) string {
	text, _ := json.Marshal(append([]string{kind, f.Tenant, f.Workflow}, parts...))
	return string(text)
}

// flightOf finds the attempt that a record says is on its way, also if it landed meanwhile.
func (g *Guard) flightOf(r *room, op *Operation) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[op.Key]; f != nil {
		return f
	}
	return r.end(op)
}

// started returns a channel that is closed when an attempt of the operation that is on its way now ends; nil if none is.
func (g *Guard) started(key string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[key]; f != nil {
		return f.done
	}
	return nil
}

// sit waits for done or until at, whichever is first, but no longer than the caller does. It reports whether to go on.
func (g *Guard) sit(v *visit, done <-chan struct{}, at time.Time) bool {
	end := time.NewTimer(time.Until(v.until))
	defer end.Stop()
	var wake <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		wake = t.C
	}
	select {
	case <-done:
		return true
	case <-wake:
		return true
	case <-end.C:
		return false
	case <-v.ctx.Done():
		return false
	}
}

// survey reads what the call may have to meet, and the sequence as of which it was read.
func (g *Guard) survey(v *visit) (*situation, uint64, error) {
	t, f, action := v.Tool, v.Facts, v.Tool.Action()
	s := &situation{
		now: time.Now(), id: v.id, facts: f, frozen: v.frozen, input: v.Input != nil,
		idempotent: t.Effective == registry.Idempotent, entity: v.entity,
		repeat: t.Policy.RepeatAfter, window: t.Policy.DownstreamKey.Window,
	}
	page, err := g.operations(v.ctx, Query{Tenant: f.Tenant, Intent: v.id.Intent, Limit: 1})
	if err != nil {
		return nil, 0, err
	}
	seq := page.Seq
	if len(page.Operations) > 0 {
		s.own = met{page.Operations[0], v.id.MaterialDigest}
		if _, material := v.id.Key(s.own.op.Occurrence); string(material) != string(s.own.op.Material) {
			return nil, 0, errCollision
		}
	}
	past := t.past(action, f, v.args)
	for _, id := range past {
		if s.own.op != nil {
			break
		}
		page, err := g.operations(v.ctx, Query{Tenant: f.Tenant, Intent: id.Intent, Limit: 1})
		if err != nil {
			return nil, 0, err
		}
		if len(page.Operations) > 0 && (id.Class.Strict() || page.Operations[0].listed()) {
			s.own = met{page.Operations[0], id.MaterialDigest}
		}
	}
	if index := v.callIndex(); index != "" {
		page, err := g.operations(v.ctx, Query{Tenant: f.Tenant, Call: index})
		if err != nil {
			return nil, 0, err
		}
		if len(page.Operations) > 0 {
			s.repeated = page.Operations[0]
		}
	}
	if err := g.surveyOthers(v, s, past); err != nil {
		return nil, 0, err
	}
	if op := s.own.op; op != nil && op.Status == StatusSucceeded && !s.idempotent {
		if err := g.surveyWrites(v, s, op); err != nil {
			return nil, 0, err
		}
	}
	return s, seq, nil
}

// surveyOthers reads the open operations of the same target, and those that share a value with the call.
func (g *Guard) surveyOthers(v *visit, s *situation, past []keyderive.Identity) error {
	q := Query{Tenant: v.Facts.Tenant, Open: true, Workflow: v.Facts.Workflow, Action: v.Tool.Action()}
	if len(past) == 0 && !s.idempotent {
		q.Subject = v.id.Subject
	}
	page, err := g.operations(v.ctx, q)
	if err != nil {
		return err
	}
	for _, op := range page.Operations {
		switch {
		case !op.listed():
		case s.idempotent:
			if op.Entity == v.entity {
				s.others = append(s.others, met{op, v.id.MaterialDigest})
			}
		case op.Definition == v.id.Definition:
			if op.Subject == v.id.Subject {
				s.others = append(s.others, met{op, v.id.MaterialDigest})
			}
		default:
			if m, ok := g.reread(v, op, past); ok {
				s.others = append(s.others, m)
			}
		}
	}
	if s.idempotent || s.id.Class == keyderive.ClassDeclared {
		return nil
	}
	q.Subject, q.Holding = "", true
	if page, err = g.operations(v.ctx, q); err != nil {
		return err
	}
	for _, op := range page.Operations {
		if !op.holding() || op.Definition == v.id.Definition && op.Subject == v.id.Subject {
			continue
		}
		_, args := g.arguments(v.ctx, op)
		if args == nil {
			continue
		}
		if pointer, shared := v.Tool.Shared(args, v.args); shared && !sameValue(args, v.args) {
			s.holding = append(s.holding, held{op, pointer})
		}
	}
	return nil
}

// reread looks at an operation of an earlier definition with today's eyes: does it act on the same target?
func (g *Guard) reread(v *visit, op *Operation, past []keyderive.Identity) (met, bool) {
	_, args := g.arguments(v.ctx, op)
	if args == nil {
		return met{}, false
	}
	today, err := v.Tool.Deriver.Derive(op.Action, op.Facts, args)
	if err != nil || today.Subject != v.id.Subject {
		return met{}, false
	}
	m := met{op: op}
	for _, id := range past {
		if id.Definition == op.Definition {
			m.digest = id.MaterialDigest
		}
	}
	return m, true
}

// surveyWrites reads what was dispatched since an operation was.
func (g *Guard) surveyWrites(v *visit, s *situation, op *Operation) error {
	if op.Class == keyderive.ClassTurn && !op.Delivered.IsZero() {
		page, err := g.operations(v.ctx, Query{Tenant: v.Facts.Tenant, Lane: lane("w", v.Facts, v.Tool.Server), After: op.Dispatched, Limit: 1})
		if err != nil {
			return err
		}
		s.written = len(page.Operations) > 0
	}
	if op.Class != keyderive.ClassDeclared && v.entity != "" {
		page, err := g.operations(v.ctx, Query{Tenant: v.Facts.Tenant, Lane: lane("e", v.Facts, v.entity), After: op.Dispatched})
		if err != nil {
			return err
		}
		s.renewed = slices.ContainsFunc(page.Operations, func(o *Operation) bool { return o.Status == StatusSucceeded && o.Key != op.Key })
	}
	return nil
}

// operations reads from the store and adds the deliveries that it cannot show yet.
func (g *Guard) operations(ctx context.Context, q Query) (Page, error) {
	page, err := g.store.Operations(context.WithoutCancel(ctx), q)
	if err != nil {
		return page, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, op := range page.Operations {
		if at, ok := g.marks[op.Key]; ok && op.Delivered.IsZero() {
			op.Delivered = at
		}
	}
	return page, nil
}

// arguments reads an operation's frozen bytes and their value; nil where they are gone.
func (g *Guard) arguments(ctx context.Context, op *Operation) (json.RawMessage, any) {
	body, err := g.store.Body(context.WithoutCancel(ctx), op.Key)
	if err != nil || body.Arguments == nil {
		return nil, nil
	}
	args, err := keyderive.Parse(body.Arguments)
	if err != nil {
		return nil, nil
	}
	return body.Arguments, args
}

// callIndex names this very call, where the runtime numbers calls: within the run or session, for this tool and these arguments.
func (v *visit) callIndex() string {
	within := cmpOr(v.Facts.Run, v.Facts.Session)
	if v.Facts.CallID == "" || within == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(lane("c", v.Facts, v.Tool.Action(), within, v.Facts.CallID, v.id.MaterialDigest)))
	return hex.EncodeToString(sum[:])
}

// deliver records that a caller has an operation's result.
func (g *Guard) deliver(op *Operation) func() {
	return sync.OnceFunc(func() {
		now := time.Now()
		g.mu.Lock()
		if _, marked := g.marks[op.Key]; marked {
			g.mu.Unlock()
			return
		}
		g.marks[op.Key] = now
		if len(g.marks) > 4096 {
			maps.DeleteFunc(g.marks, func(_ string, at time.Time) bool { return now.Sub(at) > 5*LazyDelay })
		}
		g.mu.Unlock()
		op := op.clone()
		op.Delivered = now
		w := g.write(op)
		w.Lazy = true
		w.Events = []Event{eventOf(op, EventDelivered, now)}
		if err := g.store.Commit(context.Background(), w); err != nil {
			g.log.Warn("a delivery was not recorded; the next identical call gets the result once more", "key", op.Key, "error", err)
		}
	})
}

// write is the write that stores op as it stands.
func (g *Guard) write(op *Operation) *Write {
	return &Write{Token: newToken(), Operation: op, Open: op.listed(), Holding: op.holding()}
}
