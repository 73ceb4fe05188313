package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
)

func contains(r *result, s string) bool { return strings.Contains(r.String(), s) }

// TestKillNine kills the guard with -9 at one moment of a call. Whatever the moment, the same call again never acts
// twice, and what is not known is said and stays put.
func TestKillNine(t *testing.T) {
	t.Parallel()
	unknown := func(t *testing.T, r *result) { t.Helper(); r.is("escalated", "outcome_unknown") }
	replayed := func(t *testing.T, r *result) { t.Helper(); r.is("replayed", "done") }
	fresh := func(t *testing.T, r *result) { t.Helper(); r.is("fresh", "") }
	for _, moment := range []struct {
		name          string
		kill          func(t *testing.T, c *client, w workpiece)
		second, third func(*testing.T, *result)
		effects       int
	}{
		{"before the record", func(t *testing.T, c *client, w workpiece) {
			_, message := c.message("tools/call", map[string]any{"name": w.tool, "arguments": w.args})
			line := encode(t, message)
			_, _ = c.in.Write(line[:len(line)/2])
			c.kill9()
		}, fresh, replayed, 1},
		{"while the tool runs", func(t *testing.T, c *client, w workpiece) {
			h := w.tap.holdCall(w.tool)
			c.sendCall(w.tool, w.args)
			h.at()
			c.kill9()
		}, unknown, unknown, 0},
		{"after the effect", func(t *testing.T, c *client, w workpiece) {
			h := w.tap.holdAnswer(w.tool)
			c.sendCall(w.tool, w.args)
			h.at()
			w.happened(t, 1)
			c.kill9()
		}, unknown, unknown, 1},
		{"after the answer", func(t *testing.T, c *client, w workpiece) {
			c.call(w.tool, w.args).is("fresh", "")
			c.kill9()
		}, replayed, replayed, 1},
	} {
		for name, build := range workpieces {
			for _, era := range eras {
				t.Run(moment.name+"/"+name+"/"+era, func(t *testing.T) {
					t.Parallel()
					w := build(t)
					g := wrap(t, w.tap.up)
					moment.kill(t, g.start(t, era), w)
					w.tap.gone()
					c := g.start(t, era)
					moment.second(t, c.call(w.tool, w.args))
					third := c.call(w.tool, w.args)
					moment.third(t, third)
					if r := c.call("toolguard_operation", args{"key": third.says("key")}); !contains(r, third.says("status")) {
						t.Errorf("toolguard_operation does not say %q: %.1000s", third.says("status"), r)
					}
					c.end()
					c = g.start(t, era) // and in yet another process
					moment.third(t, c.call(w.tool, w.args))
					c.end()
					w.happened(t, moment.effects)
					g.cli(t, "verify")
				})
			}
		}
	}
}

// TestKillNineBeforeTheReply: the answer is recorded and the reply is on its way, half written, when the guard is
// killed. Nobody had it, so the next caller gets it.
func TestKillNineBeforeTheReply(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "large.txt")
			writeFile(t, file, "head\n")
			large := strings.Repeat("added and long enough that no pipe holds the reply\n", 10_000) // 510 KB
			edit := args{"path": file, "edits": []any{args{"oldText": "head\n", "newText": "head\n" + large}}}
			tp := tapped(t, filesystem(t, dir))
			g := wrap(t, tp.up)

			c := g.start(t, era)
			half := c.stopReading()
			c.sendCall("edit_file", edit)
			recv(t, "the beginning of the reply", half)
			c.kill9()
			tp.gone()

			c = g.start(t, era)
			for range 2 {
				second := c.call("edit_file", edit)
				if reason := second.says("reason"); second.says("outcome") != "replayed" || reason != "done" && reason != "body_not_stored" {
					t.Fatalf("outcome %q %q: %.500s", second.says("outcome"), reason, second)
				}
			}
			c.end()
			tp.executed("edit_file", 1)
			if n := strings.Count(readFile(t, file), large); n != 1 {
				t.Errorf("the text was added %d times", n)
			}
		})
	}
}

// TestAPersonDecides: after a crash in the middle, a person looks at the world and says what happened.
func TestAPersonDecides(t *testing.T) {
	t.Parallel()
	crash := func(t *testing.T) (*guard, workpiece, string) {
		w := appendLine(t)
		g := wrap(t, w.tap.up)
		h := w.tap.holdAnswer(w.tool)
		c := g.start(t, legacy)
		c.sendCall(w.tool, w.args)
		h.at()
		c.kill9()
		w.tap.gone()
		c = g.start(t, legacy)
		r := c.call(w.tool, w.args).is("escalated", "outcome_unknown")
		c.end()
		if key := r.says("key"); key != "" {
			if out := g.cli(t, "ops", "list", "--json", "--status", "escalated"); !strings.Contains(out, key) {
				t.Errorf("ops list does not show %s: %s", key, out)
			}
			return g, w, key
		}
		t.Fatalf("no key: %s", r)
		return nil, workpiece{}, ""
	}
	t.Run("applied", func(t *testing.T) {
		t.Parallel()
		g, w, key := crash(t)
		g.cli(t, "ops", "resolve", key, "--verdict", "applied", "--note", "seen in the file")
		c := g.start(t, legacy)
		if r := c.call(w.tool, w.args); r.says("outcome") != "replayed" {
			t.Errorf("after applied: %s", r)
		}
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
	t.Run("abandoned", func(t *testing.T) {
		t.Parallel()
		g, w, key := crash(t)
		g.cli(t, "ops", "resolve", key, "--verdict", "abandoned")
		c := g.start(t, legacy)
		for range 2 {
			c.call(w.tool, w.args).is("blocked", "abandoned")
		}
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
}
