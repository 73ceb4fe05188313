package toolguard

import (
	"encoding/json"
	"slices"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Operation is the durable record of one occurrence of an intent. A store keeps it whole and reads only the
// members that its contract names; what a status means is this package's business alone.
type Operation struct {
	Key        string          `json:"key"`      // UUIDv8 of Material
	Intent     string          `json:"intent"`   // the key of the first occurrence: the same for every one
	Material   json.RawMessage `json:"material"` // canonical key material; a record counts as found only if it is equal
	Occurrence int             `json:"occurrence"`
	Action     string          `json:"action"` // server/tool
	Effect     registry.Effect `json:"effect"`
	Facts      keyderive.Facts `json:"facts"`

	Definition string          `json:"definition"` // identity definition it was made under
	Class      keyderive.Class `json:"class"`
	Subject    string          `json:"subject"`          // what is acted on, whatever event, request, run or step
	Entity     string          `json:"entity,omitempty"` // the thing whose state is set
	Digest     string          `json:"digest"`           // of the material arguments; must not change after dispatch, but in failed
	Frozen     string          `json:"frozen"`           // hash of all frozen bytes; an HMAC where there are secrets among them
	Policy     string          `json:"policy"`           // hash of policy, schema and upstream

	Status     Status        `json:"status"`
	Waited     bool          `json:"waited,omitempty"`    // dispatching, and a caller still waits for it
	Attempts   []Attempt     `json:"attempts"`            // latest last; proven refusals beyond maxAttempts are dropped, oldest first
	Sent       int           `json:"sent"`                // number of the latest attempt
	Generation int           `json:"generation"`          // of the downstream key
	Budget     int           `json:"budget"`              // how many more attempts may start
	Window     time.Duration `json:"window,omitempty"`    // how long the downstream honours the key, as declared when it was sent
	Timeout    time.Duration `json:"timeout"`             // of one attempt
	Grant      int           `json:"grant"`               // what a new budget is
	Retention  time.Duration `json:"retention"`           // of its body, once it is final
	FirstSent  time.Time     `json:"first_sent,omitzero"` // start of the first attempt under this generation: the window counts from it
	Settle     time.Duration `json:"settle,omitempty"`    // how long after an attempt a lookup's "absent" proves nothing
	Lookups    bool          `json:"lookups,omitempty"`   // lookups may tell what became of an attempt
	Looks      int           `json:"looks,omitempty"`     // rounds of lookups since the latest attempt
	Looked     int           `json:"looked,omitempty"`    // of these, the ones that could have proved an absence
	LookedAt   time.Time     `json:"looked_at,omitzero"`  // when the latest began
	Approval   *Approval     `json:"approval,omitempty"`  // the latest request for approval
	Asked      int           `json:"asked,omitempty"`     // number of that request
	Rejected   []string      `json:"rejected,omitempty"`  // digests of the material that a person said no to, latest last
	Ordered    *Decision     `json:"ordered,omitempty"`   // a person ordered the frozen bytes to be sent again
	Allowed    *Decision     `json:"allowed,omitempty"`   // a person allowed the next occurrence
	Resolved   *Decision     `json:"resolved,omitempty"`  // a person's verdict
	Conflict   string        `json:"conflict,omitempty"`  // evidence that contradicts a final status
	Seen       *Decision     `json:"seen,omitempty"`      // what a person found about it; the status stays
	Spent      bool          `json:"spent,omitempty"`     // escalated because the budget was spent

	DownstreamID string    `json:"downstream_id,omitempty"`
	Body         BodyState `json:"body,omitempty"`
	BodyUntil    time.Time `json:"body_until,omitzero"` // bodies are gone after this
	Created      time.Time `json:"created"`
	Settled      time.Time `json:"settled,omitzero"`   // when it became final
	Delivered    time.Time `json:"delivered,omitzero"` // when proof came that a caller had the result

	// What the store keeps by itself.
	Rev        uint64 `json:"rev"`        // revision: the store's sequence at the last write; 0: not stored yet
	Dispatched uint64 `json:"dispatched"` // the store's sequence at the last write with Write.Dispatch
	Token      string `json:"token"`      // Write.Token of the last write
}

// Attempt is one dispatch of an operation to its tool.
type Attempt struct {
	N        int          `json:"n"`
	Owner    string       `json:"owner"` // the process that dispatches it
	CallID   string       `json:"call_id,omitempty"`
	Started  time.Time    `json:"started"`
	Deadline time.Time    `json:"deadline"`
	Frozen   string       `json:"frozen"`   // the bytes it carried
	SentKey  string       `json:"sent_key"` // the key sent downstream
	State    AttemptState `json:"state"`
	Finished bool         `json:"finished,omitempty"` // its sender can send nothing any more: it sent all, finished or died
	Gone     time.Time    `json:"gone,omitzero"`      // when that was, at the latest
	Ended    time.Time    `json:"ended,omitzero"`     // when State was settled
	Says     string       `json:"says,omitempty"`     // the tool's own words, cut to maxSays
	Called   bool         `json:"called,omitempty"`   // the call that started it has its audit event
	Input    bool         `json:"input,omitempty"`    // the tool asked for more input and waits
	Answered bool         `json:"answered,omitempty"` // the tool itself answered
	Order    *Decision    `json:"order,omitempty"`    // the person's order that started it
	Approval string       `json:"approval,omitempty"` // the request for approval that it consumed
	Picture  *Picture     `json:"picture,omitempty"`  // what lookups without the key saw before it was sent
}

// AttemptState is what is known of one attempt.
type AttemptState string

const (
	AttemptOpen      AttemptState = "open"      // on its way
	AttemptUnsent    AttemptState = "unsent"    // no byte left
	AttemptRefused   AttemptState = "refused"   // known not to have happened
	AttemptUnknown   AttemptState = "unknown"   // may have happened
	AttemptSucceeded AttemptState = "succeeded" // happened
)

// BodyState says where an operation's arguments and result are.
type BodyState string

const (
	BodyNone      BodyState = ""           // not settled yet
	BodyStored    BodyState = "stored"     // readable until BodyUntil
	BodyNotStored BodyState = "not_stored" // too large, or refused by the store
)

// Decision is what a person did to an operation.
type Decision struct {
	Verdict string    `json:"verdict"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
	Weak    bool      `json:"weak,omitempty"` // the agent's own account could have made it
	Forced  bool      `json:"forced,omitempty"`
	Attempt int       `json:"attempt"` // the latest attempt at that time
}

// Body is what an operation carried and got, kept apart from its record. Where the tool has secret arguments, Arguments and
// Result are what may be shown, with (secret) in their place, and Sealed holds both as they were.
type Body struct {
	Arguments json.RawMessage `json:"arguments,omitempty"` // the frozen bytes
	Result    json.RawMessage `json:"result,omitempty"`    // the raw answer
	Sealed    []byte          `json:"-"`                   // for the guard's eyes: see [Seal]
}

const (
	maxAttempts = 16  // attempts kept in a record; those that may have happened are never dropped
	maxSays     = 500 // bytes kept of a tool's own words
)

// attempt returns the attempt with number n, or nil if it is no longer kept.
func (op *Operation) attempt(n int) *Attempt {
	for i := range op.Attempts {
		if op.Attempts[i].N == n {
			return &op.Attempts[i]
		}
	}
	return nil
}

// latest returns the latest attempt; an empty one where none was made yet.
func (op *Operation) latest() *Attempt {
	if len(op.Attempts) == 0 {
		return &Attempt{}
	}
	return &op.Attempts[len(op.Attempts)-1]
}

// add appends an attempt and forgets the oldest proven one where there are too many.
func (op *Operation) add(a Attempt) {
	op.Attempts = append(op.Attempts, a)
	for i := 0; len(op.Attempts) > maxAttempts && i < len(op.Attempts)-1; i++ {
		if op.Attempts[i].proven() {
			op.Attempts = append(op.Attempts[:i:i], op.Attempts[i+1:]...)
			return
		}
	}
}

// proven reports whether the attempt is known not to have happened.
func (a *Attempt) proven() bool { return a.State == AttemptUnsent || a.State == AttemptRefused }

// Owed reports whether the operation succeeded and nobody is known to have its result: the next caller gets it.
func (op *Operation) Owed() bool { return op.Status == StatusSucceeded && op.Delivered.IsZero() }

// listed reports whether the operation belongs among the open ones: what a later call may have to meet.
func (op *Operation) listed() bool { return !op.Status.Final() || op.Owed() }

// holding reports whether the operation may hold back calls with other arguments.
func (op *Operation) holding() bool {
	switch op.Status {
	case StatusUnknown, StatusEscalated:
		return true
	case StatusDispatching:
		return !op.Waited
	}
	return op.Owed()
}

// due reports whether something may have to be done about the operation without a call that asks for it: its next
// attempt, a lookup, or what its sender's death means.
func (op *Operation) due() bool {
	switch op.Status {
	case StatusApproved, StatusDispatching, StatusUnknown, StatusEscalated:
		return true
	}
	return false
}

// list says in w how the operation is listed.
func (op *Operation) list(w *Write) {
	w.Operation, w.Open = op, op.listed()
	w.Holding, w.Due = op.holding(), op.due()
	w.Queue = op.queue()
}

// Contradicted reports whether evidence speaks against how a final operation stands, and no person has looked at it yet.
func (op *Operation) Contradicted() bool { return op.Conflict != "" && op.Seen == nil }

// Queues of what waits for a person.
const (
	QueueApproval = "approval" // a request for approval
	QueueOutcome  = "outcome"  // an outcome that nobody knows, or that evidence contradicts
)

// queue is the queue that the operation stands in; "" for none.
func (op *Operation) queue() string {
	switch {
	case op.Status == StatusAwaitingApproval:
		return QueueApproval
	case op.Status == StatusUnknown, op.Status == StatusEscalated, op.Contradicted():
		return QueueOutcome
	}
	return ""
}

// Clone returns a copy that shares nothing: what a store hands out.
func (op *Operation) Clone() *Operation {
	c := op.clone()
	c.Material = slices.Clone(op.Material)
	c.Rejected = slices.Clone(op.Rejected)
	c.Ordered, c.Allowed, c.Resolved, c.Seen = clone(op.Ordered), clone(op.Allowed), clone(op.Resolved), clone(op.Seen)
	for i := range c.Attempts {
		a := &c.Attempts[i]
		a.Order, a.Picture = clone(a.Order), clone(a.Picture)
		if a.Picture != nil {
			a.Picture.Absent = slices.Clone(a.Picture.Absent)
		}
	}
	if a := c.Approval; a != nil {
		a.Requesters, a.Reviewers, a.Decision = slices.Clone(a.Requesters), slices.Clone(a.Reviewers), clone(a.Decision)
	}
	return c
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// clone returns a copy that shares nothing that changes.
func (op *Operation) clone() *Operation {
	c := *op
	c.Attempts = append([]Attempt(nil), op.Attempts...)
	c.Approval = clone(op.Approval)
	return &c
}
