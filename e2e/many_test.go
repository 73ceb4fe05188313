package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestSixtyFourAtOnce: one effect, one fresh answer, 63 replays.
func TestSixtyFourAtOnce(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w workpiece, era string) {
		c := wrap(t, w.tap.up).start(t, era)
		h := w.tap.holdCall(w.tool)
		var ids []int
		for range 64 {
			ids = append(ids, c.sendCall(w.tool, w.args))
		}
		h.at()
		c.list() // the duplicates have been read, and leave room for others
		h.let(pass)
		var first *result
		var replays []*result
		for _, id := range ids {
			switch r := c.result(id); r.says("outcome") {
			case "fresh":
				if first != nil {
					t.Fatal("two fresh answers")
				}
				first = r
			default:
				replays = append(replays, r)
			}
		}
		if first == nil || len(replays) != 63 {
			t.Fatalf("fresh: %v, others: %d", first != nil, len(replays))
		}
		for _, r := range replays {
			r.repeats(first)
		}
		c.end()
		w.tap.executed(w.tool, 1)
		w.happened(t, 1)
	})
}

// TestSixtyFourRefused: all of them get the refusal, of one dispatch.
func TestSixtyFourRefused(t *testing.T) {
	t.Parallel()
	tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
	c := wrap(t, tp.up).start(t, legacy)
	h := tp.holdCall("add_observations")
	observe := args{"observations": []any{args{"entityName": "Nobody", "contents": []any{"x"}}}}
	var ids []int
	for range 64 {
		ids = append(ids, c.sendCall("add_observations", observe))
	}
	h.at()
	c.list()
	h.let(pass)
	outcomes := map[string]int{}
	for _, id := range ids {
		r := c.result(id)
		outcomes[r.says("outcome")+" "+r.says("reason")]++
		if !contains(r, "Nobody not found") {
			t.Errorf("a refusal without the tool's own words: %s", r)
		}
	}
	if outcomes["fresh "] != 1 || outcomes["blocked refused"] != 63 {
		t.Errorf("outcomes %v, want 1 fresh and 63 blocked refused", outcomes)
	}
	c.end()
	tp.executed("add_observations", 1)
}

// TestTwoHundredAtOnce: calls that have nothing in common do not wait for each other, and all act.
func TestTwoHundredAtOnce(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
			g := wrap(t, tp.up)
			c := g.start(t, era)
			entity := func(i int) args {
				return args{"entities": []any{args{
					"name": fmt.Sprint("name ", i), "entityType": fmt.Sprint("type ", i), "observations": []any{fmt.Sprint("fact ", i)},
				}}}
			}
			var ids []int
			for i := range 200 {
				ids = append(ids, c.sendCall("create_entities", entity(i)))
			}
			keys := map[string]bool{}
			for i, id := range ids {
				r := c.result(id).is("fresh", "")
				keys[r.says("key")] = true
				sameJSON(t, "what was created", r.structured["entities"], entity(i)["entities"])
			}
			if len(keys) != 200 {
				t.Errorf("%d keys, want 200", len(keys))
			}
			c.end()
			tp.executed("create_entities", 200)
			g.cli(t, "verify")
		})
	}
}
