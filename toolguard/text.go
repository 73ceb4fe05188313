package toolguard

import (
	"fmt"
	"strings"
	"time"
)

// told is what a text tells besides its verdict. Every member may be zero.
type told struct {
	op       *Operation   // the operation that answered or stands in the way
	what     string       // the fault, in words
	says     string       // what came back from the tool
	answered bool         // these are the tool's own words
	pointer  string       // the value that two calls share
	result   string       // the earlier result, in words
	since    []*Operation // what was written since
	bare     bool         // a replay without a result: only a receipt was kept, or a person decided without one
	owed     bool         // a replay of what was not known to have arrived, and that may be wanted again
	sets     bool         // the tool sets a state: a call that waits is sent later
}

// speech is a text in the making. This file is the only place where such texts are made: what happened, when,
// and what to do. They never suggest to send again and never show a way round the guard.
type speech struct {
	strings.Builder
	tool string
	v    Verdict
	told
}

// text is what the reader of an answer is told.
func text(tool string, v Verdict, t told) string {
	s := &speech{tool: tool, v: v, told: t}
	switch v.Outcome {
	case Fresh:
		s.add("Done. %s returned nothing; this is the receipt: done%s, key %s.", tool, at(v.SettledAt), v.Key)
	case Replayed:
		s.replayed()
	case Pending:
		s.pending()
	case Escalated:
		s.add("OUTCOME UNKNOWN. %s was sent%s and may have been done; nobody can tell from here.", tool, sentAt(t.op))
		s.quote()
		if v.Reason == ReasonAttemptsSpent {
			s.add(" It was sent as often as is allowed.")
		}
		s.add(" It will not be sent again by itself. A person has to find out (key %s). Tell the user that this is open, and do not do it in another way.", v.Key)
	case Blocked:
		s.blocked()
	}
	return s.String()
}

func (s *speech) add(format string, args ...any) { fmt.Fprintf(s, format, args...) }

func (s *speech) replayed() {
	s.add("ALREADY DONE, not repeated. %s was done%s", s.tool, at(s.v.SettledAt))
	if s.op != nil && s.op.DownstreamID != "" {
		s.add(" (%s)", s.op.DownstreamID)
	}
	switch {
	case s.v.Reason == ReasonBodyExpired:
		s.add(". Its result is no longer kept.")
	case s.v.Reason == ReasonBodyNotStored:
		s.add(". Its result is not on record.")
	case s.bare:
		s.add(". There is no result on record; this is the receipt, key %s.", s.v.Key)
		s.quote()
	default:
		s.add(". The result below is the recorded one.")
	}
	if len(s.v.Differs) > 0 {
		s.add(" This call differs in %s; the recorded call stands.", fields(s.v.Differs))
	}
	switch {
	case len(s.since) > 0 && s.owed:
		s.add(" That was before these calls: %s. It was not known that its result had arrived. If it is wanted once more after them, make the call now.", names(s.since))
	case len(s.since) > 0:
		s.add(" Called since then: %s. Go on with it as done.", names(s.since))
	default:
		s.add(" Go on with it as done.")
	}
}

func (s *speech) pending() {
	if s.v.Reason == ReasonApprovalRequired {
		s.add("NOT DONE YET. A person must approve this %s before it is sent (approval %s", s.tool, s.v.Approval)
		if s.op != nil && s.op.Approval != nil {
			if len(s.op.Approval.Reviewers) > 0 {
				s.add(", for %s to decide", strings.Join(s.op.Approval.Reviewers, " or "))
			}
			s.add(", until %s", s.op.Approval.Expires.Format(time.RFC3339))
		}
		s.add("). Nothing was sent. It is sent by itself once it is approved; calling %s again with the same arguments shows how it stands and sends nothing twice. Tell the user, and do not do it in another way.", s.tool)
		return
	}
	if s.v.Reason == ReasonReconciling {
		s.add("OUTCOME NOT KNOWN YET. %s was sent%s and may have been done; it is being found out.", s.tool, sentAt(s.op))
		s.quote()
	} else {
		s.add("STILL RUNNING. %s was started%s and has not answered yet; it goes on by itself.", s.tool, sentAt(s.op))
	}
	s.add(" Do not do it in another way.")
	if s.v.RetryAfterMS > 0 {
		s.add(" More will be known in about %s.", (time.Duration(s.v.RetryAfterMS) * time.Millisecond).Round(time.Second))
	}
	if s.sets {
		s.add(" Until it is known, nothing else is set there (key %s); a call of %s made after that is sent.", s.v.Key, s.tool)
		return
	}
	s.add(" Calling %s again with the same arguments shows how it stands and sends nothing twice (key %s).", s.tool, s.v.Key)
}

