package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

const (
	perQueue   = 20
	perPage    = 50
	perHistory = 200
)

// line is an operation in a list.
type line struct {
	*toolguard.Operation
	Owner string
	Now   time.Time
}

// request is a request for approval with what a person needs to decide it.
type request struct {
	people.Request
	Owner  string
	Now    time.Time
	CSRF   string
	Mine   bool // the person asked for it, and so may not approve it
	Others bool // it is for other reviewers
	May    bool // the person's role allows to decide
}

func (v *visit) request(r people.Request) request {
	out := request{Request: r, Owner: v.owner(r.Operation.Action), Now: v.now, CSRF: v.session.csrf, May: v.desk.May(people.Reviewer)}
	out.Mine = r.AskedBy(v.desk.Name)
	out.Others = len(r.Reviewers) > 0 && !slices.Contains(r.Reviewers, v.desk.Name)
	return out
}

// owner is who is asked about a tool's operations.
func (v *visit) owner(action string) string {
	for _, t := range v.served() {
		if t.Action == action {
			return t.Owner
		}
	}
	return ""
}

func (v *visit) served() []Tool {
	if v.options.Tools == nil {
		return nil
	}
	return v.options.Tools()
}

// doubt is an operation whose outcome nobody knows, with what is known.
type doubt struct {
	line
	Arguments json.RawMessage
	Says      string // the tool's own words on the latest attempt
	Arrives   bool   // the attempt may still arrive
}

// cursor reads a cursor from the address.
func (v *visit) cursor(name string) (uint64, error) {
	s := v.r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, sentence{http.StatusBadRequest, "That is no place in the list."}
	}
	return n, nil
}

// further is the address of this page with one parameter changed; "" for no cursor.
func (v *visit) further(name string, next uint64) string {
	if next == 0 {
		return ""
	}
	q := v.r.URL.Query()
	q.Del("said")
	q.Set(name, strconv.FormatUint(next, 10))
	return v.r.URL.Path + "?" + q.Encode()
}

// waiting shows what waits for a person.
func (v *visit) waiting() error {
	ctx := v.r.Context()
	var body struct {
		Requests           []request
		Doubts             []doubt
		Asked, Doubted     int
		MoreAsked, MoreOut string
		First              bool
	}
	before, err := v.cursor("approvals")
	if err != nil {
		return err
	}
	found, next, err := v.desk.Requests(ctx, toolguard.ApprovalOpen, before, perQueue)
	if err != nil {
		return err
	}
	for _, r := range found {
		body.Requests = append(body.Requests, v.request(r))
	}
	body.MoreAsked = v.further("approvals", next)
	out, err := v.cursor("outcomes")
	if err != nil {
		return err
	}
	page, err := v.desk.Operations(ctx, people.Filter{Queue: toolguard.QueueOutcome, Before: out, Limit: perQueue})
	if err != nil {
		return err
	}
	for _, op := range page.Operations {
		arguments, err := v.desk.Body(ctx, op.Key)
		if err != nil {
			return err
		}
		d := doubt{line: line{op, v.owner(op.Action), v.now}, Arguments: arguments.Arguments, Arrives: v.now.Before(op.Arrival())}
		if n := len(op.Attempts); n > 0 {
			d.Says = op.Attempts[n-1].Says
		}
		body.Doubts = append(body.Doubts, d)
	}
	body.MoreOut, body.Doubted, body.First = v.further("outcomes", page.Next), page.Count, before == 0 && out == 0
	if body.Asked, err = v.desk.Waiting(ctx, toolguard.QueueApproval); err != nil {
		return err
	}
	v.show(http.StatusOK, "waiting", "Waiting for you", body)
	return nil
}

var statuses = []toolguard.Status{toolguard.StatusAwaitingApproval, toolguard.StatusApproved, toolguard.StatusDispatching, toolguard.StatusUnknown,
	toolguard.StatusEscalated, toolguard.StatusSucceeded, toolguard.StatusFailed, toolguard.StatusRejected, toolguard.StatusAbandoned}

