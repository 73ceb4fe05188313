package toolguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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

// world is one guard on a memory store, and a downstream that does what a test tells it.
type world struct {
	t     testing.TB
	store *storetest.Memory
	seam  *seam
	g     *toolguard.Guard
	past  []*toolguard.Guard        // all there were, the dead ones too
	alive func(process string) bool // nil: there are no other processes
	tools map[string]*toolguard.Tool
	specs []registry.Tool
	seal  *toolguard.Seal // keeps secret arguments; nil: no tool has some
	log   strings.Builder
	lines slog.Handler // into log: one for all guards, so that the dead and the living do not write at once

	mu       sync.Mutex
	effects  []string // "tool arguments" of every effect the downstream had
	behave   []behaviour
	calls    int
	sentKeys []string
}

// behaviour is what the downstream does with one attempt: it may have the effect, and it may answer.
type behaviour func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error)

// in runs a test with its own time.
func in(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		test(w)
		w.close()
		synctest.Wait()
	})
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, store: storetest.NewMemory()}
	w.open()
	return w
}

// seam is a store whose writes can be stopped, right before and right after they are applied.
type seam struct {
	toolguard.Store
	at   func(after bool)
	away func(wr *toolguard.Write, apply func() error) error // in the place of the write
	read func(q toolguard.Query)
}

func (s *seam) Operations(ctx context.Context, q toolguard.Query) (toolguard.Page, error) {
	if !q.Due && s.read != nil { // what the guard looks for by itself every second is none of a test's business
		s.read(q)
	}
	return s.Store.Operations(ctx, q)
}

func (s *seam) Commit(ctx context.Context, wr *toolguard.Write) error {
	if s.at != nil {
		s.at(false)
	}
	var err error
	if apply := func() error { return s.Store.Commit(ctx, wr) }; s.away != nil {
		err = s.away(wr, apply)
	} else {
		err = apply()
	}
	if s.at != nil {
		s.at(true)
	}
	return err
}

func (w *world) open() {
	w.t.Helper()
	w.seam = &seam{Store: w.store}
	if w.lines == nil {
		w.lines = slog.NewTextHandler(&w.log, nil)
	}
	g, err := toolguard.Open(context.Background(), w.seam, &toolguard.Options{Alive: w.alive, Seal: w.seal, Log: slog.New(w.lines)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.past = append(w.past, g)
	w.g, w.tools = g, map[string]*toolguard.Tool{}
	for _, s := range w.specs {
		w.register(s)
	}
}

func (w *world) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()
	w.g.Close(ctx)
	w.store.Close()
	cancel()
	for _, g := range w.past {
		g.Close(ctx)
	}
}

// crash kills the process: what it had in memory is gone, and its attempts go nowhere.
func (w *world) crash() {
	w.store = w.store.Reopen()
	w.open()
}

func (w *world) tool(spec registry.Tool) {
	w.t.Helper()
	w.specs = append(w.specs, spec)
	w.register(spec)
}

// change replaces a tool's policy or schema, as a new configuration or upstream would.
func (w *world) change(name string, f func(*registry.Tool)) {
	w.t.Helper()
	for i := range w.specs {
		if w.specs[i].Name == name {
			f(&w.specs[i])
			w.register(w.specs[i])
		}
	}
}

func (w *world) register(spec registry.Tool) {
	w.t.Helper()
	if spec.Server == "" {
		spec.Server = "srv"
	}
	if spec.Effect == "" {
		spec.Effect = registry.Write
	}
	spec.EffectSource = "declared"
	name := spec.Name
	spec.Handler = func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		w.mu.Lock()
		w.calls++
		w.sentKeys = append(w.sentKeys, d.Key)
		b := done("ok")
		if len(w.behave) > 0 {
			b, w.behave = w.behave[0], w.behave[1:]
		}
		w.mu.Unlock()
		return b(w, ctx, d, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.effects = append(w.effects, name+" "+string(d.Arguments))
		})
	}
	e, err := registry.Compile(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	tool, err := w.g.Register(context.Background(), e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.tools[name] = tool
}

// next says what the downstream does with the coming attempts; after these it does what it is asked and says "ok".
func (w *world) next(b ...behaviour) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behave = append(w.behave, b...)
}

func text(s string, isError bool) registry.Answer {
	r, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}, "isError": isError})
	return registry.Answer{Result: r}
}

