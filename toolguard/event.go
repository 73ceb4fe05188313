package toolguard

import (
	"encoding/json"
	"fmt"
	"time"

	"toolguard.dev/keyderive"
)

// Event is one line of the audit. The events of a chain are linked: Prev is the Hash of the one before,
// and Hash covers every other member, so that an edit, a removal or a reordering shows (see [Verify]).
type Event struct {
	Chain    string    `json:"chain"`
	ChainSeq uint64    `json:"seq"` // 1, 2, … within the chain
	Time     time.Time `json:"time"`
	Type     EventType `json:"type"`

	Key         string `json:"key,omitempty"`
	Tool        string `json:"tool,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Workflow    string `json:"workflow,omitempty"`
	SourceEvent string `json:"source_event,omitempty"`
	Request     string `json:"request,omitempty"`
	Run         string `json:"run,omitempty"`
	Step        string `json:"step,omitempty"`
	Session     string `json:"session,omitempty"`
	Actor       string `json:"actor,omitempty"`

	Outcome    Outcome `json:"outcome,omitempty"`
	Reason     Reason  `json:"reason,omitempty"`
	Status     Status  `json:"status,omitempty"`
	Occurrence int     `json:"occurrence,omitempty"`
	Attempt    int     `json:"attempt,omitempty"`

	Digest       string         `json:"digest,omitempty"`
	Policy       string         `json:"policy,omitempty"`
	Approval     string         `json:"approval,omitempty"`
	Reviewer     string         `json:"reviewer,omitempty"`
	DownstreamID string         `json:"downstream_id,omitempty"`
	CallID       string         `json:"call_id,omitempty"`
	Client       string         `json:"client,omitempty"`
	Detail       map[string]any `json:"detail,omitempty"`

	Prev string `json:"prev,omitempty"`
	Hash string `json:"hash"`

	Seq uint64 `json:"-"` // the store's own sequence, for paging
}

// EventType names what an event records.
type EventType string

const (
	EventCall              EventType = "call"       // one call was answered
	EventDispatched        EventType = "dispatched" // an attempt started
	EventSettled           EventType = "settled"    // an attempt's outcome was learned
	EventDelivered         EventType = "delivered"  // a caller is known to have the result
	EventEscalated         EventType = "escalated"  // a person must decide
	EventReconciled        EventType = "reconciled" // lookups were asked
	EventApprovalRequested EventType = "approval_requested"
	EventApprovalDecided   EventType = "approval_decided" // by a person, or withdrawn, or expired
	EventResolved          EventType = "resolved"         // a person decided
	EventRepeatAllowed     EventType = "repeat_allowed"
	EventConflict          EventType = "conflict"      // evidence contradicts a final status
	EventNotifyFailed      EventType = "notify_failed" // nobody was told of an event, and nobody will be
)

// Link places the event in its chain, behind the event whose hash is prev, and computes its hash. The first
// event of a chain has prev "" and seq 1. Stores call it, in the order in which they commit.
func (e *Event) Link(chain string, seq uint64, prev string) error {
	p, err := e.Prepare()
	if err != nil {
		return err
	}
	e.Chain, e.ChainSeq, e.Prev, e.Hash = chain, seq, prev, p.Link(chain, seq, prev)
	return nil
}

// detail adds a member to Detail.
func (e *Event) detail(name string, value any) {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail[name] = value
}

// sum is the hex SHA-256 over the canonical JSON of the event without its hash, computed the plain way: [Verify] checks
// with it what Link wrote.
func (e *Event) sum() (string, error) {
	c := *e
	c.Hash = ""
	text, err := json.Marshal(struct {
		*eventAlias
		Hash string `json:"hash,omitempty"`
	}{eventAlias: (*eventAlias)(&c)})
	if err != nil {
		return "", fmt.Errorf("event: %w", err)
	}
	canonical, err := keyderive.Canonical(text)
	if err != nil {
		return "", fmt.Errorf("event: %w", err)
	}
	return keyderive.Hash(canonical), nil
}

type eventAlias Event
