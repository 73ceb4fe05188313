package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

func pass(why string, weak ...string) Rehearsal {
	return Rehearsal{Result: Pass, Why: why, Weak: slices.DeleteFunc(weak, func(s string) bool { return s == "" })}
}

func fail(format string, args ...any) Rehearsal {
	return Rehearsal{Result: Fail, Why: fmt.Sprintf(format, args...)}
}

func notApplicable(format string, args ...any) Rehearsal {
	return Rehearsal{Result: NotApplicable, Why: fmt.Sprintf(format, args...)}
}

// idempotent reports whether the tool sets a state.
func (a *act) idempotent() bool { return a.tool.Effective == registry.Idempotent }

// unread says why a rehearsal cannot begin: the answer that the drill made up is none that the policy takes for a success.
func (a *act) unread(first *toolguard.Result) (Rehearsal, bool) {
	v := first.Verdict
	if v.Outcome == toolguard.Fresh && (v.Status == toolguard.StatusSucceeded || a.subject.Observe) {
		return Rehearsal{}, false
	}
	r := notApplicable("the first call, which the downstream answered with a plain success, came to %s: %s; either classify takes too much for no success, or it needs an answer that the drill cannot make up", outcome(v), firstLine(first.Text))
	r.late = late(first)
	return r, true
}

// late reports whether a call that is answered at once had no answer in time.
func late(r *toolguard.Result) bool {
	return r.Verdict.Outcome == toolguard.Pending && r.Verdict.Reason != toolguard.ReasonApprovalRequired || r.Verdict.Reason == toolguard.ReasonToolUnavailable
}

func outcome(v toolguard.Verdict) string {
	if v.Reason != "" {
		return fmt.Sprintf("%s/%s", v.Outcome, v.Reason)
	}
	return string(v.Outcome)
}

// told is the beginning of what a caller was told.
func told(r *toolguard.Result) string {
	if r.Text == "" {
		return "it was given the tool's own answer"
	}
	return "it was told: " + firstLine(r.Text)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if line, _, ok := strings.Cut(line, ". "); ok {
		return line + "."
	}
	return line
}

// sameEvent: an event is delivered twice. The first work is done and its result delivered, something else is written, then
// the agent plans it again, in other words where the policy lets it.
func sameEvent(ctx context.Context, a *act) (Rehearsal, error) {
	if a.idempotent() {
		return notApplicable("it sets a state: the second delivery sets the same state again, and that this does no harm is what effect: idempotent says"), nil
	}
	first, err := a.send(ctx, a.facts(1), a.arguments)
	if err != nil {
		return Rehearsal{}, err
	}
	if r, stop := a.unread(first); stop {
		return r, nil
	}
	first.Delivered()
	if err := a.elsewhere(ctx); err != nil {
		return Rehearsal{}, err
	}
	second, err := a.send(ctx, a.facts(2), a.reworded(2))
	if err != nil {
		return Rehearsal{}, err
	}
	if n := a.down.effects(); n != 1 {
		return fail("done %d times: %s", n, a.whyAnew()), nil
	}
	if second.Verdict.Outcome != toolguard.Replayed {
		r := fail("done once, but the second delivery was not told so: %s", told(second))
		r.late = late(second)
		return r, nil
	}
	weak := ""
	switch p := a.entry.Policy; {
	case p.RepeatAfter > 0:
		weak = "repeat_after: a second delivery that comes later than that is a new occurrence"
	case !a.subject.has("source_event") && a.entry.Policy.OncePer == nil:
		weak = "no source_event is declared: it holds as long as the host gives a second delivery the same run and step"
	case !a.subject.has("source_event") && slices.Contains(p.OncePer, "run"):
		weak = "no source_event is declared: it holds as long as the host gives a second delivery the same run"
	}
	return pass("done once; the second delivery got the recorded result", weak, a.invented()), nil
}

// whyAnew says why a second delivery was something new.
func (a *act) whyAnew() string {
	p := &a.entry.Policy
	in := func(fact string) bool {
		return p.OncePer == nil && a.subject.has(fact) || slices.Contains(p.OncePer, fact)
	}
	switch {
	case a.subject.Observe:
		return "mode: observe sends every call"
	case p.OncePer == nil && !a.subject.has("source_event") && !a.subject.has("run") && !a.subject.has("step"):
		return "nothing stable says which piece of work a call belongs to: declare source_event, or once_per"
	case in("request"):
		return "its key has request, and a second delivery is another one: declare source_event in its place"
	case in("run"):
		return "its key has run, and a second delivery is another run: leave it out of the key, with once_per"
	}
	return "the second delivery had another key"
}

