package toolguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"toolguard.dev/keyderive"
)

// PreparedEvent is an event of which all is done that needs no order: what a store needs to link it, and to keep it.
type PreparedEvent struct {
	Tenant, Key string

	text     []byte // the canonical JSON but for chain, seq, prev and hash; a comma in front of each member, no closing brace
	at       [3]int // where the members chain, prev and seq go
	detailed []byte // the whole JSON of an event with a detail, whose numbers the canonical form spells anew; else nil
}

// Prepare does the part of [Event.Link] that needs no order, so that a store can do it ahead. It fails where the detail
// has no JSON.
func (e *Event) Prepare() (*PreparedEvent, error) {
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
			return nil, fmt.Errorf("event: %w", err)
		}
	}
	// The members in the order of RFC 8785. A test holds this list against the struct.
	var room [1024]byte
	b := appendText(room[:0], "actor", e.Actor)
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
		return nil, fmt.Errorf("event: %w", err)
	}
	b = append(b, '"')
	b = appendText(b, "tool", e.Tool)
	b = appendMember(b, "type", string(e.Type))
	b = appendText(b, "workflow", e.Workflow)
	return &PreparedEvent{Tenant: e.Tenant, Key: e.Key, text: bytes.Clone(b), at: [3]int{first, second, third}, detailed: detailed}, nil
}

// Link returns the hash of the event in its place in a chain; see [Event.Link].
func (p *PreparedEvent) Link(chain string, seq uint64, prev string) (hash string) {
	var room [1024]byte
	b := append(room[:0], p.text[:p.at[0]]...)
	b = appendMember(b, "chain", chain)
	b = append(b, p.text[p.at[0]:p.at[1]]...)
	b = appendText(b, "prev", prev)
	b = append(b, p.text[p.at[1]:p.at[2]]...)
	b = strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
	b = append(append(b, p.text[p.at[2]:]...), '}')
	b[0] = '{' // in the place of the first comma
	return keyderive.Hash(b)
}

// AppendJSON appends the event's JSON without chain, seq, prev and hash: what a store keeps beside these.
func (p *PreparedEvent) AppendJSON(b []byte) []byte {
	if p.detailed != nil {
		return append(b, p.detailed...)
	}
	b = append(append(b, '{'), p.text[1:]...)
	return append(b, '}')
}

// Size is how many bytes AppendJSON appends.
func (p *PreparedEvent) Size() int {
	if p.detailed != nil {
		return len(p.detailed)
	}
	return len(p.text) + 1
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