// operations searches.
func (v *visit) operations() error {
	q := v.r.URL.Query()
	f := people.Filter{Status: q.Get("status"), Tool: q.Get("tool"), Tenant: q.Get("tenant"), Event: q.Get("event"), Run: q.Get("run"), Search: strings.TrimSpace(q.Get("q")), Limit: perPage}
	if f.Status != "" && !slices.Contains(statuses, toolguard.Status(f.Status)) {
		return sentence{http.StatusBadRequest, "There is no such status."}
	}
	var err error
	if f.Before, err = v.cursor("cursor"); err != nil {
		return err
	}
	page, err := v.desk.Operations(v.r.Context(), f)
	if err != nil {
		return err
	}
	var body struct {
		people.Filter
		Statuses []toolguard.Status
		Lines    []line
		More     string
		Narrowed bool
		First    bool
	}
	body.Filter, body.Statuses, body.More, body.First = f, statuses, v.further("cursor", page.Next), f.Before == 0
	body.Narrowed = f.Status+f.Tool+f.Tenant+f.Event+f.Run+f.Search != ""
	for _, op := range page.Operations {
		body.Lines = append(body.Lines, line{op, "", v.now})
	}
	v.show(http.StatusOK, "operations", "Operations", body)
	return nil
}

// fact is one thing that is known of an operation.
type fact struct{ Name, Value string }

func factsOf(f keyderive.Facts) []fact {
	var out []fact
	for _, of := range []fact{{"tenant", f.Tenant}, {"workflow", f.Workflow}, {"source event", f.SourceEvent}, {"run", f.Run}, {"step", f.Step},
		{"request", f.Request}, {"session", f.Session}, {"actor", f.Actor}, {"client", f.Client}} {
		if of.Value != "" {
			out = append(out, of)
		}
	}
	return out
}

// operation shows one operation as a time line.
func (v *visit) operation() error {
	ctx := v.r.Context()
	op, err := v.desk.Operation(ctx, v.r.PathValue("key"))
	if err != nil {
		return err
	}
	kept, err := v.desk.Body(ctx, op.Key)
	if err != nil {
		return err
	}
	after, err := v.cursor("after")
	if err != nil {
		return err
	}
	events, err := v.store.History(ctx, op.Key, after, perHistory+1)
	if err != nil {
		return err
	}
	var body struct {
		line
		Facts     []fact
		Arguments json.RawMessage
		Result    json.RawMessage
		Moments   []moment
		More      string
		Request   *request
		CSRF      string
		Doubt     bool // a person may say what became of it
		Final     bool // a person may allow it once more
		Early     time.Time
		May       bool
	}
	body.line = line{op, v.owner(op.Action), v.now}
	body.Facts, body.Arguments, body.Result, body.CSRF, body.May = factsOf(op.Facts), kept.Arguments, kept.Result, v.session.csrf, v.desk.May(people.Operator)
	if len(events) > perHistory {
		events = events[:perHistory]
		body.More = v.further("after", events[perHistory-1].Seq)
	}
	for i := range events {
		body.Moments = append(body.Moments, momentOf(&events[i], v.now))
	}
	if op.Approval != nil && op.Approval.Stands(v.now) == toolguard.ApprovalOpen && op.Status == toolguard.StatusAwaitingApproval {
		r := v.request(people.Request{Approval: op.Approval, Operation: op, Arguments: kept.Arguments})
		body.Request = &r
	}
	body.Doubt = (op.Status == toolguard.StatusUnknown || op.Status == toolguard.StatusEscalated) && op.Ordered == nil
	body.Final = op.Status.Final() && op.Allowed == nil
	if early := op.Arrival(); v.now.Before(early) {
		body.Early = early
	}
	v.show(http.StatusOK, "operation", op.Action, body)
	return nil
}

// tools shows the tools and their policies.
func (v *visit) tools() error {
	v.show(http.StatusOK, "tools", "Tools", v.served())
	return nil
}
