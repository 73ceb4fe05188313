package registry

import (
	"regexp"
	"strings"
)

// EffectWords are the words by which an error answer tells that something did happen, its refusal words
// notwithstanding: "Order placed; confirmation email rejected". Each takes the refusal back wherever it stands in the
// text, unless it is plain that it tells of nothing done:
//
//   - it is denied or wished for in its clause: "not sent", "nothing was sent", "could not be created", "must be
//     updated", "if it was deleted", "invalid file uploaded", "0 rows updated", "one of: draft, published";
//   - it is part of a name, or a value in quotes: created_at, "Sent Items", status 'paid';
//   - it describes a thing the request names: "the uploaded file is invalid", "saved search not found";
//   - it gives the reason of a rule: "cannot be changed after the order was placed".
//
// A clause ends with punctuation and before words such as "but", "after" and "because". Also told as done: a count
// ("ok: 3, failed: 2", "2 skipped"), "after creating", and JSON members such as "created": true.
//
// The list is there to be read; what is done to it changes nothing.
var EffectWords = []string{
	"charged", "captured", "paid", "refunded", "debited", "credited", "transferred", "settled", "withdrawn", "billed",
	"invoiced", "ordered", "purchased", "booked", "placed", "issued", "shipped", "confirmed",
	"sent", "resent", "delivered", "emailed", "posted", "published", "submitted", "forwarded", "dispatched",
	"created", "added", "inserted", "imported", "uploaded", "saved", "stored", "persisted", "written", "overwritten",
	"updated", "upserted", "appended", "applied", "committed", "merged", "pushed", "deployed", "installed",
	"deleted", "removed", "dropped", "erased", "moved", "renamed", "marked",
	"started", "launched", "triggered", "queued", "enqueued", "scheduled", "processed", "executed", "completed",
	"finished", "initiated", "opened", "invited", "subscribed", "activated", "granted", "copied", "cloned", "replaced",
	"restored", "tagged",
}

var (
	effectWords = set(EffectWords...)

	// looseWords tell of an effect only where a statement ends with them: "Issue closed; comment rejected", but not
	// "Not permitted: issue closed".
	looseWords = set("made", "done", "complete", "received", "closed", "archived", "approved", "assigned", "accepted",
		"registered", "reserved", "authorized", "authorised", "changed", "revoked", "generated", "performed",
		"resolved", "stopped")

	countedWords = set("ok", "success", "successes", "successful", "accepted", "skipped", "ignored")

	// adjectives are the effect words that describe what a request names, rather than what came of it.
	adjectives = set("uploaded", "submitted", "saved", "stored", "scheduled", "published", "deleted", "removed",
		"completed", "sent", "posted", "confirmed", "queued", "deployed", "merged", "issued", "started", "marked",
		"archived", "closed", "finished", "installed")
	// requestVerbs are those that tell of the request's own way: "the value submitted for x is invalid".
	requestVerbs = set("sent", "submitted", "posted", "uploaded")
	beforeNoun   = set("a", "an", "the", "this", "that", "these", "those", "your", "my", "our", "their", "its", "any",
		"all", "every", "each", "other", "only", "of", "for", "on", "in", "with", "at", "per", "to", "from", "and", "or",
		"specified", "given", "requested", "current", "existing", "previous")
	predicates = set("is", "are", "not", "cannot", "can", "must", "does", "do", "doesn", "has", "have", "could",
		"couldn", "should", "exceeds", "contains", "required", "missing", "invalid", "denied", "forbidden", "too",
		"needs", "requires", "may", "isn", "aren", "don")
	valueNouns = set("values", "value", "formats", "format", "types", "type", "options", "statuses", "states",
		"extensions", "methods", "date", "time", "at", "by")
	names = set("stored procedure", "stored procedures", "paid plan", "paid plans", "paid tier", "paid feature",
		"paid account", "sent items", "deleted items", "merged cell", "merged cells", "getting started",
		"last updated", "last sent", "last saved", "token issued")

	// behind a participle these tell that it is none: "the amount paid must be", and, of a field, "key created is".
	modals    = set("must", "should", "cannot", "can", "may")
	fieldIs   = set("is", "are", "does", "has")
	fieldName = set("field", "property", "key", "parameter", "param", "argument", "attribute", "column",
		"option", "time", "date")

	negations = set("not", "never", "t", "cannot", "no", "nothing", "none", "nobody", "neither", "nor",
		"without", "unable", "failed", "fails", "failing", "failure", "instead", "prevented", "zero", "0")
	unnegated = set("all", "every", "everything", "only", "just", "fully", "completely", "entirely",
		"further", "else", "other", "more", "additional", "longer")
	noneDone   = set("no", "nothing", "none", "nobody", "neither", "zero", "0")
	conditions = set("if", "whether", "unless", "until", "before", "once", "who", "would", "should", "must", "otherwise",
		"ensure", "sure", "check")
	choices = set("expected", "allowed", "valid", "supported", "available", "either", "choose", "permitted", "enum",
		"than", "exceed", "exceeds")
	faults = set("invalid", "malformed", "unsupported", "unknown", "missing", "bad", "unrecognized",
		"incorrect", "unexpected")

	// helpers stand between a subject or a negation and its participle.
	helpers = set("be", "been", "being", "was", "were", "is", "are", "am", "got", "get", "has", "have", "had",
		"already", "yet", "ever", "also", "now", "just", "then", "successfully", "automatically", "currently",
		"previously", "recently", "actually", "even", "still", "safely", "directly")
	auxiliaries = set("been", "being", "was", "were", "is", "are", "got", "has", "have", "had")

	conjunctions = set("but", "however", "although", "though", "while", "whereas", "after", "because", "since",
		"then", "so", "despite")
	contrasts   = set("but", "however", "although", "though", "yet")
	transitions = set("from", "transition", "transitions")
	alternative = set("or")
	removals    = set("deleted", "removed", "moved", "renamed")
	lookUps     = set("find", "locate", "get", "read", "fetch", "load", "open", "retrieve", "resolve", "see", "verify",
		"reach", "confirm", "determine", "send", "notify")

	// afterNouns are what an effect is called in "after the payment"; noEffects are no effects in "after checking".
	afterNouns = set("payment", "charge", "capture", "commit", "creation", "insert", "insertion", "update", "upload",
		"delivery", "submission", "merge", "deploy", "deployment", "deletion", "transfer", "checkout", "booking",
		"purchase", "publication", "refund", "save", "write", "import", "send")
	noEffects = set("searching", "looking", "checking", "validating", "parsing", "reading", "trimming", "normalizing",
		"resolving", "filtering", "decoding", "expanding", "stripping", "waiting", "listing", "comparing", "loading",
		"string", "anything", "everything", "nothing", "thing", "beginning", "opening", "scanning", "fetching")

	// echoes are addresses, paths, and what is known to quote the arguments.
	echoes = regexp.MustCompile(`\w+://\S*[^\s.,;:!?)]|\w[\w.-]*(?:/[\w.-]*\w){2,}|` +
		`(?:^|\s)[~.]{0,2}/\S*[^\s.,;:!?)]|input_value=[^\n]*?, input_type=|exact match for edit:(?s:.*)`)
	// doneMember is a member that counts or affirms: "created": true, 'accepted': 3, "sent": ["a@example.com"].
	doneMember = regexp.MustCompile(`["'](\w+)\\?["']\s*:\s*(?:[tT]rue\b|[1-9]\d{0,7}\b|\[\s*[^\]\s])`)
)

