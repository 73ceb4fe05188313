package main

import (
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	d := newDesk(t)
	out := d.good("demo")
	got := lines(out)
	if last := d.plain(got[len(got)-1]); last != "  claude mcp add toolguard -- @BINARY@ serve --sample" {
		t.Errorf("last line: %s", last)
	}
	for _, want := range []string{"ALREADY DONE", "OUTCOME UNKNOWN", "NOT SENT", "amount", "kill -9", "the audit is intact", "books   1 ticket, payment PAY-1 of 120.50 for INV-1001"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestShellLine(t *testing.T) {
	if got, want := shellLine([]string{"a", "b c", "", "d'e", "/x/y-z"}), `a 'b c' '' 'd'\''e' /x/y-z`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