// done has the effect and says so.
func done(says string) behaviour {
	return func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
		effect()
		return text(says, false), nil
	}
}

// slow has the effect after a time, and then says so.
func slow(wait time.Duration) behaviour {
	return func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
		time.Sleep(wait)
		effect()
		return text("ok", false), nil
	}
}

// lost has the effect, and the answer does not come back.
func lost(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
	effect()
	return registry.Answer{}, fmt.Errorf("connection reset")
}

// dropped has no effect, and no answer comes back.
func dropped(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
	return registry.Answer{}, fmt.Errorf("connection reset")
}

// refused says no.
func refused(says string) behaviour {
	return func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
		return text(says, true), nil
	}
}

// unsent does not reach the downstream.
func unsent(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
	return registry.Answer{}, fmt.Errorf("dial: %w", registry.ErrNotSent)
}

type option func(*toolguard.Call)

func event(e string) option   { return func(c *toolguard.Call) { c.Facts.SourceEvent = e } }
func request(r string) option { return func(c *toolguard.Call) { c.Facts.Request = r } }
func run(r string) option     { return func(c *toolguard.Call) { c.Facts.Run = r } }
func tenant(n string) option  { return func(c *toolguard.Call) { c.Facts.Tenant = n } }
func callID(session, id string) option {
	return func(c *toolguard.Call) { c.Facts.Session, c.Facts.CallID = session, id }
}

// send makes a call and does not tell whether its answer arrived.
func (w *world) send(name, args string, opts ...option) *toolguard.Result {
	w.t.Helper()
	return w.sendCtx(context.Background(), name, args, opts...)
}

func (w *world) sendCtx(ctx context.Context, name, args string, opts ...option) *toolguard.Result {
	w.t.Helper()
	c := toolguard.Call{Tool: w.tools[name], Arguments: json.RawMessage(args), Facts: keyderive.Facts{}}
	for _, o := range opts {
		o(&c)
	}
	if c.Tool == nil {
		w.t.Fatalf("no tool %s", name)
	}
	return w.g.Do(ctx, c)
}

// call makes a call and takes delivery of its answer.
func (w *world) call(name, args string, opts ...option) *toolguard.Result {
	w.t.Helper()
	r := w.send(name, args, opts...)
	r.Delivered()
	return r
}

// giveUp makes a call whose caller leaves after a time; the attempt goes on.
func (w *world) giveUp(after time.Duration, name, args string, opts ...option) *toolguard.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	return w.sendCtx(ctx, name, args, opts...)
}

// want checks what a call got: "outcome", "outcome/reason" or "outcome/reason/status".
func (w *world) want(r *toolguard.Result, want string) {
	w.t.Helper()
	v := r.Verdict
	got := strings.Join([]string{string(v.Outcome), string(v.Reason), string(v.Status)}, "/")
	if got != want && !strings.HasPrefix(got, want+"/") {
		w.t.Errorf("the call got %s, want %s\n%s", got, want, r.Text)
	}
}

// count is how many effects the downstream had.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.effects)
}

// had checks how many effects the downstream had.
func (w *world) had(n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.effects) != n {
		w.t.Errorf("the downstream had %d effects, want %d:\n%s", len(w.effects), n, strings.Join(w.effects, "\n"))
	}
}

// sent checks how many attempts reached the tool's handler.
func (w *world) sent(n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls != n {
		w.t.Errorf("%d attempts were dispatched, want %d", w.calls, n)
	}
}

// op returns the stored operation with that key.
func (w *world) op(key string) *toolguard.Operation {
	w.t.Helper()
	page, err := w.store.Operations(context.Background(), toolguard.Query{Key: key})
	if err != nil || len(page.Operations) != 1 {
		w.t.Fatalf("operation %s: %v, %d found", key, err, len(page.Operations))
	}
	return page.Operations[0]
}

func (w *world) resolve(key, verdict string, force bool) error {
	_, err := toolguard.Resolve(context.Background(), w.store, toolguard.Resolution{Key: key, Verdict: verdict, By: toolguard.Person{Name: "dana"}, Force: force})
	return err
}

func (w *world) repeat(key string, force bool) error {
	_, err := toolguard.Repeat(context.Background(), w.store, toolguard.RepeatOrder{Key: key, By: toolguard.Person{Name: "dana"}, Force: force})
	return err
}

// wait lets time pass.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
