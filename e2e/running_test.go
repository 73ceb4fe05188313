package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

const long = "trigger-long-running-operation"

// TestProgressReachesTheClient: under the client's own token, while the tool runs, passed through and guarded.
func TestProgressReachesTheClient(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, as := range []string{"read", "write"} {
			t.Run(as+"/"+era, func(t *testing.T) {
				t.Parallel()
				tp := tapped(t, everything(t))
				g := wrap(t, tp.up)
				if as == "write" {
					g = serve(t, tp.up, "tools: {everything/*: {effect: write}}")
				}
				c := g.start(t, era)
				h := tp.holdAnswer(long)
				id := c.send("tools/call", map[string]any{
					"name":      long,
					"arguments": args{"duration": 0.5, "steps": 5},
					"_meta":     map[string]any{"progressToken": "mine-" + as},
				})
				for step := 1; step <= 5; step++ {
					c.waitNote(fmt.Sprintf("progress %d of 5 arrives", step), func(n note) bool {
						return n.Method == "notifications/progress" && n.Params["progressToken"] == "mine-"+as &&
							fmt.Sprint(n.Params["progress"]) == fmt.Sprint(step) && fmt.Sprint(n.Params["total"]) == "5"
					})
				}
				h.at()
				if c.answered(id) {
					t.Error("answered before the tool was")
				}
				h.let(pass)
				got := c.result(id)
				if as == "write" {
					got.is("fresh", "")
				}
				sameJSON(t, "guarded and own", got.own(), tp.last(long).response["result"])
				if n := len(c.noted("notifications/progress")); n != 5 {
					t.Errorf("%d progress notifications, want 5", n)
				}
				c.end()
				tp.executed(long, 1)
			})
		}
	}
}

// TestCancelOfAReadIsForwarded: nobody needs the answer of a read that was given up, so the server is told.
func TestCancelOfAReadIsForwarded(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			c := wrap(t, tp.up).start(t, era)
			h := tp.holdCall(long)
			id := c.sendCall(long, args{"duration": 0.2, "steps": 1})
			h.at()
			c.cancel(id)
			tp.until(t, "the server hears of the cancel", func() bool {
				for _, n := range tp.notes {
					if n.Method == "notifications/cancelled" {
						return true
					}
				}
				return false
			})
			h.let(drop)
			if r := c.call("echo", args{"message": "still there"}); r.isError {
				t.Errorf("a call after the cancel: %s", r)
			}
			c.end()
		})
	}
}

// TestCancelOfAWriteDoesNotStopIt: it may have begun, and only its answer tells; the next session gets it.
func TestCancelOfAWriteDoesNotStopIt(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			g := serve(t, tp.up, "tools: {everything/*: {effect: write}}")
			c := g.start(t, era)
			h := tp.holdCall(long)
			arguments := args{"duration": 0.5, "steps": 2}
			id := c.sendCall(long, arguments)
			h.at()
			c.cancel(id)
			c.list() // the cancel has been read
			h.let(pass)
			tp.until(t, "the tool has been executed", func() bool { return tp.calls[0].answered })
			c.end()
			c = g.start(t, era)
			replay := c.call(long, arguments).is("replayed", "done")
			sameJSON(t, "the replayed content", replay.content[1:], tp.last(long).response["result"].(map[string]any)["content"])
			c.end()
			tp.executed(long, 1)
		})
	}
}

// TestTheClientDiesWhileProgressComes: what is written to a client that is gone ends nothing; the tool goes on, and
// the next session gets its answer.
func TestTheClientDiesWhileProgressComes(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			g := serve(t, tp.up, "tools: {everything/*: {effect: write}}")
			c := g.start(t, era)
			arguments := args{"duration": 1, "steps": 10}
			c.send("tools/call", map[string]any{"name": long, "arguments": arguments, "_meta": map[string]any{"progressToken": 1}})
			c.waitNote("the first progress arrives", func(n note) bool { return n.Method == "notifications/progress" })
			c.leave()
			c.ended()
			c = g.start(t, era)
			replay := c.call(long, arguments).is("replayed", "done")
			sameJSON(t, "the replayed content", replay.content[1:], tp.last(long).response["result"].(map[string]any)["content"])
			c.end()
			tp.executed(long, 1)
		})
	}
}

// TestCancelOfAnotherRequestCancelsNothing: an id that is not in flight, and one that is long answered.
func TestCancelOfAnotherRequestCancelsNothing(t *testing.T) {
	t.Parallel()
	w := appendLine(t)
	c := wrap(t, w.tap.up).start(t, legacy)
	h := w.tap.holdCall(w.tool)
	id := c.sendCall(w.tool, w.args)
	h.at()
	c.cancel(id + 1000)
	c.cancel(1)
	c.list()
	h.let(pass)
	c.result(id).is("fresh", "")
	c.end()
	w.happened(t, 1)
}

// TestChildrenEndWithTheServer: a server that does not end by itself when its input does is ended.
func TestChildrenEndWithTheServer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"EOF", "kill -9"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			c := wrap(t, tp.up).start(t, legacy)
			c.call("toggle-simulated-logging", args{}) // from now on it never ends by itself
			if how == "EOF" {
				c.end()
			} else {
				c.kill9()
			}
			tp.gone()
		})
	}
}

// TestToolguardOperationKnows: an agent that lost its memory can ask what became of its calls.
func TestToolguardOperationKnows(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
			g := wrap(t, tp.up)
			c := g.start(t, era)
			first := c.call("create_entities", ada).is("fresh", "")
			c.end()
			c = g.start(t, era)
			for _, arguments := range []args{{}, {"key": first.says("key")}} {
				r := c.call("toolguard_operation", arguments)
				for _, want := range []string{first.says("key"), "memory/create_entities", "succeeded"} {
					if !contains(r, want) {
						t.Errorf("toolguard_operation %s does not say %q: %.1000s", encode(t, arguments), want, r)
					}
				}
			}
			c.end()
			tp.executed("create_entities", 1)
		})
	}
}
