package drill

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

const (
	quick  = 500 * time.Millisecond // what a tool's timeout is in a drill; its other times shrink with it
	slow   = 8 * quick              // where that was too little for the machine
	settle = 400 * time.Millisecond // at most so long for what a lookup must wait
	person = "drill"
)

// stage is a scratch ledger with one tool on it, in front of a downstream that counts.
type stage struct {
	subject *Subject
	entry   *registry.Entry
	down    *downstream
	other   *registry.Entry // another write of the same server

	dir     string
	seal    *toolguard.Seal // of secrets, as long as the drill
	store   *badgerstore.Store
	guard   *toolguard.Guard
	tool    *toolguard.Tool
	calls   int
	process int
	log     *slog.Logger
}

// shrunk is a policy in which time runs faster, so that a drill takes seconds: what it says of the order of things stays.
func shrunk(p registry.Policy, to time.Duration) registry.Policy {
	timeout := cmp.Or(p.Timeout, registry.DefaultTimeout)
	by := min(1, float64(to)/float64(timeout))
	shrink := func(d time.Duration) time.Duration { return max(time.Duration(float64(d)*by), 1) }
	p.Timeout = shrink(timeout)
	p.AnswerWithin = max(shrink(cmp.Or(p.AnswerWithin, registry.DefaultAnswerWithin)), to/8)
	if p.DownstreamKey.Window > 0 {
		p.DownstreamKey.Window = shrink(p.DownstreamKey.Window)
	}
	p.Lookups = slices.Clone(p.Lookups)
	for i := range p.Lookups {
		l := &p.Lookups[i]
		l.Handler = unreachable
		if l.Settle > 0 {
			l.Settle = min(shrink(l.Settle), settle)
		}
	}
	return p
}

func newStage(ctx context.Context, s *Subject, pace time.Duration) (*stage, error) {
	t := s.Tool
	t.Policy = shrunk(t.Policy, pace)
	st := &stage{subject: s, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	t.Handler = func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		return st.down.handle(ctx, d)
	}
	var err error
	if st.seal, err = toolguard.NewSeal([]byte(rand.Text() + rand.Text())[:toolguard.SealKeySize]); err != nil {
		return nil, err
	}
	if st.entry, err = registry.Compile(t); err != nil {
		return nil, err
	}
	st.down = newDownstream(st.entry, t.Policy.DownstreamKey.Window)
	aside := newDownstream(st.entry, 0)
	if st.other, err = registry.Compile(registry.Tool{Server: t.Server, Name: "another write of the drill", Effect: registry.Write, EffectSource: "declared", Handler: aside.handle}); err != nil {
		return nil, err
	}
	if st.dir, err = os.MkdirTemp("", "toolguard-drill-"); err != nil {
		return nil, err
	}
	if err := st.open(ctx); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// open opens the ledger as a new process does.
func (st *stage) open(ctx context.Context) error {
	var err error
	if st.store, err = badgerstore.Open(st.dir, &badgerstore.Options{Log: st.log}); err != nil {
		return err
	}
	st.process++
	st.guard, err = toolguard.Open(ctx, st.store, &toolguard.Options{Observe: st.subject.Observe, Log: st.log, Process: fmt.Sprintf("drill-%d", st.process), Seal: st.seal})
	if err != nil {
		return err
	}
	st.tool, err = st.guard.Register(ctx, st.entry)
	return err
}

// leave gives the ledger up without waiting for anything.
func (st *stage) leave() error {
	if st.guard != nil {
		at, cancel := context.WithCancel(context.Background())
		cancel()
		_ = st.guard.Close(at) // as a process that dies: what is on its way stays so on record
	}
	if st.store == nil {
		return nil
	}
	store := st.store
	st.store = nil
	return store.Close()
}

// close removes everything.
func (st *stage) close() error {
	if st.down != nil {
		st.down.letGo()
	}
	return errors.Join(st.leave(), os.RemoveAll(st.dir))
}

// facts are what the runtime knows of the next call. again: the same piece of work is set off anew, so that all that a
// second delivery brings along is new; the event, the step and what is fixed stay.
func (st *stage) facts(again int) keyderive.Facts {
	st.calls++
	f := keyderive.Facts{CallID: fmt.Sprintf("drill-call-%d", st.calls), Session: fmt.Sprintf("drill-session-%d", again)}
	for name, to := range map[string]*string{
		"tenant": &f.Tenant, "workflow": &f.Workflow, "source_event": &f.SourceEvent, "request": &f.Request, "run": &f.Run, "step": &f.Step,
		"actor": &f.Actor, "workflow_version": &f.WorkflowVersion,
	} {
		fixed, declared := st.subject.Facts[name]
		switch {
		case !declared:
		case fixed != "":
			*to = fixed
		case name == "request", name == "run" && st.subject.has("source_event"):
			*to = fmt.Sprintf("drill-%s-%d", name, again)
		default:
			*to = "drill-" + name
		}
	}
	return f
}

// do makes one call.
func (st *stage) do(ctx context.Context, f keyderive.Facts, arguments json.RawMessage) *toolguard.Result {
	return st.guard.Do(ctx, toolguard.Call{Tool: st.tool, Arguments: arguments, Facts: f})
}

// send makes one call, and has it approved if it needs that.
func (st *stage) send(ctx context.Context, f keyderive.Facts, arguments json.RawMessage) (*toolguard.Result, error) {
	r := st.do(ctx, f, arguments)
	if r.Verdict.Reason != toolguard.ReasonApprovalRequired || st.subject.Observe {
		return r, nil
	}
	if err := st.decide(ctx, r, true); err != nil {
		return r, err
	}
	return st.do(ctx, f, arguments), nil
}

func (st *stage) decide(ctx context.Context, r *toolguard.Result, approve bool) error {
	name := person
	if a := st.entry.Policy.Approval; a != nil && len(a.Reviewers) > 0 {
		name = a.Reviewers[0]
	}
	_, err := toolguard.DecideApproval(ctx, st.store, toolguard.ApprovalVerdict{ID: r.Verdict.Approval, Approve: approve, By: toolguard.Person{Name: name}, Note: "rehearsed by the drill"})
	return err
}

// elsewhere has another tool of the server write something, in the same tenant and workflow.
func (st *stage) elsewhere(ctx context.Context) error {
	tool, err := st.guard.Register(ctx, st.other)
	if err != nil {
		return err
	}
	f := st.facts(0)
	st.guard.Do(ctx, toolguard.Call{Tool: tool, Facts: f}).Delivered()
	return nil
}

// rest waits until nothing more happens by itself: until the operation is decided, or all that the guard may do on its
// own had its time. It returns the operation as it stands then; nil where there is none.
func (st *stage) rest(ctx context.Context, key string) (*toolguard.Operation, error) {
	p := &st.entry.Policy
	wait := 2*p.Timeout + 1500*time.Millisecond
	if len(p.Lookups) > 0 {
		wait += settle
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		var op *toolguard.Operation
		page, err := st.store.Operations(ctx, toolguard.Query{Key: key})
		if err != nil {
			return nil, err
		}
		if len(page.Operations) > 0 {
			op = page.Operations[0]
		}
		if op == nil || op.Status.Final() || op.Status == toolguard.StatusEscalated && len(p.Lookups) == 0 {
			return op, nil
		}
		select {
		case <-tick.C:
		case <-over.C:
			return op, nil
		case <-ctx.Done():
			return op, ctx.Err()
		}
	}
}

// after waits until an attempt's deadline has passed.
func (st *stage) after(ctx context.Context) error {
	select {
	case <-time.After(st.entry.Policy.Timeout + 50*time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