// maxStatement is how many bytes of an error are read for what they tell. Longer ones are no plain refusals.
const maxStatement = 128 << 10

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// happened tells whether an error answer's text says that something was done: see [EffectWords].
func happened(text string) bool {
	text = echoes.ReplaceAllString(text, " ")
	if len(text) > maxStatement {
		return true
	}
	for _, m := range doneMember.FindAllStringSubmatch(text, -1) {
		if name := strings.ToLower(m[1]); effectWords[name] || name == "ok" || name == "success" || name == "accepted" || name == "done" {
			return true
		}
	}
	s := statementOf(text)
	for i := range s {
		if s.tellsAt(i) {
			return true
		}
	}
	return false
}

// tellsAt tells whether the word at i says that something was done.
func (s statement) tellsAt(i int) bool {
	w := s[i]
	switch {
	case w.text == "after":
		return s.afterEffect(i)
	case countedWords[w.text] && s.counted(i), i == 0 && w.text == "success" && s.at(1) != "false":
		return true
	case w.glued: // part of a name; but ALREADY_CAPTURED
		return effectWords[w.text] && i > 0 && s[i-1].glued && s[i-1].text == "already"
	case !effectWords[w.text] && !looseWords[w.text],
		names[s.at(i-1)+" "+w.text], names[w.text+" "+s.at(i+1)]:
		return false
	}
	return s.claims(i, s.clause(i))
}

