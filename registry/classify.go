package registry

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Outcome is what an answer, or the lack of one, proves about the attempt.
type Outcome string

const (
	Succeeded  Outcome = "succeeded"  // the tool did it
	Failed     Outcome = "failed"     // known not to have happened
	Unknown    Outcome = "unknown"    // may have happened
	Incomplete Outcome = "incomplete" // the tool asks for more, or goes on by itself: this settles nothing
)

// Classification is what [Entry.Classify] found.
type Classification struct {
	Outcome      Outcome
	Sent         bool   // a byte may have left for the tool
	Answered     bool   // the tool itself answered: a result, or a protocol error
	Exists       bool   // it says that what we ask for is there already, and names our key: evidence that an attempt did it
	Empty        bool   // the answer says nothing at all: no text, no other content, nothing structured
	DownstreamID string // the downstream's name for what was made, by downstream_id: one line of at most 1 KiB, or ""
	Says         string // its own words, or the handler's error: one line of at most 500 bytes
}

const maxSays = 500

// The JSON-RPC errors that say that the request was not taken on.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
)

// statusRefusals are the HTTP statuses that say of one request that it was refused. 408, 409 (which may be about an
// attempt of our own), 423, 424 and 425 do not.
var statusRefusals = []int{400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 428, 429, 431, 451}

// maxDownstreamID is the most bytes an id of the downstream's may have.
const maxDownstreamID = 1 << 10

// Classify tells what became of an attempt from what its handler returned: an answer, or an error. key is what was
// sent downstream. Expressions that ask for arguments or facts fail here, and secrets
// are not known: see [Entry.ClassifyCall].
func (e *Entry) Classify(a Answer, err error, key string) Classification {
	return e.ClassifyCall(Input{Tool: e.Action(), Answer: &a}, err, key)
}

// ClassifyCall is [Entry.Classify] of in.Answer, with the call's arguments and facts for expressions to see. Says and
// DownstreamID are without the secrets among the arguments.
//
// Only proof makes [Failed]: an error that wraps [ErrNotSent] or [ErrNotApplied]; an answer that the policy's
// not_applied recognises and its unknown does not; a JSON-RPC error -32700, -32600, -32601 or -32602, unless it
// speaks of the output or of an effect, or comes with an HTTP status from 500 on; an error answer with a refusal word and no doubt ([RefusalWords],
// [DoubtWords], [EffectWords]), or, as the policy has it, any without doubt or none at all; or under
// [ErrorStatus] the HTTP statuses by which a server refuses a request: 400 to 407, 410 to 417, 421, 422, 426, 428, 429,
// 431 and 451. A condition that fails
// counts as unmatched for not_applied and as matched for unknown, except that it does not outweigh those four codes.
// Where the downstream takes a key, an answer that the key was used with something else or is in use is never a
// refusal.
//
// An error answer that nothing recognises is [Unknown], as is an HTTP status from 500 on, a redirect, and what cannot be
// read.
//
// So is an answer that is not marked as an error but says that it is one, in any text block, in its structured content
// or in the only member of that: a text that begins with Error, Failed to, Could not and the like, or an object with
// an "error" or "errors" that is not empty, with "success" or "ok" false, or with the "status" error or failed. Other
// words do not count there: "Application rejected" is what a tool that rejects applications says when all is well.
// A false unknown costs a look by a person, a false success costs the write.
func (e *Entry) ClassifyCall(in Input, err error, key string) Classification {
	hide := e.Redactor(in.Arguments)
	if err != nil {
		return classifyError(err, hide)
	}
	if in.Answer == nil {
		return Classification{Outcome: Unknown, Sent: true}
	}
	a := in.Answer
	v := a.view()
	c := Classification{Sent: true, Answered: a.Error != nil || len(a.Result) > 0, Says: v.says(a, hide), Empty: v.empty}
	act := &activation{in: in, view: v}
	c.Outcome = e.outcome(a, v, act, key)
	if c.Outcome == Incomplete || !v.readable {
		return c
	}
	c.Exists = exists(a, v, key)
	if e.Policy.DownstreamID != nil {
		if id, err := e.Policy.DownstreamID.text(act); err == nil {
			c.DownstreamID = plainID(id, hide)
		}
	}
	return c
}

