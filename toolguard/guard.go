package toolguard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
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
	store    Store
	log      *slog.Logger
	observe  bool
	process  string
	watching Watch
	seal     *Seal

	rooms    rooms
	marks    marks
	arrivals atomic.Uint64

	mu      sync.Mutex
	tools   map[string]*Tool
	flights map[string]*flight // by operation key
	watched map[string]*flight // attempts of other processes that callers wait for
	timers  map[string]*time.Timer
	sitting map[string]int           // calls that wait until they may send an operation again
	doubted map[string]int           // attempts whose record may be made yet, and which were not sent
	running sync.WaitGroup           // attempts whose outcome is not recorded
	looks   map[string]chan struct{} // rounds of lookups under way
	closing chan struct{}
	alive   context.Context // ends when the guard closes
	end     context.CancelFunc
}

// Options of [Open]. The zero value is good.
type Options struct {
	Observe bool         // dispatch everything, record what would have been done
	Log     *slog.Logger // nil: slog.Default
	Process string       // names this process in attempts; "": a random name
	Seal    *Seal        // keeps secret arguments; nil: no tool may have some
	Watch   Watch        // is told of calls and attempts
	// Alive reports whether the process of that name still lives: its attempts are its own business. nil: no other
	// process works on the ledger.
	Alive func(process string) bool
}