// claims is tellsAt for an effect word or a loose one in a clause that starts at start.
func (s statement) claims(i, start int) bool {
	w := s[i].text
	k := i - 1
	found := map[string]bool{}
	for k >= start && helpers[s[k].text] {
		found[s[k].text] = true
		k--
	}
	aux, before := false, ""
	for h := range found {
		aux = aux || auxiliaries[h]
	}
	if k >= start {
		before = s[k].text
		if s.negates(k) {
			return false
		}
	}
	present := found["is"] || found["are"]
	guess := before == "may" || before == "might" || before == "could"
	switch {
	case found["be"] && before != "will" && !(guess && found["already"]),
		removals[w] && (guess || s.any(start, i, alternative) && s.negated(start, i)), // why it is not there
		noneDone[s.at(i+1)] && s[i+1].sep != stop:
		return false
	case positive(s.at(i+1)) && s[i+1].sep != stop:
		return true // imported 10, created #12
	case found["already"] && effectWords[w]:
		return !s.any(start, i, conditions)
	case s.coordinated(i), s.any(start, i, conditions), s.deniedSubject(start, i),
		(!aux || requestVerbs[w]) && s.any(start, min(i, start+2), faults),
		!aux && s.negated(start, i),
		(!aux || present) && s.any(start, i, choices),
		s.ofRule(start, present || aux && (s.at(start) == "because" || s.at(start) == "since")),
		(s.at(i-1) == "to" || s.at(i-1) == "from") && s.any(start, i-1, transitions),
		s.describes(i, start, aux):
		return false
	case looseWords[w]:
		return i+1 < len(s) && (s[i+1].sep == stop || contrasts[s[i+1].text])
	}
	return true
}

// counted tells whether a number stands with the word at i: "3 accepted", "2 rows skipped", "ok: 3".
func (s statement) counted(i int) bool {
	if positive(s.at(i+1)) && s[i+1].sep != stop {
		return true
	}
	for k := i; k > max(0, i-3) && s[k].sep == none; k-- {
		if positive(s[k-1].text) {
			return true
		}
	}
	return false
}

// afterEffect tells whether "after" at i is followed by an effect, in what is no rule about such effects.
func (s statement) afterEffect(i int) bool {
	next := s.at(i + 1)
	doing := len(next) > 5 && strings.HasSuffix(next, "ing") && !noEffects[next]
	if beforeNoun[next] || next == "successful" {
		next = s.at(i + 2)
	}
	return (doing || afterNouns[next]) && !s.ofRule(i, true)
}

// negates tells whether the word at k denies what follows.
func (s statement) negates(k int) bool { return negations[s[k].text] && !unnegated[s.at(k+1)] }

// negated tells whether a word in s[from:to] denies what follows.
func (s statement) negated(from, to int) bool {
	for k := from; k < to; k++ {
		if s.negates(k) {
			return true
		}
	}
	return false
}

// deniedSubject tells whether a clause begins with nothing: "nothing was", "no message has been", "0 rows were".
func (s statement) deniedSubject(start, i int) bool {
	for k := start; k < min(i, start+2); k++ {
		if (noneDone[s[k].text] || k == start) && s.negates(k) {
			return true
		}
	}
	return false
}

// coordinated tells whether the word at i shares the verdict on the effect word before it: "moved or deleted".
func (s statement) coordinated(i int) bool {
	judged := func(k int) bool { return effectWords[s.at(k)] && !s[k].glued }
	switch s.at(i - 1) {
	case "or", "and":
		return judged(i - 2)
	}
	return s[i].sep == pause && judged(i-1) && (i+1 == len(s) || s[i+1].sep != none)
}

// describes tells whether the effect word at i only describes a thing the request names.
func (s statement) describes(i, start int, aux bool) bool {
	w := s[i].text
	if i+1 == len(s) || s[i+1].sep != none || s.parts(i+1) {
		return false
	}
	if valueNouns[s[i+1].text] && (i == start || faults[s.at(i-1)] || w == "accepted") {
		return true
	}
	if next := s[i+1].text; !aux && (modals[next] || fieldIs[next] && i > start && fieldName[s[i-1].text]) {
		return true
	}
	predicated := false
	for k := i + 1; k < min(len(s), i+12) && s[k].sep == none && !s.parts(k); k++ {
		predicated = predicated || predicates[s[k].text]
	}
	if requestVerbs[w] && !aux && predicated {
		return true
	}
	return adjectives[w] && !aux && (i > start && (beforeNoun[s[i-1].text] || faults[s[i-1].text]) || i == start && predicated)
}

// ofRule tells whether the clause at start gives the circumstances of a rule before it: "cannot be changed after the
// order was placed", and, of a present state, "cannot update: the page is published".
func (s statement) ofRule(start int, present bool) bool {
	w := s.at(start)
	after := w == "after"
	if start == 0 || !after && !(present && (s[start].sep == pause || w == "because" || w == "since")) {
		return false
	}
	for k := s.clause(start - 1); k < start; k++ {
		next := s.at(k + 1)
		switch s[k].text {
		case "cannot", "t":
			if (s[k].text == "cannot" || s.at(k-1) == "can") && !lookUps[next] {
				return true
			}
		case "not":
			if after && (next == "allowed" || next == "permitted") || s.at(k-1) == "may" {
				return true
			}
		case "must", "only":
			if after {
				return true
			}
		}
	}
	return false
}
