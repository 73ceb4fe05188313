package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"toolguard.dev/evals"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"whole": whole, "share": share, "harm": harm, "anchor": anchor, "seconds": func(s float64) string { return fmt.Sprintf("%.1f s", s) },
	"latency": latency, "count": count,
	"arms": func() []evals.Arm { return evals.Arms }, "kind": kind, "printable": evals.Printable,
}).Parse(pageText))

// page writes the report as one page that needs nothing else. Everything in it is escaped: runs hold other people's text.
func page(w io.Writer, t *evals.Table) error { return pageTemplate.Execute(w, t) }

// harm is a cell's colour: what happened twice, was lost or held back counts, and where there is none of that, how much is
// left to people.
func harm(c evals.Cell) string {
	worst := max(c.Duplicates.Value, c.Lost.Value, c.HeldBack.Value)
	switch {
	case worst >= 50:
		return "bad5"
	case worst >= 25:
		return "bad4"
	case worst >= 10:
		return "bad3"
	case worst >= 2:
		return "bad2"
	case worst > 0:
		return "bad1"
	case c.Person.Value >= 25:
		return "ask2"
	case c.Person.Value >= 2:
		return "ask1"
	}
	return "good"
}

// latency is how much longer a write takes than without fault and guard.
func latency(l *evals.Latency) string {
	if l == nil {
		return "not known: without --faults none and --arms no-guard there is nothing to compare with"
	}
	return fmt.Sprintf("%.1f s (%.1f–%.1f) per write", l.Value, l.Low, l.High)
}

// anchor is a cell's name within the page.
func anchor(fault, arm string) string {
	return "run-" + fault + "-" + strings.ReplaceAll(arm, "+", "-and-")
}

// kind is how a line of a story looks.
func kind(l evals.Line) string {
	switch {
	case l.Who == "verdict":
		return "verdict"
	case strings.HasPrefix(l.Text, "EFFECT") && strings.HasSuffix(l.Text, "time"):
		return "effect again"
	case strings.HasPrefix(l.Text, "EFFECT"):
		return "effect"
	}
	return l.Who
}
