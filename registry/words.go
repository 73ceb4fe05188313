package registry

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// RefusalWords are the words by which, under [ErrorWords], an error answer tells that nothing was done. They count
// in the first line of its text, as whole words whatever their case; "_", "-" and camelCase part words, so that
// PERMISSION_DENIED and ResourceNotFound are found. The HTTP statuses 400, 401, 403, 404, 405, 406, 410, 411, 413,
// 415 and 422 count too, right after "HTTP", "status", "code" or "error".
//
// Each was asked: may it stand in an answer after the effect has happened? So there is no "conflict" (a merge that
// stopped half-way has them), no "duplicate" (of an attempt that may be our own), no "failed", no "exceeds" (the
// answer, not the request, may be too long), no bare "missing", "required", "permission" or "insufficient", and no
// "rate limit" (the second of a tool's three requests may hit it): where those are refusals, classify.not_applied
// says so. "already exists" is in, for what refuses the second of two makes no second.
//
// The list is there to be read; what is done to it changes nothing.
var RefusalWords = []string{
	// not there
	"not found", "no such", "does not exist", "doesn't exist", "do not exist", "don't exist",
	"cannot find", "can't find", "could not find", "couldn't find", "unable to find",
	// not understood
	"invalid", "not valid", "malformed", "bad request", "must be", "must not be", "is required", "are required",
	"required property", "required parameter", "required argument", "required field", "missing required",
	"is missing", "are missing", "missing parameter", "missing argument", "missing field", "missing property",
	"validation error", "validation failed", "unknown tool", "unknown parameter", "unknown argument",
	"unknown field", "unrecognized", "unsupported", "not supported", "out of range",
	// not allowed
	"denied", "forbidden", "unauthorized", "unauthorised", "unauthenticated", "not authorized", "not authorised",
	"not allowed", "not permitted", "no permission", "not have permission", "don't have permission",
	"doesn't have permission", "missing permission", "insufficient permission", "insufficient permissions",
	"insufficient privileges", "insufficient scope",
	// not wanted
	"rejected", "refused", "declined", "already exists", "insufficient funds", "insufficient balance",
	"insufficient credit", "insufficient stock",
}

// DoubtWords are the words that take a refusal back: anywhere in the text of an error answer they tell of a
// time-out, a lost connection, an interruption, a server's own failure, a reply that got lost after the effect
// (output that fails its own schema), or of a part that was done. So do whole numbers from 500 to 599, unless they
// follow a comparison, "#", "/", "$" or a decimal point; "N of M", "N/M" and "some …" (but not "some fields",
// "some parameters" and the like); and what tells that something happened, by [EffectWords].
//
// The list is there to be read; what is done to it changes nothing.
var DoubtWords = []string{
	// time-out
	"timeout", "timeouts", "timed out", "time out", "timing out", "took too long", "deadline", "etimedout",
	// connection
	"connection", "failed to connect", "could not connect", "cannot connect", "unable to connect", "disconnected",
	"reset", "network", "socket", "dial tcp", "dial udp", "broken pipe",
	"hang up", "hung up", "eof", "unreachable", "dns", "econnreset", "econnrefused", "econnaborted", "epipe",
	"enotfound", "enetunreach", "ehostunreach", "eai again",
	// interruption
	"interrupted", "interrupt", "aborted", "abort", "cancelled", "canceled", "cancellation", "killed", "crashed",
	"crash", "panic", "terminated", "shutting down", "shut down",
	// 5xx
	"internal server error", "internal error", "server error", "bad gateway", "gateway error", "unavailable",
	"overloaded", "temporarily", "temporary", "try again", "retry", "unknown error", "unexpected error", "5xx",
	// the reply, not the request
	"invalid response", "bad response", "no response", "empty response", "malformed response", "response body",
	"reading response", "parse response", "parsing response", "decode response", "decoding response", "unmarshal",
	"invalid character", "unexpected token", "unexpected end", "invalid json", "output validation", "output schema",
	"structured content",
	// a part
	"partial", "partially", "partly", "others", "the rest", "rolled back", "rollback", "successfully",
	"succeeded", "all but", "went through", "gone through", "took effect", "on its way", "post commit", "post receive",
	"post merge", "post update",
}

var (
	refusalWords = padded(RefusalWords)
	doubtWords   = padded(DoubtWords)
	outputWords  = padded([]string{"output validation", "output schema", "structured content"})
	existsWords  = padded([]string{"already exists", "already exist", "duplicate", "already recorded", "already processed"})

	refusalStatuses = []int{400, 401, 403, 404, 405, 406, 410, 411, 413, 415, 422}

	// requestWords are what "some" may stand before in a plain refusal.
	requestWords = []string{"fields", "parameters", "params", "arguments", "args", "properties", "values", "inputs",
		"required", "input"}

	fraction = regexp.MustCompile(`(^|[^\d/])\d+/\d+([^\d/]|$)`)
)

// padded returns words as spaced writes them, each between spaces.
func padded(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = spaced(w)
	}
	return out
}