func (s *speech) blocked() {
	tool, v := s.tool, s.v
	what := strings.TrimSuffix(s.what, ".")
	switch v.Reason {
	case ReasonInvalidArguments:
		s.add("NOT SENT. The arguments are not valid for %s: %s. Correct them and call it again.", tool, what)
	case ReasonContextRequired:
		s.add("NOT SENT. %s needs something that did not come with this call: %s. The host that runs this session, or the arguments, must supply it; tell the user.", tool, what)
	case ReasonContextConflict:
		s.add("NOT SENT. Two sources disagree about the %s of this call, so it cannot be told which work it belongs to. Tell the user.", what)
	case ReasonDenied:
		s.add("NOT SENT. The operator does not allow %s to be called. Tell the user if it is needed.", tool)
	case ReasonStoreUnavailable:
		if what != "" {
			s.add("NOT SENT. %s is not called, because %s. Nothing happened. Tell the user: whoever runs this has to put the key back.", tool, what)
			break
		}
		s.add("NOT SENT. The record of what was done cannot be written at the moment, and without it %s is not called. Nothing happened. Tell the user.", tool)
	case ReasonToolUnavailable:
		s.add("NOT SENT. %s cannot be reached at the moment", tool)
		if why := cmpOr(what, strings.TrimSuffix(s.says, ".")); why != "" {
			s.add(": %s", why)
		}
		s.add(". Nothing happened. It may be called later.")
	case ReasonRefused:
		s.add("NOT DONE. The same call of %s, made at the same time, was refused by the tool.", tool)
		s.quote()
		s.add(" Nothing happened.")
	case ReasonAbandoned:
		s.add("NOT SENT. A person gave this %s up%s. Only a person can open it again; tell the user if it is still wanted.", tool, decidedAt(s.op))
	case ReasonApprovalRejected:
		s.add("NOT SENT. A person rejected this %s%s", tool, rejectedAt(s.op))
		if s.op != nil && s.op.Approval != nil && s.op.Approval.Decision != nil && s.op.Approval.Decision.Note != "" {
			s.add(" and noted: %s", quoted(s.op.Approval.Decision.Note, maxSays))
		} else {
			s.add(".")
		}
		s.add(" The same arguments stay rejected. Tell the user.")
	case ReasonArgumentsChanged:
		s.add("NOT SENT. This %s is on record with other arguments", tool)
		if len(v.Differs) > 0 {
			s.add(" (they differ in %s)", fields(v.Differs))
		}
		s.add(". The one on record %s.", state(s.op))
		s.earlier()
		s.add(" It is not changed by calling again. If the new arguments are really wanted, tell the user; a person can allow them.")
	case ReasonEarlierUnknown:
		s.held()
	}
}

func (s *speech) held() {
	if s.pointer != "" {
		s.add("NOT SENT. An earlier call of %s with the same value in %s but other arguments %s.", s.tool, field(s.pointer), state(s.op))
	} else {
		s.add("NOT SENT. An earlier call of %s on the same target %s.", s.tool, state(s.op))
	}
	if len(s.v.Differs) > 0 {
		s.add(" The two differ in %s.", fields(s.v.Differs))
	}
	if s.op != nil && s.op.Owed() {
		s.earlier()
		s.add(" It is not known that this result had arrived. If this call is wanted besides the earlier one, make it now.")
		return
	}
	s.add(" This one is held back until it is known what became of that one (key %s), so that the same is not done twice. Tell the user.", s.v.Key)
}

func (s *speech) earlier() {
	if s.result != "" {
		s.add(" Its result: %s", quoted(s.result, 1500))
	}
}

func (s *speech) quote() {
	switch {
	case s.says == "":
	case s.answered:
		s.add(" The tool said: %s", quoted(s.says, maxSays))
	default:
		s.add(" What is known: %s.", strings.TrimSuffix(s.says, "."))
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
	case StatusAwaitingApproval, StatusApproved:
		return "waits for a person's approval"
	case StatusRejected:
		return "was rejected by a person"
	case StatusAbandoned:
		return "was given up by a person"
	}
	return "was sent" + sentAt(op) + " and may have been done"
}

// quoted is foreign text, cut to n bytes, marked as such.
func quoted(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return "«" + s + "»."
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

func at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return " at " + t.UTC().Format(time.RFC3339)
}

func sentAt(op *Operation) string {
	if op == nil || len(op.Attempts) == 0 {
		return ""
	}
	return at(&op.latest().Started)
}

func rejectedAt(op *Operation) string {
	if op == nil || op.Approval == nil || op.Approval.Decision == nil {
		return ""
	}
	return at(&op.Approval.Decision.At)
}

func decidedAt(op *Operation) string {
	if op == nil || op.Resolved == nil {
		return ""
	}
	return at(&op.Resolved.At)
}