// Open returns a guard on a store, after it has recovered what earlier processes left: see [Recover]. The store
// stays the caller's to close, after [Guard.Close].
func Open(ctx context.Context, store Store, o *Options) (*Guard, error) {
	if o == nil {
		o = &Options{}
	}
	g := &Guard{
		store: store, log: o.Log, observe: o.Observe, process: o.Process, seal: o.Seal, watching: o.Watch,
		tools: map[string]*Tool{}, flights: map[string]*flight{}, watched: map[string]*flight{}, timers: map[string]*time.Timer{},
		doubted: map[string]int{}, sitting: map[string]int{}, looks: map[string]chan struct{}{}, closing: make(chan struct{}),
	}
	g.alive, g.end = context.WithCancel(context.Background())
	if g.log == nil {
		g.log = slog.Default()
	}
	if g.process == "" {
		g.process = rand.Text()
	}
	alive := func(process string) bool {
		return process == g.process || o.Alive != nil && o.Alive(process)
	}
	if err := Recover(ctx, store, alive); err != nil {
		g.end()
		return nil, err
	}
	go g.attend()
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
		g.end()
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

// visit is one call on its way through the guard.
type visit struct {
	Call
	ctx     context.Context // ends with the caller
	lasting context.Context // does not: for what is read, recorded and sent
	args    any
	id      keyderive.Identity
	hide    *registry.Redactor // its secrets; nil: its tool has none
	frozen  string
	entity  string
	room    string // names what only one call at a time may decide about
	arrived uint64
	until   time.Time // how long the caller waits

	continues bool // it brought what the tool had asked for
	unasked   bool // no call: an approval is acted on
}

// Do answers one call: with the tool's own answer, with the recorded one, or with what stands in the way. It
// returns within the tool's answer_within, and earlier when ctx ends; an attempt once begun goes on without the caller.
func (g *Guard) Do(ctx context.Context, c Call) *Result {
	ctx, done := g.watching.call(ctx, c)
	r := g.do(ctx, c)
	done(r)
	return r
}

func (g *Guard) do(ctx context.Context, c Call) *Result {
	v := &visit{Call: c, ctx: ctx, lasting: context.WithoutCancel(ctx)}
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

// misses are the declared facts without which the call is not sent. Who asks is one of them where a person has to
// approve: otherwise nobody could tell whether it is the one who asked.
func (v *visit) misses(in registry.Input) []string {
	if v.Tool.NeedsApproval(in) {
		return v.Missing
	}
	return slices.DeleteFunc(slices.Clone(v.Missing), func(name string) bool { return name == "actor" })
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
	if err != nil && !json.Valid(v.Arguments) {
		return g.refuse(v, ReasonInvalidArguments, plain(err)) // there is no form in which it could be sent, or observed
	}
	v.args = args
	if v.hide = v.Tool.Redactor(args); v.hide != nil {
		g.seal.remember(v.hide)
		if shows(v.hide, &v.Facts) {
			return refuse(ReasonInvalidArguments, "the value of a secret argument came as a fact of its work too, and those are recorded as they are")
		}
	}
	if v.Tool.Effective == registry.Read {
		return nil // a read goes to its server as it is
	}
	if err != nil {
		return refuse(ReasonInvalidArguments, plain(err))
	}
	in := registry.Input{Arguments: v.args, Facts: v.Facts, Tool: v.Tool.Action()}
	if v.Tool.Reads(in) {
		return nil
	}
	if len(v.Conflict) > 0 {
		return refuse(ReasonContextConflict, strings.Join(v.Conflict, ", "))
	}
	if missing := v.misses(in); len(missing) > 0 {
		return refuse(ReasonContextRequired, strings.Join(missing, ", "))
	}
	if err := v.Tool.Validate(args); err != nil {
		return refuse(ReasonInvalidArguments, plain(err))
	}
	if v.Tool.locked != nil && v.hide != nil {
		args, _ = keyderive.Parse(v.hide.Arguments(args)) // as the record shows them
	}
	v.id, err = v.Tool.deriver.Derive(v.Tool.Action(), v.Facts, args)
	if err != nil {
		return refuse(ReasonContextRequired, plain(err))
	}
	if v.hide != nil {
		if _, material := v.id.Key(1); v.hide.Shows(string(material)) {
			v.id = keyderive.Identity{}
			return refuse(ReasonInvalidArguments, "the value of a secret argument stands in the target too, and that is recorded as it is")
		}
	}
	switch {
	case v.Tool.locked != nil && g.observe:
		return g.read(v, &Verdict{Outcome: Blocked, Reason: ReasonStoreUnavailable, Tool: v.Tool.Action()})
	case v.Tool.locked != nil:
		return g.locked(v)
	}
	v.frozen = g.hash(v.Tool, v.Arguments)
	v.entity = v.Tool.Entity(args)
	v.room = roomOf(v.Tool.Effective, v.Facts, v.Tool.Action(), v.id.Subject, v.entity)
	return nil
}

// guard is the way of every call that writes: survey, decide, act, until there is an answer.
func (g *Guard) guard(v *visit) *Result {
	wait := v.Tool.Policy.AnswerWithin
	if wait == 0 {
		wait = registry.DefaultAnswerWithin
	}
	v.until = time.Now().Add(wait)
	r := g.rooms.enter(v.room)
	defer g.rooms.leave(r)
	v.arrived = g.arrivals.Add(1)

	looked := uint64(0) // revision that the call had looked up
	for tries := 0; ; tries++ {
		r.Lock()
		var s situation
		seq, err := g.survey(v, &s)
		if err != nil {
			r.Unlock()
			return g.unavailable(v, err)
		}
		d := decide(&s)
		if f := g.rooms.end(r, d.op); f != nil && f.out.seq >= v.arrived && d.digest == f.out.op.Digest && !s.idempotent {
			r.Unlock()
			return g.landed(v, f, false) // it came while that attempt was on its way
		}
		if f := g.air(d.op); f != nil && d.act == actDispatch {
			d.act = actJoin // its end is recorded, and those who wait are being told
		}
		if g.observe && d.act != actDispatch {
			r.Unlock()
			return g.read(v, g.would(v, d))
		}
		if d.act == actDispatch || d.act == actJoin || d.outcome == Replayed {
			d.op, err = g.take(v, d.op)
		}
		if err != nil {
			r.Unlock()
			if isConflict(err) && tries < maxTries && v.ctx.Err() == nil {
				continue
			}
			return g.unavailable(v, err)
		}
		switch d.act {
		case actAnswer:
			if d.reason == ReasonApprovalRequired {
				err = g.joinRequest(v, d.op)
			}
			r.Unlock()
			switch {
			case isConflict(err) && tries < maxTries:
				continue
			case err != nil:
				return g.unavailable(v, err)
			}
			return g.answer(v, d)
		case actAsk:
			answer, err := g.request(v, &s, d, seq)
			r.Unlock()
			switch {
			case isConflict(err) && tries < maxTries && v.ctx.Err() == nil:
				continue
			case err != nil:
				return g.unavailable(v, err)
			}
			return answer
		case actLook:
			r.Unlock()
			// The same revision again: that round could not be recorded, and the next one may not be either.
			if d.op.Rev == looked || d.at.After(v.until) || !g.sitFor(v, d.op.Key, d.at) || !g.sit(v, g.look(v.Tool, d.op.Key), time.Time{}) {
				return g.reconciling(v, d.op)
			}
			looked = d.op.Rev
		case actDispatch:
			f, err := g.dispatch(v, &s, d, seq)
			r.Unlock()
			switch {
			case isConflict(err) && tries < maxTries && v.ctx.Err() == nil:
				continue
			case err != nil:
				return g.unavailable(v, err)
			}
			if answer := g.await(v, f, true); answer != nil {
				return answer
			}
			defer g.rise(f.out.op.Key)
			v.arrived = g.arrivals.Add(1) // that attempt is behind it
		case actJoin:
			f := g.flightOf(r, d.op)
			r.Unlock()
			return g.join(v, f)
		case actQueue:
			f := g.flightOf(r, d.op)
			r.Unlock()
			if _, question := f.question(); question != nil && d.digest == d.op.Digest {
				return g.join(v, f) // or it would wait for what it may be bringing
			}
			if !g.sit(v, f.done, time.Time{}) {
				return g.answer(v, decision{op: d.op, digest: d.digest, outcome: Pending, reason: ReasonInProgress})
			}
		case actWait:
			r.Unlock()
			if d.at.After(v.until) || !g.sitFor(v, d.op.Key, d.at) {
				return g.reconciling(v, d.op)
			}
		}
	}
}

// maxTries is how often a call decides again because somebody else wrote first. More means that the ledger is damaged.
const maxTries = 100

// roomOf names what only one call at a time may decide about.
func roomOf(e registry.Effect, f keyderive.Facts, action, subject, entity string) string {
	if e == registry.Idempotent {
		return lane("i", f, action, entity)
	}
	return lane("s", f, action, subject)
}

// room names where an operation is decided about.
func (op *Operation) room() string {
	return roomOf(op.Effect, op.Facts, op.Action, op.Subject, op.Entity)
}

// lane is a name made of parts that cannot run into each other.
func lane(kind string, f keyderive.Facts, parts ...string) string {
	var room [256]byte
	text := keyderive.AppendString(append(room[:0], '['), kind)
	text = keyderive.AppendString(append(text, ','), f.Tenant)
	text = keyderive.AppendString(append(text, ','), f.Workflow)
	for _, part := range parts {
		text = keyderive.AppendString(append(text, ','), part)
	}
	return string(append(text, ']'))
}

// flightOf finds the attempt that a record says is on its way: here, landed meanwhile, or in another process.
func (g *Guard) flightOf(r pass, op *Operation) *flight {
	if f := g.air(op); f != nil {
		return f
	}
	if f := g.rooms.end(r, op); f != nil {
		return f
	}
	return g.elsewhere(op)
}

// air returns the attempt of an operation that is on its way in this process; nil if none is.
func (g *Guard) air(op *Operation) *flight {
	if op == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flights[op.Key]
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

// sitFor waits until a call may send an operation again. Meanwhile that is the call's to do, and not pickUp's.
func (g *Guard) sitFor(v *visit, key string, at time.Time) bool {
	g.mu.Lock()
	g.sitting[key]++
	g.mu.Unlock()
	defer g.rise(key)
	return g.sit(v, nil, at)
}

// rise ends what a count in sitting began.
func (g *Guard) rise(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sitting[key]--; g.sitting[key] == 0 {
		delete(g.sitting, key)
	}
}

// deliver records that a caller has an operation's result.
func (g *Guard) deliver(op *Operation) func() {
	var told atomic.Bool
	return func() {
		now := time.Now()
		if told.Swap(true) || !g.marks.add(op.Key, now) {
			return
		}
		op := op.clone()
		op.Delivered = now
		w := g.write(op)
		w.Lazy = true
		w.Events = []Event{eventOf(op, EventDelivered, now)}
		if err := g.store.Commit(context.Background(), w); err != nil {
			g.log.Warn("a delivery was not recorded; the next identical call gets the result once more", "key", op.Key, "error", err)
		}
	}
}

// write is the write that stores op as it stands.
func (g *Guard) write(op *Operation) *Write {
	w := &Write{Token: newToken()}
	op.list(w)
	return w
}
