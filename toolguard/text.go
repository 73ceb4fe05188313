package toolguard

import (
	"fmt"
	"strings"
	"time"
)

// told is what a text may tell besides its verdict.
type told struct {
	op      *Operation   // the operation that answered or stands in the way
	what    string       // the fault, in words
	says    string       // the tool's own words
	pointer string       // the value that two calls share
	result  string       // the earlier result, in words
	since   []*Operation // what was written since
}

// text is what the reader of an answer is told: what happened, when, and what to do. This file is the only place
// where such texts are made. They never suggest to send again and never show a way round the guard.
func (g *Guard) text(v *visit, verdict Verdict, t told) string {
	return Text(v.Tool.Name, verdict, t.op, t.what, t.says, t.pointer, t.result, t.since)
}

// Text makes the text of a verdict on a call of the named tool. op, what, says, pointer, result and since may be zero.
func Text(tool string, v Verdict, op *Operation, what, says, pointer, result string, since []*Operation) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	switch v.Outcome {
	case Fresh:
		add("Done. %s returned nothing; this is the receipt: done at %s, key %s.", tool, when(v.SettledAt), v.Key)
	case Replayed:
		add("ALREADY DONE, not repeated. %s was done%s", tool, at(v.SettledAt))
		if op != nil && op.DownstreamID != "" {
			add(" (%s)", op.DownstreamID)
		}
		add(".")
		switch v.Reason {
		case ReasonBodyExpired:
			add(" Its result is no longer kept.")
		case ReasonBodyNotStored:
			add(" Its result was too large to keep.")
		default:
			add(" The result below is the recorded one.")
		}
		if len(v.Differs) > 0 {
			add(" This call differs in %s; the recorded call stands.", fields(v.Differs))
		}
		if len(since) > 0 {
			add(" Since then these were called: %s.", names(since))
		}
		add(" Go on with it as done.")
	case Pending:
		pending(add, tool, v, says)
	case Escalated:
		add("OUTCOME UNKNOWN. %s was sent%s and may have been done; nobody can tell from here.", tool, sentAt(op))
		quote(add, says)
		if v.Reason == ReasonAttemptsSpent {
			add(" It was sent as often as is allowed.")
		}
		add(" It will not be sent again by itself. A person has to find out (key %s). Tell the user that this is open, and do not do it in another way.", v.Key)
	case Blocked:
		blocked(add, tool, v, op, what, says, pointer, result)
	}
	return b.String()
}

func pending(add func(string, ...any), tool string, v Verdict, says string) {
	switch v.Reason {
	case ReasonReconciling:
		add("OUTCOME NOT KNOWN YET. %s was sent and may have been done; it is being found out.", tool)
		quote(add, says)
	default:
		add("STILL RUNNING. %s was started%s and has not answered yet; it goes on by itself.", tool, at(v.RecordedAt))
	}
	add(" Do not do it in another way.")
	if v.RetryAfterMS > 0 {
		add(" More will be known in about %s.", (time.Duration(v.RetryAfterMS) * time.Millisecond).Round(time.Second))
	}
	add(" Calling %s again with the same arguments shows how it stands and sends nothing twice (key %s).", tool, v.Key)
}

func blocked(add func(string, ...any), tool string, v Verdict, op *Operation, what, says, pointer, result string) {
	switch v.Reason {
	case ReasonInvalidArguments:
		add("NOT SENT. The arguments are not valid for %s: %s. Correct them and call it again.", tool, strings.TrimSuffix(what, "."))
	case ReasonContextRequired:
		add("NOT SENT. %s needs something that did not come with this call: %s. The host that runs this session, or the arguments, must supply it; tell the user.", tool, strings.TrimSuffix(what, "."))
	case ReasonContextConflict:
		add("NOT SENT. Two sources disagree about the %s of this call, so it cannot be told which work it belongs to. Tell the user.", what)
	case ReasonDenied:
		add("NOT SENT. The operator does not allow %s to be called. Tell the user if it is needed.", tool)
	case ReasonStoreUnavailable:
		add("NOT SENT. The record of what was done cannot be written at the moment, and without it %s is not called. Nothing happened. Tell the user.", tool)
	case ReasonToolUnavailable:
		add("NOT SENT. %s cannot be reached at the moment", tool)
		if says != "" || what != "" {
			add(": %s", strings.TrimSuffix(cmpOr(what, says), "."))
		}
		add(". Nothing happened. It may be called later.")
	case ReasonRefused:
		add("NOT DONE. The same call of %s, made at the same time, was refused by the tool.", tool)
		quote(add, says)
		add(" Nothing happened.")
	case ReasonAbandoned:
		add("NOT SENT. A person gave this %s up%s. Only a person can open it again; tell the user if it is still wanted.", tool, decidedAt(op))
	case ReasonArgumentsChanged:
		add("NOT SENT. This %s is on record with other arguments", tool)
		if len(v.Differs) > 0 {
			add(": %s differs", fields(v.Differs))
		}
		add(". The one on record %s.", state(op))
		earlier(add, result)
		add(" It is not changed by calling again. If the new arguments are really wanted, tell the user; a person can allow them.")
	case ReasonEarlierUnknown:
		if pointer != "" {
			add("NOT SENT. An earlier call of %s with the same %s but other arguments %s.", tool, field(pointer), state(op))
		} else {
			add("NOT SENT. An earlier call of %s on the same target %s.", tool, state(op))
		}
		if len(v.Differs) > 0 {
			add(" The two differ in %s.", fields(v.Differs))
		}
		if op != nil && op.Owed() {
			earlier(add, result)
			add(" You had not been told. If this call is wanted besides the earlier one, make it now.")
		} else {
			add(" This one is held back until it is known what became of that one (key %s), so that the same is not done twice. Tell the user.", v.Key)
		}
	}
}

// state says how an operation stands, to follow "it" or "the earlier call".
func state(op *Operation) string {
	if op == nil {
		return "is open"
	}
	switch op.Status {
	case StatusSucceeded:
		settled := op.Settled
		return "was done" + at(&settled)
	case StatusDispatching:
		return "is still running"
	case StatusAbandoned:
		return "was given up by a person"
	}
	return "was sent" + sentAt(op) + " and may have been done"
}

func earlier(add func(string, ...any), result string) {
	if result != "" {
		add(" Its result: %s", quoted(result, 1500))
	}
}

func quote(add func(string, ...any), says string) {
	if says != "" {
		add(" The tool said: %s", quoted(says, maxSays))
	}
}

// quoted is foreign text, cut to n bytes, marked as such.
func quoted(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return "«" + s + "»"
}

func field(pointer string) string {
	return strings.TrimPrefix(pointer, "/")
}

func fields(pointers []string) string {
	names := make([]string, len(pointers))
	for i, p := range pointers {
		names[i] = cmpOr(field(p), "the whole")
	}
	return strings.Join(names, ", ")
}

func names(ops []*Operation) string {
	var parts []string
	for i, op := range ops {
		if i == 3 {
			parts = append(parts, "and more")
			break
		}
		parts = append(parts, op.Action)
	}
	return strings.Join(parts, ", ")
}

func when(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "a time not recorded"
	}
	return t.UTC().Format(time.RFC3339)
}

func at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return " at " + when(t)
}

func sentAt(op *Operation) string {
	if op == nil || len(op.Attempts) == 0 {
		return ""
	}
	return at(&op.latest().Started)
}

func decidedAt(op *Operation) string {
	if op == nil || op.Resolved == nil {
		return ""
	}
	return at(&op.Resolved.At)
}