// invented warns of a target that a model makes up: each plan has another.
func (a *act) invented() string {
	for _, word := range a.entry.Policy.OncePer {
		if strings.HasPrefix(word, "/") && MadeUp(word) {
			return word + " looks like what a model makes up anew with each plan; the drill sent the same one twice"
		}
	}
	return ""
}

// reworded are the sample arguments with all that may differ said in other words.
func (a *act) reworded(turn int) json.RawMessage {
	v, err := keyderive.Parse(a.arguments)
	other, why := sample(a.entry, turn, func(any) bool { return true })
	o, err2 := keyderive.Parse(other)
	if err != nil || why != nil || err2 != nil {
		return a.arguments
	}
	for _, p := range a.entry.Policy.MayDiffer {
		if pointer, err := keyderive.ParsePointer(p); err == nil {
			if x, ok := pointer.Lookup(o); ok {
				v = replaced(v, strings.Split(p, "/")[1:], x)
			}
		}
	}
	text := keyderive.AppendCanonical(nil, v)
	if args, err := keyderive.Parse(text); err != nil || a.entry.Validate(args) != nil {
		return a.arguments
	}
	return text
}

// replaced is v with x at a path of members, where they are there.
func replaced(v any, path []string, x any) any {
	if len(path) == 0 {
		return x
	}
	m, ok := v.(map[string]any)
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	if !ok || m[name] == nil {
		return v
	}
	out := map[string]any{}
	for k, old := range m {
		out[k] = old
	}
	out[name] = replaced(m[name], path[1:], x)
	return out
}

// timedOut: the downstream does it, but no answer comes, or an error. The agent tries again.
func timedOut(ctx context.Context, a *act) (Rehearsal, error) {
	var out Rehearsal
	for _, way := range []struct {
		manner manner
		after  string
	}{{silent, "no answer"}, {timesOut, `the answer "timed out"`}, {cryptic, "an error that could mean anything"}} {
		if err := a.anew(ctx); err != nil {
			return out, err
		}
		a.down.behave(way.manner)
		r, err := a.retried(ctx, way.after, func() (*toolguard.Result, error) {
			return a.send(ctx, a.facts(1), a.arguments)
		})
		if err != nil {
			return r, err
		}
		r.Calls, r.Effect = a.down.calls(), a.down.effects()
		switch {
		case way.manner == silent:
			out = r
		case r.Result != Fail:
			out.Weak = append(out.Weak, r.Weak...)
		case way.manner == cryptic && a.entry.Policy.Errors == registry.ErrorRefused:
			out.Weak = append(out.Weak, fmt.Sprintf("errors: refused rests on your server never answering with an error after it has acted: the drill's did, and with the retry it was done %d times", r.Effect))
		case out.Result != Fail:
			out = r
		}
	}
	slices.Sort(out.Weak)
	out.Weak = slices.Compact(out.Weak)
	return out, nil
}

