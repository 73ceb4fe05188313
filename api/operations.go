package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// query reads the request's parameters, and refuses those it does not know, or that come twice.
func (x *exchange) query(known ...string) (url.Values, error) {
	values, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return nil, problem{http.StatusBadRequest, "parameter", "The query of the address cannot be read."}
	}
	for name, of := range values {
		if !slices.Contains(known, name) || len(of) > 1 {
			return nil, problem{http.StatusBadRequest, "parameter", fmt.Sprintf("The parameter %.40q is not known here, or given twice; there are %s.", name, strings.Join(known, ", "))}
		}
	}
	return values, nil
}

// page reads cursor and limit.
func page(q url.Values) (before uint64, limit int, err error) {
	limit = 100
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > people.MaxPage {
			return 0, 0, problem{http.StatusBadRequest, "parameter", fmt.Sprintf("The limit must be from 1 to %d.", people.MaxPage)}
		}
	}
	if s := q.Get("cursor"); s != "" {
		if before, err = strconv.ParseUint(s, 10, 63); err != nil || before == 0 {
			return 0, 0, problem{http.StatusBadRequest, "parameter", "The cursor must be one that an answer gave as next."}
		}
	}
	return before, limit, nil
}

func next(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

var statuses = []toolguard.Status{toolguard.StatusAwaitingApproval, toolguard.StatusApproved, toolguard.StatusRejected, toolguard.StatusDispatching,
	toolguard.StatusSucceeded, toolguard.StatusFailed, toolguard.StatusUnknown, toolguard.StatusEscalated, toolguard.StatusAbandoned}

func (x *exchange) operations() error {
	q, err := x.query("status", "tool", "tenant", "event", "run", "cursor", "limit")
	if err != nil {
		return err
	}
	f := people.Filter{Status: q.Get("status"), Tool: q.Get("tool"), Tenant: q.Get("tenant"), Event: q.Get("event"), Run: q.Get("run")}
	if f.Status != "" && !slices.Contains(statuses, toolguard.Status(f.Status)) {
		return problem{http.StatusBadRequest, "parameter", fmt.Sprintf("There is no status %.40q.", f.Status)}
	}
	if f.Before, f.Limit, err = page(q); err != nil {
		return err
	}
	found, err := x.desk.Operations(x.r.Context(), f)
	if err != nil {
		return err
	}
	if found.Operations == nil {
		found.Operations = []*toolguard.Operation{}
	}
	return x.answer(&struct {
		Operations []*toolguard.Operation `json:"operations"`
		Next       string                 `json:"next,omitempty"`
	}{found.Operations, next(found.Next)})
}

// whole is one operation with all that is known of it.
type whole struct {
	*toolguard.Operation
	Arguments json.RawMessage      `json:"arguments,omitempty"`
	Result    json.RawMessage      `json:"result,omitempty"`
	Approvals []toolguard.Approval `json:"approvals"`
	Events    []toolguard.Event    `json:"events"`
}

// maxHistory is how many events are told with an operation; the rest is in the audit.
const maxHistory = 1000

func (x *exchange) operation() error {
	if _, err := x.query(); err != nil {
		return err
	}
	ctx := x.r.Context()
	op, err := x.desk.Operation(ctx, x.r.PathValue("key"))
	if err != nil {
		return err
	}
	o := &whole{Operation: op, Approvals: []toolguard.Approval{}}
	if o.Events, err = x.store.History(ctx, op.Key, 0, maxHistory); err != nil {
		return err
	}
	body, err := x.desk.Body(ctx, op.Key)
	if err != nil {
		return err
	}
	o.Arguments, o.Result = body.Arguments, body.Result
	if op.Approval != nil {
		o.Approvals = append(o.Approvals, *op.Approval)
	}
	return x.answer(o)
}

// decided answers with the operation as a decision left it.
func (x *exchange) decided(op *toolguard.Operation, err error) error {
	if err != nil {
		return err
	}
	return x.answer(op)
}

const maxNote = 4 << 10

func note(s string) error {
	if len(s) > maxNote {
		return problem{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("A note has at most %d bytes.", maxNote)}
	}
	return nil
}

func (x *exchange) resolve() error {
	var in struct {
		Verdict      string          `json:"verdict"`
		Occurrence   int             `json:"occurrence"`
		Attempt      int             `json:"attempt"`
		Result       json.RawMessage `json:"result"`
		DownstreamID string          `json:"downstream_id"`
		Note         string          `json:"note"`
		Force        bool            `json:"force"`
	}
	if err := x.read(&in); err != nil {
		return err
	}
	if err := note(in.Note); err != nil {
		return err
	}
	if bytes.Equal(in.Result, []byte("null")) {
		in.Result = nil
	}
	switch applied := in.Verdict == toolguard.VerdictApplied; {
	case !applied && in.Verdict != toolguard.VerdictNotApplied && in.Verdict != toolguard.VerdictAbandoned:
		return problem{http.StatusBadRequest, "verdict", "The verdict must be applied, not_applied or abandoned."}
	case !applied && (in.Result != nil || in.DownstreamID != ""):
		return problem{http.StatusBadRequest, "verdict", "A result and a downstream id go with the verdict applied only."}
	case in.Force && in.Verdict != toolguard.VerdictNotApplied:
		return problem{http.StatusBadRequest, "verdict", "force goes with the verdict not_applied only."}
	case in.Occurrence < 0 || in.Attempt < 0:
		return problem{http.StatusBadRequest, "json", "occurrence and attempt are numbers of what was looked at."}
	}
	result, err := people.Result(string(in.Result))
	if err != nil {
		return problem{http.StatusBadRequest, "json", "The result is " + err.Error()}
	}
	return x.decided(x.desk.Resolve(x.r.Context(), toolguard.Resolution{
		Key: x.r.PathValue("key"), Verdict: in.Verdict, Occurrence: in.Occurrence, Attempt: in.Attempt, Result: result, DownstreamID: in.DownstreamID, Note: in.Note, Force: in.Force,
	}))
}

func (x *exchange) repeat() error {
	var in struct {
		Occurrence int    `json:"occurrence"`
		Note       string `json:"note"`
		Force      bool   `json:"force"`
	}
	if err := x.read(&in); err != nil {
		return err
	}
	if err := note(in.Note); err != nil {
		return err
	}
	return x.decided(x.desk.Repeat(x.r.Context(), toolguard.RepeatOrder{Key: x.r.PathValue("key"), Occurrence: in.Occurrence, Note: in.Note, Force: in.Force}))
}
