package mcpguard_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

func TestClash(t *testing.T) {
	w := newWorldOf(t, nil, namedServer{"books", "left"}, namedServer{"books__x", "right"})
	problems := w.gateway.Problems()
	if len(problems) != 2 || problems[0].Server != "books" || problems[0].Tool != "x__y" || problems[1].Server != "books__x" || problems[1].Tool != "y" {
		t.Errorf("%+v", problems)
	}
	for _, p := range problems {
		if !errors.Is(p.Err, mcpguard.ErrClash) || !strings.Contains(p.Err.Error(), "books/x__y and books__x/y") {
			t.Errorf("%v", p.Err)
		}
	}
	c := w.client()
	c.initialize()
	list := c.call("tools/list", `{}`)
	for name, want := range map[string]bool{"books__x__y": false, "books__w": true, "books__x__z": true} {
		if strings.Contains(list, `"name":"`+name+`"`) != want {
			t.Errorf("%s: listed, or not: %s", name, list)
		}
	}
	if got := c.tool("books__x__y", `{}`); got.Error == nil || got.Error.Code != -32602 {
		t.Error(got.raw)
	}
	if got := w.noted("effects"); len(got) != 0 {
		t.Errorf("effects: %q", got)
	}
}

func TestClashLater(t *testing.T) {
	w := newWorldOf(t, nil, namedServer{"books", "normal"}, namedServer{"books__x", "right"})
	c := w.client()
	c.initialize()
	until := func(offered bool, problems int) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			list := c.call("tools/list", `{}`)
			if strings.Contains(list, `"name":"books__x__y"`) == offered && len(w.gateway.Problems()) == problems {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("offered is not %v: %s %+v", offered, list, w.gateway.Problems())
			}
		}
	}
	until(true, 0)
	c.tool("books__x__y", `{}`).is(t, "fresh")
	c.tool("books__grow", `{"x":"x__y"}`).is(t, "fresh")
	until(false, 2)
	if got := c.tool("books__x__y", `{"x":"b"}`); got.Error == nil || got.Error.Code != -32602 {
		t.Error(got.raw)
	}
	c.tool("books__shrink", `{}`).is(t, "fresh")
	until(true, 0)
	c.tool("books__x__y", `{"x":"c"}`).is(t, "fresh")
}
