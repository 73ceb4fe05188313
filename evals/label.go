package evals

import (
	"fmt"
	"slices"

	"toolguard.dev/evals/recorded"
)

// doubts says, each in one sentence, what a label says of a run that the run does not bear out.
func doubts(p *Plan, l *recorded.Label) (list []string) {
	if l == nil {
		return nil
	}
	doubt := func(format string, args ...any) {
		list = append(list, fmt.Sprintf("%s: %s %s: %s", l.At, l.File, l.Run, fmt.Sprintf(format, args...)))
	}
	if l.Calls >= 0 && l.Calls != p.Run.Made {
		doubt("the label counts %d calls, the run has %d", l.Calls, p.Run.Made)
	}
	if n := p.Writes(); l.Writes >= 0 && l.Writes != n {
		doubt("the label counts %d writes, the run has %d", l.Writes, n)
	}
	for _, r := range l.Repeats {
		if why := unfit(p.Run, r); why != "" {
			doubt("the repeat of call %d by call %d is not used: %s", r.First, r.Second, why)
		}
	}
	return list
}

// unfit says why two calls of a run cannot be a write and its repetition; "": they can.
func unfit(r *recorded.Run, repeat recorded.Repeat) string {
	var calls [2]*recorded.Call
	for i, index := range []int{repeat.First, repeat.Second} {
		at := slices.IndexFunc(r.Calls, func(c recorded.Call) bool { return c.Index == index })
		if at < 0 {
			return fmt.Sprintf("the agent makes no call %d; calls are counted from 0, and the run has %d", index, r.Made)
		}
		if calls[i] = &r.Calls[at]; Reads(calls[i].Tool) {
			return fmt.Sprintf("call %d, %s, only reads", index, clip(calls[i].Tool, 100))
		}
	}
	if calls[0].Tool != calls[1].Tool {
		return fmt.Sprintf("the one is of %s, the other of %s", clip(calls[0].Tool, 100), clip(calls[1].Tool, 100))
	}
	return ""
}