// plainID returns an id without the space around it; "" for what is too long, more than one line or no UTF-8, or has a
// secret in it: with another id in its place, a lookup would find nothing and take that for an absence.
func plainID(id string, hide *Redactor) string {
	id = strings.TrimSpace(id)
	if hide.Text(id) != id || len(id) > maxDownstreamID || !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}) {
		return ""
	}
	return id
}

func classifyError(err error, hide *Redactor) Classification {
	c := Classification{Outcome: Unknown, Sent: true, Says: oneLine(hide.Text(err.Error()), maxSays)}
	switch {
	case errors.Is(err, ErrNotSent):
		c.Outcome, c.Sent = Failed, false
	case errors.Is(err, ErrNotApplied):
		c.Outcome = Failed
	}
	return c
}

func (e *Entry) outcome(a *Answer, v *view, act *activation, key string) Outcome {
	switch {
	case !v.readable:
		return Unknown
	case v.incomplete:
		return Incomplete
	}
	byPolicy := e.policyOutcome(act, protocolRefusal(a))
	switch {
	case byPolicy == Unknown:
		return Unknown
	case e.honoursKey() && keyTrouble(v, key):
		return Unknown
	case byPolicy == Failed:
		return Failed
	case a.Error != nil:
		if protocolRefusal(a) {
			return Failed
		}
		return Unknown
	case a.Status >= 500, a.Status >= 300 && a.Status < 400:
		return Unknown // a redirect is not followed, and some answer so to what they have done
	case v.isError:
		return e.errorOutcome(a, v)
	case v.saysError:
		return Unknown
	}
	return Succeeded
}

func (e *Entry) honoursKey() bool {
	k := e.Policy.DownstreamKey
	return k.Argument != "" || k.Meta != "" || k.Header != ""
}

// policyOutcome is what the policy's conditions say, "" if nothing. proven: a condition that fails does not count.
func (e *Entry) policyOutcome(act *activation, proven bool) Outcome {
	for _, x := range e.Policy.Unknown {
		if yes, err := x.bool(act); yes || err != nil && !proven {
			return Unknown
		}
	}
	for _, x := range e.Policy.NotApplied {
		if yes, err := x.bool(act); yes && err == nil {
			return Failed
		}
	}
	return ""
}

// protocolRefusal tells whether the answer is a JSON-RPC error of one of the codes by which a request is not taken
// on. Some servers use -32602 for what goes wrong after the tool has run, such as output that does not fit its schema;
// under an HTTP status from 500 on, none of them proves anything.
func protocolRefusal(a *Answer) bool {
	if a.Error == nil || a.Status >= 500 || contains(spaced(a.Error.Message), outputWords) || happened(a.Error.Message) {
		return false
	}
	switch a.Error.Code {
	case codeParse, codeInvalidRequest, codeNoMethod, codeInvalidParams:
		return true
	}
	return false
}

// errorOutcome reads an error answer that no condition recognised.
func (e *Entry) errorOutcome(a *Answer, v *view) Outcome {
	mode := e.Policy.Errors
	if mode == "" && e.Policy.Approval != nil {
		mode = ErrorUnknown // what a person had to look at, a person looks at again
	}
	if mode == ErrorStatus && slices.Contains(statusRefusals, a.Status) {
		return Failed // whatever words, and numbers, are in the body
	}
	if a.Status == 408 || mode == ErrorUnknown || doubtful(v.text) || happened(v.structuredText()) {
		return Unknown
	}
	if mode == ErrorRefused || refuses(v.text) {
		return Failed
	}
	return Unknown
}

// exists tells whether an answer says that the thing is there already, and names our key.
func exists(a *Answer, v *view, key string) bool {
	if key == "" {
		return false
	}
	if a.Error == nil && !bytes.Contains(a.Result, []byte(key)) && !bytes.Contains(a.Result, []byte(`\u`)) {
		return false // what most answers are, without a copy of their text
	}
	text := v.text + "\n" + v.structuredText()
	if a.Error != nil {
		text += "\n" + string(a.Error.Data)
	}
	return strings.Contains(text, key) && contains(spaced(text), existsWords)
}

// says returns the answer's own words, without the call's secrets.
func (v *view) says(a *Answer, hide *Redactor) string {
	text := v.text
	if text == "" {
		text = v.structuredText()
	}
	if text == "" && !v.readable {
		text = string(a.Result)
	}
	text = hide.Text(text)
	if len(text) > 8*maxSays { // white space may be most of it, but not that much
		text = text[:8*maxSays]
	}
	return hide.Text(oneLine(text, maxSays))
}
