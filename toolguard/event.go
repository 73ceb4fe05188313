package toolguard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

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

	prepared *prepared
}

// prepared is the canonical JSON of an event but for chain, seq, prev and hash. Each member has a comma in front.
type prepared struct {
	text     []byte
	at       [3]int // where the members chain, prev and seq go
	detailed []byte // the JSON of an event with a detail, whose numbers the canonical form spells anew
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
	if err := e.Prepare(); err != nil {
		return err
	}
	e.Chain, e.ChainSeq, e.Prev = chain, seq, prev
	p := e.prepared
	var room [1024]byte
	b := append(room[:0], p.text[:p.at[0]]...)
	b = appendMember(b, "chain", chain)
	b = append(b, p.text[p.at[0]:p.at[1]]...)
	b = appendText(b, "prev", prev)
	b = append(b, p.text[p.at[1]:p.at[2]]...)
	b = strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
	b = append(append(b, p.text[p.at[2]:]...), '}')
	b[0] = '{' // in the place of the first comma
	sum := sha256.Sum256(b)
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	e.Hash = string(digits[:])
	return nil
}

// AppendJSON appends the event's JSON without what [Event.Link] fills in (chain, seq, prev and hash): what a store
// keeps beside these. It prepares the event, and cannot fail once it is prepared.
func (e *Event) AppendJSON(b []byte) ([]byte, error) {
	if err := e.Prepare(); err != nil {
		return nil, err
	}
	if text := e.prepared.detailed; text != nil {
		return append(b, text...), nil
	}
	b = append(append(b, '{'), e.prepared.text[1:]...)
	return append(b, '}'), nil
}

// Prepare does the part of [Event.Link] that needs no order, so that a store can do it ahead. The event must not be
// changed any more then, but by Link.
func (e *Event) Prepare() error {
	if e.prepared != nil {
		return nil
	}
	var detail, detailed []byte
	if len(e.Detail) > 0 {
		text, err := json.Marshal(e.Detail)
		if err == nil {
			detail, err = keyderive.Canonical(text)
		}
		if err == nil {
			c := *e
			c.Chain, c.ChainSeq, c.Prev, c.Hash = "", 0, "", ""
			detailed, err = json.Marshal(&c)
		}
		if err != nil {
			return fmt.Errorf("event: %w", err)
		}
	}
	// The members in the order of RFC 8785. A test holds this list against the struct.
	b := make([]byte, 0, 768)
	b = appendText(b, "actor", e.Actor)
	b = appendText(b, "approval", e.Approval)
	b = appendNumber(b, "attempt", e.Attempt)
	b = appendText(b, "call_id", e.CallID)
	first := len(b)
	b = appendText(b, "client", e.Client)
	b = appendRaw(b, "detail", detail)
	b = appendText(b, "digest", e.Digest)
	b = appendText(b, "downstream_id", e.DownstreamID)
	b = appendText(b, "key", e.Key)
	b = appendNumber(b, "occurrence", e.Occurrence)
	b = appendText(b, "outcome", string(e.Outcome))
	b = appendText(b, "policy", e.Policy)
	second := len(b)
	b = appendText(b, "reason", string(e.Reason))
	b = appendText(b, "request", e.Request)
	b = appendText(b, "reviewer", e.Reviewer)
	b = appendText(b, "run", e.Run)
	third := len(b)
	b = appendText(b, "session", e.Session)
	b = appendText(b, "source_event", e.SourceEvent)
	b = appendText(b, "status", string(e.Status))
	b = appendText(b, "step", e.Step)
	b = appendText(b, "tenant", e.Tenant)
	b, err := e.Time.AppendText(append(b, `,"time":"`...))
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	b = append(b, '"')
	b = appendText(b, "tool", e.Tool)
	b = appendMember(b, "type", string(e.Type))
	b = appendText(b, "workflow", e.Workflow)
	e.prepared = &prepared{text: b, at: [3]int{first, second, third}, detailed: detailed}
	return nil
}

// appendMember writes a member behind a comma.
func appendMember(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	if !utf8.ValidString(value) {
		quoted, _ := json.Marshal(value) // as it will be read back
		canonical, _ := keyderive.Canonical(quoted)
		return append(b, canonical...)
	}
	return keyderive.AppendString(b, value)
}

func appendText(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendMember(b, name, value)
}

func appendNumber(b []byte, name string, n int) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), int64(n), 10)
}

func appendRaw(b []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return append(append(append(append(b, `,"`...), name...), `":`...), value...)
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
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

type eventAlias Event