// restarted: the process dies after the downstream had the call, and before its answer. The next one takes over.
func restarted(ctx context.Context, a *act) (Rehearsal, error) {
	a.down.behave(hangs)
	return a.retried(ctx, "the restart", func() (*toolguard.Result, error) {
		gone, leave := context.WithCancel(ctx)
		got := make(chan *toolguard.Result, 1)
		go func() {
			r, _ := a.send(gone, a.facts(1), a.arguments)
			got <- r
		}()
		var r *toolguard.Result
		select {
		case <-a.down.came:
		case r = <-got:
			leave()
			return r, nil
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
		err := a.leave() // while the call is on its way
		leave()
		if r = <-got; err == nil {
			err = a.open(ctx)
		}
		return r, err
	})
}

// retried makes a first call that is done and not answered, and then tries again: at once, and when all that may happen by
// itself has happened.
func (a *act) retried(ctx context.Context, after string, begin func() (*toolguard.Result, error)) (Rehearsal, error) {
	first, err := begin()
	if err != nil {
		return Rehearsal{}, err
	}
	if a.down.calls() == 0 {
		r := notApplicable("the first call did not reach the downstream (%s)", told(first))
		r.late = late(first)
		return r, nil
	}
	deadline := a.entry.Policy.Timeout
	again, err := a.send(ctx, a.facts(2), a.reworded(2))
	if err != nil {
		return Rehearsal{}, err
	}
	key := again.Verdict.Key
	var op *toolguard.Operation
	if key != "" {
		if op, err = a.rest(ctx, key); err != nil {
			return Rehearsal{}, err
		}
	}
	last, err := a.send(ctx, a.facts(3), a.reworded(3))
	if err != nil {
		return Rehearsal{}, err
	}
	calls, effects := a.down.calls(), a.down.effects()
	p := &a.entry.Policy
	if a.idempotent() && !a.subject.Observe {
		if calls > 1 && a.down.times[1].Sub(a.down.times[0]) < deadline-deadline/10 {
			return fail("sent again while the first call could still arrive: an old state could follow a new one"), nil
		}
		return pass("it sets a state: it was sent again only when the first call could not arrive any more"), nil
	}
	switch {
	case effects > 1 && a.subject.Observe:
		return fail("done %d times: mode: observe sends every call", effects), nil
	case effects > 1:
		return fail("done %d times after %s: %s", effects, after, a.whyAgain()), nil
	case last.Verdict.Status == toolguard.StatusFailed || first != nil && first.Verdict.Status == toolguard.StatusFailed:
		return fail("done once, and after %s on record as refused, so that the next attempt would do it again", after), nil
	}
	if calls > 1 {
		return pass(fmt.Sprintf("done once: after %s it was sent again under the same key, and the downstream knew the key", after),
			fmt.Sprintf("that rests on the downstream honouring the key for the whole window: the drill's did, yours was not asked; had it not, it would have been done %d times", calls)), nil
	}
	weak := ""
	if op != nil && op.Status == toolguard.StatusEscalated {
		weak = "a person must find out what became of it"
		if p.Owner == "" {
			weak += ", and no owner says who"
		}
	}
	looks := ""
	if len(p.Lookups) > 0 {
		looks = "its lookups were rehearsed only as out of reach: what they say when they answer is your server's"
	}
	return pass(fmt.Sprintf("done once: after %s nothing was sent again, and the retry was told so (%s)", after, firstLine(last.Text)), weak, looks, a.invented()), nil
}

// whyAgain says why something of unknown outcome was done again.
func (a *act) whyAgain() string {
	p := &a.entry.Policy
	switch {
	case len(p.Lookups) > 0 && p.DownstreamKey.Window == 0 && len(p.NotApplied) == 0:
		return "a lookup took the answer that its service is unavailable for proof that nothing was done"
	case len(p.NotApplied) > 0:
		return "classify.not_applied takes an error for a refusal that is none: it says that its time ran out, or nothing"
	case p.DownstreamKey.Window > 0:
		return "it was sent again under another key, or after the window"
	}
	return "the retry had another key"
}

// rejected: a person says no. Nothing may happen, whoever calls again.
func rejected(ctx context.Context, a *act) (Rehearsal, error) {
	p := a.entry.Policy.Approval
	if p == nil {
		return notApplicable("no call of it needs an approval"), nil
	}
	arguments, err := a.seek(0, a.asks)
	if err != nil {
		return notApplicable("no sample arguments could be made up for which approval.when (%s) asks a person", p.When), nil
	}
	r := a.do(ctx, a.facts(1), arguments)
	if n := a.down.effects(); n > 0 {
		return fail("done before anybody was asked: %s", a.whyUnasked()), nil
	}
	if r.Verdict.Reason != toolguard.ReasonApprovalRequired {
		return notApplicable("the call was not held for an approval: %s", told(r)), nil
	}
	if err := a.decide(ctx, r, false); err != nil {
		return Rehearsal{}, err
	}
	again := a.do(ctx, a.facts(2), arguments)
	if err := a.after(ctx); err != nil {
		return Rehearsal{}, err
	}
	if n := a.down.effects(); n > 0 {
		return fail("done although it was rejected"), nil
	}
	weak := ""
	if p.When != nil { // the way round: arguments for which nobody is asked
		if around, err := a.seek(0, func(args any) bool { return !a.asks(args) && a.sameTarget(arguments, args) }); err == nil {
			a.do(ctx, a.facts(3), around)
			if a.down.effects() > 0 {
				weak = fmt.Sprintf("after the rejection a call with other arguments (%s) needed nobody's word: without once_per on what it acts on it is another operation", around)
			}
		}
	}
	if again.Verdict.Reason != toolguard.ReasonApprovalRejected {
		return fail("not done, but the next call was not told that it was rejected: %s", told(again)), nil
	}
	return pass("not done; the next call was told that a person rejected it", weak), nil
}

func (a *act) whyUnasked() string {
	if a.subject.Observe {
		return "mode: observe sends every call"
	}
	return "the call was sent"
}

// sameTarget reports whether arguments have the same values as others in what the policy calls the target.
func (a *act) sameTarget(text json.RawMessage, args any) bool {
	v, err := keyderive.Parse(text)
	if err != nil {
		return false
	}
	for _, p := range a.entry.Policy.OncePer {
		pointer, err := keyderive.ParsePointer(p)
		if !strings.HasPrefix(p, "/") || err != nil {
			continue
		}
		x, _ := pointer.Lookup(v)
		y, _ := pointer.Lookup(args)
		if string(keyderive.AppendCanonical(nil, x)) != string(keyderive.AppendCanonical(nil, y)) {
			return false
		}
	}
	return true
}

// changed: the same operation comes with other arguments, after it was done, and after its answer was lost.
func changed(ctx context.Context, a *act) (Rehearsal, error) {
	p := &a.entry.Policy
	switch {
	case a.idempotent():
		return notApplicable("it sets a state: a call with other arguments sets another one, and the last one counts"), nil
	case p.OncePer == nil:
		return notApplicable("no once_per: a call with other arguments is another operation, which is held only while the first one is in doubt"), nil
	}
	names, others := a.variants()
	if len(others) == 0 {
		return notApplicable("none of its arguments can be changed: all are part of the target, or may differ, or the schema allows no other value"), nil
	}
	for _, m := range []manner{answers, timesOut} {
		if err := a.anew(ctx); err != nil {
			return Rehearsal{}, err
		}
		a.down.behave(m)
		first, err := a.send(ctx, a.facts(1), a.arguments)
		if err != nil {
			return Rehearsal{}, err
		}
		if m == answers {
			if r, stop := a.unread(first); stop {
				return r, nil
			}
			first.Delivered()
			if err := a.elsewhere(ctx); err != nil {
				return Rehearsal{}, err
			}
		}
		for i, other := range others {
			r, err := a.send(ctx, a.facts(1), other)
			if err != nil {
				return Rehearsal{}, err
			}
			if n := a.down.effects(); n > 1 {
				return fail("done %d times: another value of %s went through%s", n, names[i], a.whyChanged(m)), nil
			}
			if r.Verdict.Outcome != toolguard.Blocked {
				return fail("another value of %s was not refused: %s", names[i], told(r)), nil
			}
		}
	}
	weak := ""
	for _, pointer := range p.MayDiffer {
		if telling(a.arguments, pointer) {
			weak = fmt.Sprintf("may_differ has %s, a number: a call with another one is answered as done", pointer)
		}
	}
	return pass(fmt.Sprintf("another value of %s was refused each time, and named", strings.Join(names, ", ")), weak), nil
}

func (a *act) whyChanged(m manner) string {
	switch {
	case a.subject.Observe:
		return " (mode: observe sends every call)"
	case m == timesOut:
		return " after the answer \"timed out\": " + a.whyAgain()
	case a.entry.Policy.RepeatAfter > 0:
		return " (repeat_after)"
	}
	return ""
}

// telling reports whether the argument is a number.
func telling(arguments json.RawMessage, pointer string) bool {
	v, err := keyderive.Parse(arguments)
	p, err2 := keyderive.ParsePointer(pointer)
	if err != nil || err2 != nil {
		return false
	}
	x, _ := p.Lookup(v)
	_, ok := x.(json.Number)
	return ok
}

const maxVariants = 8

// variants are the sample arguments with another value of one argument each that is neither target nor may differ, and
// the names of these. Where an argument is not there, it is added.
func (a *act) variants() (names []string, out []json.RawMessage) {
	p := &a.entry.Policy
	v, err := keyderive.Parse(a.arguments)
	base, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, nil
	}
	root, err := schemaOf(a.entry.InputSchema)
	if err != nil {
		return nil, nil
	}
	spoken := slices.Concat(p.OncePer, p.MayDiffer, []string{p.DownstreamKey.Argument})
	for turn := 1; turn < 4 && len(out) < maxVariants; turn++ {
		m := &maker{root: root, turn: turn, whole: true}
		made, _ := m.make(root, "", 0).(map[string]any)
		for _, name := range sortedKeys(made) {
			pointer := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			if slices.Contains(names, pointer) || len(out) == maxVariants || slices.ContainsFunc(spoken, func(s string) bool { return s == pointer || strings.HasPrefix(s, pointer+"/") }) {
				continue
			}
			with := map[string]any{}
			for k, x := range base {
				with[k] = x
			}
			with[name] = made[name]
			args, err := checked(a.entry, with)
			if err != nil || a.sameDigest(args) || a.entry.Reads(a.input(args)) {
				continue
			}
			names, out = append(names, pointer), append(out, keyderive.AppendCanonical(nil, args))
		}
	}
	return names, out
}

// sameDigest reports whether arguments are, for the policy, those of the sample.
func (a *act) sameDigest(args any) bool {
	v, err := keyderive.Parse(a.arguments)
	if err != nil {
		return true
	}
	deriver, f := a.entry.Deriver.WithVeil(func(secret []byte) string { return keyderive.Digest(secret) }), a.input(nil).Facts
	x, err := deriver.Derive(a.entry.Action(), f, v)
	y, err2 := deriver.Derive(a.entry.Action(), f, args)
	return err != nil || err2 != nil || x.MaterialDigest == y.MaterialDigest
}
