package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"toolguard.dev/evals"
)

// printTable prints what came of everything: first all faults together, then each.
func printTable(w io.Writer, t *evals.Table) {
	fmt.Fprintf(w, "%s, seed %d", count(t.Runs, "run"), t.Seed)
	if t.Labels > 0 {
		fmt.Fprintf(w, ", %d labelled", t.Labels)
	}
	if t.Idle > 0 {
		fmt.Fprintf(w, "; %d more with nothing to write here", t.Idle)
	}
	if t.Skipped > 0 {
		fmt.Fprintf(w, "; %d could not be read", t.Skipped)
	}
	fmt.Fprint(w, "\n\nAll faults together, per 100 (95% interval):\n\n")
	printTotal(w, t)
	fmt.Fprint(w, "\nEach fault: twice / lost / needed repeats held back / to a person, per 100:\n\n")
	printRows(w, t)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func printTotal(w io.Writer, t *evals.Table) {
	rows := [][]string{{"", "meant", "happened", "twice", "lost", "held back", "to a person", "slower by"}}
	for i := range t.Total {
		c := &t.Total[i]
		rows = append(rows, []string{c.Title, fmt.Sprint(c.Intended), fmt.Sprint(c.Effects), share(c.Duplicates), share(c.Lost), share(c.HeldBack), share(c.Person), slower(c.Added)})
	}
	printAligned(w, rows)
}

func share(s evals.Share) string {
	if s.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f (%.1f–%.1f)", s.Value, s.Low, s.High)
}

func slower(l *evals.Latency) string {
	if l == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f s", l.Value)
}

func printRows(w io.Writer, t *evals.Table) {
	head := []string{""}
	for _, c := range t.Total {
		head = append(head, c.Arm)
	}
	rows := [][]string{head}
	for _, r := range t.Rows {
		row := []string{r.Fault}
		for i := range r.Cells {
			c := &r.Cells[i]
			row = append(row, strings.Join([]string{whole(c.Duplicates), whole(c.Lost), whole(c.HeldBack), whole(c.Person)}, "/"))
		}
		rows = append(rows, row)
	}
	printAligned(w, rows)
}

// whole is a share without its decimals; what is not nothing never reads 0.
func whole(s evals.Share) string {
	switch {
	case s.N == 0:
		return "–"
	case s.K > 0 && s.Value < 1:
		return "<1"
	}
	return fmt.Sprintf("%.0f", s.Value)
}

func printAligned(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
