package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// request is a request for approval with what it is about.
type request struct {
	*toolguard.Approval
	Key        string          `json:"key"`
	Tool       string          `json:"tool"`
	Occurrence int             `json:"occurrence"`
	Facts      keyderive.Facts `json:"facts"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // exactly what would be sent
}

func requestOf(r people.Request) request {
	op := r.Operation
	return request{r.Approval, op.Key, op.Action, op.Occurrence, op.Facts, r.Arguments}
}

var states = []toolguard.ApprovalState{toolguard.ApprovalOpen, toolguard.ApprovalApproved, toolguard.ApprovalRejected, toolguard.ApprovalSpent, toolguard.ApprovalExpired}

func (x *exchange) approvals() error {
	q, err := x.query("state", "cursor", "limit")
	if err != nil {
		return err
	}
	state := toolguard.ApprovalState(q.Get("state"))
	if state != "" && !slices.Contains(states, state) {
		return problem{http.StatusBadRequest, "parameter", fmt.Sprintf("There is no state %.40q.", state)}
	}
	before, limit, err := page(q)
	if err != nil {
		return err
	}
	found, after, err := x.desk.Requests(x.r.Context(), state, before, limit)
	if err != nil {
		return err
	}
	out := &struct {
		Approvals []request `json:"approvals"`
		Next      string    `json:"next,omitempty"`
	}{[]request{}, next(after)}
	for _, r := range found {
		out.Approvals = append(out.Approvals, requestOf(r))
	}
	return x.answer(out)
}

func (x *exchange) approval() error {
	if _, err := x.query(); err != nil {
		return err
	}
	id := x.r.PathValue("id")
	key, _, _ := strings.Cut(id, ".")
	op, err := x.desk.Operation(x.r.Context(), key)
	if err == nil && (op.Approval == nil || op.Approval.ID != id) {
		err = fmt.Errorf("approval %.80s, or it was withdrawn: %w", id, toolguard.ErrNotFound)
	}
	if err != nil {
		return err
	}
	body, err := x.desk.Body(x.r.Context(), key)
	if err != nil {
		return err
	}
	a := *op.Approval
	a.State = a.Stands(time.Now())
	out := requestOf(people.Request{Approval: &a, Operation: op, Arguments: body.Arguments})
	return x.answer(&out)
}

func (x *exchange) decide(approve bool) error {
	var in struct {
		Digest string `json:"digest"`
		Note   string `json:"note"`
	}
	if err := x.read(&in); err != nil {
		return err
	}
	if err := note(in.Note); err != nil {
		return err
	}
	return x.decided(x.desk.Decide(x.r.Context(), toolguard.ApprovalVerdict{ID: x.r.PathValue("id"), Approve: approve, Digest: in.Digest, Note: in.Note}))
}
