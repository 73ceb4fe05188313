package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"toolguard.dev/toolguard"
)

// moment is an event in an operation's time line.
type moment struct {
	Time  time.Time
	Now   time.Time
	Title string
	Kind  string // good, bad, doubt, run, wait or off: its colour
	Says  []fact
}

// momentOf says an event in words.
func momentOf(e *toolguard.Event, now time.Time) moment {
	m := moment{Time: e.Time, Now: now, Kind: "off"}
	detail := maps.Clone(e.Detail)
	take := func(name string) string {
		value, ok := detail[name]
		delete(detail, name)
		if !ok {
			return ""
		}
		return fmt.Sprint(value)
	}
	say := func(name, value string) {
		if value != "" {
			m.Says = append(m.Says, fact{name, value})
		}
	}
	by := func() {
		who := e.Reviewer
		if take("weak") == "true" && who != "" {
			who += " (weak: not proven by a token)"
		}
		say("by", who)
		say("note", take("note"))
	}
	switch e.Type {
	case toolguard.EventCall:
		m.Title, m.Kind = "A call was answered: "+string(e.Outcome), callKind(e.Outcome)
		if e.Outcome == toolguard.Fresh {
			m.Title, m.Kind = "A call got the tool's own answer", "good"
		}
		if e.Outcome == toolguard.Replayed {
			m.Title = "The same call again got the recorded result; nothing was sent"
		}
		say("why", strings.ReplaceAll(string(e.Reason), "_", " "))
	case toolguard.EventDispatched:
		m.Title, m.Kind = fmt.Sprintf("Attempt %d was sent", e.Attempt), "run"
	case toolguard.EventSettled:
		s := statusOf(e.Status)
		m.Title, m.Kind = fmt.Sprintf("Attempt %d: %s", e.Attempt, s.Words), s.Kind
		if state := take("attempt_state"); state != "" {
			m.Title = fmt.Sprintf("Attempt %d: %s", e.Attempt, attemptOf(toolguard.AttemptState(state)))
		}
	case toolguard.EventDelivered:
		m.Title, m.Kind = "The result is known to have arrived", "good"
	case toolguard.EventEscalated:
		m.Title, m.Kind = "It was handed to a person", "bad"
	case toolguard.EventReconciled:
		m.Title, m.Kind = "A lookup was asked what became of it", "doubt"
		say("found", take("found"))
		say("that proves it", map[string]string{"true": "yes", "false": "no"}[take("proves")])
	case toolguard.EventApprovalRequested:
		m.Title, m.Kind = "A person's approval was asked for", "wait"
	case toolguard.EventApprovalDecided:
		switch verdict := take("verdict"); verdict {
		case "approve":
			m.Title, m.Kind = "Approved", "good"
		case "reject":
			m.Title, m.Kind = "Rejected", "bad"
		default:
			m.Title = "The request for approval was " + verdict
		}
		by()
	case toolguard.EventResolved:
		m.Title, m.Kind = map[string]string{toolguard.VerdictApplied: "A person found that it happened", toolguard.VerdictNotApplied: "A person found that it did not happen",
			toolguard.VerdictAbandoned: "A person gave it up"}[take("verdict")], "wait"
		by()
	case toolguard.EventRepeatAllowed:
		m.Title, m.Kind = "A person had it repeated", "wait"
		take("verdict")
		by()
	case toolguard.EventConflict:
		m.Title, m.Kind = "Evidence contradicts how it was settled", "bad"
	default:
		m.Title = strings.ReplaceAll(string(e.Type), "_", " ")
	}
	if e.Type == toolguard.EventCall || e.Type == toolguard.EventApprovalRequested {
		say("actor", e.Actor)
		say("call id", e.CallID)
		say("client", e.Client)
	}
	say("downstream id", e.DownstreamID)
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		say(strings.ReplaceAll(name, "_", " "), fmt.Sprint(detail[name]))
	}
	return m
}

// callKind is the colour of an outcome.
func callKind(o toolguard.Outcome) string {
	return map[toolguard.Outcome]string{toolguard.Fresh: "good", toolguard.Replayed: "run", toolguard.Pending: "wait", toolguard.Blocked: "off", toolguard.Escalated: "bad"}[o]
}
