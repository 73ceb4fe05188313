package sharedstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/sharedstore"
	"toolguard.dev/toolguard"
)

const events = 400 // that workers work on; several of them on each

// work calls a guarded tool for one source event after the other, from eight goroutines, and begins anew when it is
// through. The tool appends the operation's key to the file effects. For every answer a line is printed: "fresh KEY",
// "replayed KEY", …
func work(dir, effects, name string) error {
	ctx := context.Background()
	s, err := sharedstore.Open(ctx, dir, recovering(dir))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(effects, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	g, tool, err := guarded(s, func(d *registry.Dispatch) error {
		_, err := file.WriteString(d.Operation + "\n")
		return err
	})
	if err != nil {
		return err
	}
	var start int
	fmt.Sscan(name, &start)
	for lane := range 8 {
		go func() {
			for i := start*37 + lane; ; i += 8 {
				n := i % events
				r := g.Do(ctx, payment(tool, n, fmt.Sprintf("event %d of round %d", n, i/events)))
				os.Stdout.WriteString(fmt.Sprintf("%s %s %s\n", r.Verdict.Outcome, r.Verdict.Key, r.Verdict.Reason))
				r.Delivered()
			}
		}()
	}
	select {}
}

// guarded is a guard on a store with one tool, that has an effect and says so.
func guarded(s *sharedstore.Store, effect func(*registry.Dispatch) error) (*toolguard.Guard, *toolguard.Tool, error) {
	ctx := context.Background()
	g, err := toolguard.Open(ctx, s, &toolguard.Options{Log: quiet, Process: s.Process(), Alive: s.Alive})
	if err != nil {
		return nil, nil, err
	}
	entry, err := registry.Compile(registry.Tool{
		Server: "books", Name: "pay", Effect: registry.Write, EffectSource: "declared",
		Policy: registry.Policy{OncePer: []string{"source_event", "/invoice_id"}, Timeout: 20 * time.Second, AnswerWithin: 10 * time.Second},
		Handler: func(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
			if err := effect(d); err != nil {
				return registry.Answer{}, err
			}
			return registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"paid"}]}`)}, nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	tool, err := g.Register(ctx, entry)
	return g, tool, err
}

func payment(tool *toolguard.Tool, n int, event string) toolguard.Call {
	return toolguard.Call{
		Tool: tool, Arguments: json.RawMessage(fmt.Sprintf(`{"invoice_id":"INV-%d","amount":900}`, n)),
		Facts: keyderive.Facts{SourceEvent: event},
	}
}

// crew are workers on one ledger, and what they said.
type crew struct {
	*testing.T
	dir, effects string
	workers      []*child

	mu     sync.Mutex
	done   map[string]bool // keys acknowledged as done
	counts map[string]int  // of outcomes
	lines  int
}

func newCrew(t *testing.T) *crew {
	dir := t.TempDir()
	return &crew{T: t, dir: dir, effects: dir + "/effects", done: map[string]bool{}, counts: map[string]int{}}
}

func (c *crew) hire() *child {
	w := start(c.T, "work", c.dir, c.effects, fmt.Sprint(len(c.workers)))
	c.workers = append(c.workers, w)
	go func() {
		for {
			line, err := w.out.ReadString('\n')
			if err != nil {
				return // what a dying process did not print whole does not count
			}
			f := strings.Fields(line)
			c.mu.Lock()
			c.lines++
			c.counts[strings.Join(append(f[:1:1], f[min(2, len(f)):]...), "/")]++
			if len(f) > 1 && (f[0] == "fresh" || f[0] == "replayed") {
				c.done[f[1]] = true
			}
			c.mu.Unlock()
		}
	}()
	return w
}

func (c *crew) answers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

// working waits for so many answers more.
func (c *crew) working(n int, within time.Duration) {
	c.Helper()
	n += c.answers()
	eventually(c.T, within, fmt.Sprintf("%d answers", n), func() bool { return c.answers() >= n })
}

// owner is the worker that has the ledger open, if it is one.
func (c *crew) owner() *child {
	text, _ := os.ReadFile(c.dir + "/LOCK.toolguard")
	pid, _, _ := strings.Cut(string(text), "\n")
	for _, w := range c.workers {
		if fmt.Sprint(w.cmd.Process.Pid) == pid {
			return w
		}
	}
	return nil
}

// audit kills what is left of the crew and opens what it leaves.
func (c *crew) audit() {
	c.Helper()
	for _, w := range c.workers {
		w.kill()
	}
	ctx := context.Background()
	s := openWith(c.T, c.dir, recovering(c.dir))
	left := func() (ops []*toolguard.Operation) {
		page, err := s.Operations(ctx, toolguard.Query{Open: true})
		if err != nil {
			c.Fatal(err)
		}
		return slices.DeleteFunc(page.Operations, func(op *toolguard.Operation) bool { return op.Status != toolguard.StatusDispatching })
	}
	eventually(c.T, 10*time.Second, "nothing of the dead is on its way", func() bool { return len(left()) == 0 })
	text, err := os.ReadFile(c.effects)
	if err != nil {
		c.Fatal(err)
	}
	effects := map[string]int{}
	for key := range strings.Lines(string(text)) {
		if effects[key]++; effects[key] > 1 {
			c.Errorf("%d effects of %s", effects[key], key)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.done {
		page, err := s.Operations(ctx, toolguard.Query{Key: key})
		if err != nil || len(page.Operations) != 1 || page.Operations[0].Status != toolguard.StatusSucceeded {
			c.Fatalf("%s was acknowledged and is lost: %v, %v", key, page.Operations, err)
		}
		if effects[key+"\n"] != 1 {
			c.Errorf("%s was acknowledged with %d effects", key, effects[key+"\n"])
		}
	}
	v, err := toolguard.Verify(toolguard.Events(ctx, s))
	if err != nil || v.Break != "" {
		c.Errorf("the audit: %v, %s", err, v.Break)
	}
	c.Logf("%d answers %v, %d keys done, %d effects", c.lines, c.counts, len(c.done), len(effects))
	if c.counts["blocked/store_unavailable"] > 0 {
		c.Errorf("%d calls were told that the ledger does not answer", c.counts["blocked/store_unavailable"])
	}
}