// spaced returns the words of a text in lower case, with one space before, between and behind: what is neither a
// letter nor a digit parts words, and so does a capital after a small letter, or before one.
func spaced(text string) string {
	var b strings.Builder
	b.Grow(len(text) + 8)
	b.WriteByte(' ')
	last, gap := ' ', true
	space := func() {
		if !gap {
			b.WriteByte(' ')
			gap = true
		}
	}
	for i, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			space()
		} else {
			if unicode.IsUpper(r) && (unicode.IsLower(last) || unicode.IsUpper(last) && startsLower(text[i:])) {
				space()
			}
			b.WriteRune(unicode.ToLower(r))
			gap = false
		}
		last = r
	}
	space()
	return b.String()
}

// startsLower tells whether the second character of text is a small letter.
func startsLower(text string) bool {
	second := false
	for _, r := range text {
		if second {
			return unicode.IsLower(r)
		}
		second = true
	}
	return false
}

// contains tells whether one of the padded words stands in a spaced text.
func contains(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// refuses tells whether the first line of a text has a refusal word.
func refuses(text string) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if contains(spaced(line), refusalWords) {
		return true
	}
	return hasNumber(line, func(n int, before string) bool {
		words := strings.Fields(spaced(before))
		if len(words) > 0 && isDigits(words[len(words)-1]) { // HTTP/1.1 404
			words = slices.DeleteFunc(words, isDigits)
		}
		return slices.Contains(refusalStatuses, n) && len(words) > 0 &&
			slices.Contains([]string{"http", "status", "code", "error"}, words[len(words)-1])
	})
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// doubtful tells whether anything in a text takes a refusal back.
func doubtful(text string) bool {
	words := spaced(text)
	if contains(words, doubtWords) || partDone(strings.Fields(words)) ||
		strings.Contains(text, "/") && fraction.MatchString(text) || happened(text) {
		return true
	}
	return hasNumber(text, func(n int, before string) bool { return 500 <= n && n <= 599 && !compared(before) })
}

// partDone tells whether words speak of a part of many.
func partDone(words []string) bool {
	word := func(i int) string {
		if i < 0 || i >= len(words) {
			return ""
		}
		return words[i]
	}
	for i, w := range words {
		switch {
		case w == "some":
			if next := word(i + 1); next != "" && !slices.Contains(requestWords, next) {
				return true
			}
		case w == "of":
			before, behind := i-1, i+1
			if word(before) == "out" {
				before--
			}
			if word(behind) == "the" {
				behind++
			}
			if isDigits(word(before)) && isDigits(word(behind)) {
				return true
			}
		}
	}
	return false
}

// compared tells whether a number behind this is no status: a limit, a reference, a sum of money, a path.
func compared(before string) bool {
	before = strings.ToLower(strings.TrimRight(before, " "))
	for _, s := range []string{"<", ">", "<=", ">=", "≤", "≥", "#", "/", "$", "€", "£", " than", " at most", " at least",
		" exceed", " exceeds"} {
		if strings.HasSuffix(before, s) {
			return true
		}
	}
	return false
}

// hasNumber tells whether f holds for a whole number of three digits in text, given what stands before it.
func hasNumber(text string, f func(n int, before string) bool) bool {
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) {
			continue
		}
		start := i
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		if i-start == 3 && !glued(text, start, i) {
			n := int(text[start]-'0')*100 + int(text[start+1]-'0')*10 + int(text[start+2]-'0')
			if f(n, text[:start]) {
				return true
			}
		}
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// glued tells whether text[start:end] is part of a longer word or number: a500, 1,500, 500.25.
func glued(text string, start, end int) bool {
	word := func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c >= 0x80 }
	if start > 0 {
		c := text[start-1]
		if word(c) && c < 0x80 || (c == '.' || c == ',') && start > 1 && isDigit(text[start-2]) {
			return true
		}
	}
	if end < len(text) {
		c := text[end]
		return word(c) && c < 0x80 || (c == '.' || c == ',') && end+1 < len(text) && isDigit(text[end+1])
	}
	return false
}

var (
	keyWords   = padded([]string{"idempotency", "idempotent", "idempotence", "key", "request id", "client token"})
	reuseWords = padded([]string{"already used", "already been used", "already in use", "in use", "reused", "reuse",
		"previously used", "duplicate", "conflict", "mismatch", "locked", "other than", "same"})
	otherWords = padded([]string{"different request", "different requests", "different parameters", "different parameter",
		"different payload", "different body", "different arguments", "different input", "different content",
		"another request", "with other parameters", "with other arguments", "same parameters", "parameters mismatch",
		"parameter mismatch", "request mismatch", "payload mismatch"})
	progressWords = padded([]string{"in progress", "inprogress", "in flight", "still being processed", "being processed",
		"still processing", "already processing", "already running", "currently processing", "currently being",
		"concurrent request", "concurrent requests", "outstanding"})
	idempotencyWords = keyWords[:3]
)

// keyTrouble tells whether an answer says that our key was used with something else, or is in use right now. Of an
// answer that is no error the words must speak of idempotency: it may only quote what it made.
func keyTrouble(v *view, key string) bool {
	text := v.text
	if v.isError {
		text += "\n" + v.structuredText()
	}
	words := spaced(text)
	ours := contains(words, keyWords) || key != "" && strings.Contains(text, key)
	if !v.isError {
		_, wrapped := onlyMember(v.structured)
		return (!v.hasStructured || wrapped) && contains(words, idempotencyWords) && contains(words, otherWords)
	}
	return contains(words, otherWords) || contains(words, progressWords) || ours && contains(words, reuseWords)
}
