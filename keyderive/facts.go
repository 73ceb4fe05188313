package keyderive

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxFact is the longest value of a fact, in bytes, that [UsableFact] takes.
const MaxFact = 1 << 10

// UsableFact tells whether a value that came from outside may be a fact: UTF-8 of at most [MaxFact] bytes, without
// control characters. "" may: it says that the fact is not known.
func UsableFact(value string) bool {
	return len(value) <= MaxFact && utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl)
}

// Facts are what the runtime, never the model, knows about a call; "" means
// not known. Values are compared byte for byte.
type Facts struct {
	// These may be part of a key.
	Tenant      string `json:"tenant,omitempty"`       // whose data; in every key
	Workflow    string `json:"workflow,omitempty"`     // what kind of work; in every key
	SourceEvent string `json:"source_event,omitempty"` // what set the work off, such as a message's id
	Request     string `json:"request,omitempty"`      // one turn of a conversation
	Run         string `json:"run,omitempty"`          // one execution of a workflow
	Step        string `json:"step,omitempty"`         // a place in a run

	// These are recorded, and never part of a key.
	Session         string `json:"session,omitempty"`
	Actor           string `json:"actor,omitempty"`
	CallID          string `json:"call_id,omitempty"`
	WorkflowVersion string `json:"workflow_version,omitempty"`
	Client          string `json:"client,omitempty"`
}

// factSet is a set of the facts that may be part of a key, as bits.
type factSet uint8

// The bits, in the canonical order of the names.
const (
	factRequest factSet = 1 << iota
	factRun
	factSourceEvent
	factStep
	factTenant
	factWorkflow
)

// keyFacts are the facts that may be part of a key, in canonical order.
var keyFacts = [...]struct {
	bit  factSet
	name string
}{
	{factRequest, "request"},
	{factRun, "run"},
	{factSourceEvent, "source_event"},
	{factStep, "step"},
	{factTenant, "tenant"},
	{factWorkflow, "workflow"},
}

// value returns the fact that a bit stands for.
func (f *Facts) value(bit factSet) string {
	switch bit {
	case factRequest:
		return f.Request
	case factRun:
		return f.Run
	case factSourceEvent:
		return f.SourceEvent
	case factStep:
		return f.Step
	case factTenant:
		return f.Tenant
	case factWorkflow:
		return f.Workflow
	}
	return ""
}

// factBit returns the bit of a name.
func factBit(name string) (factSet, bool) {
	for _, k := range keyFacts {
		if k.name == name {
			return k.bit, true
		}
	}
	return 0, false
}

// Get returns the fact of a name that may be part of a key (tenant, workflow,
// source_event, request, run, step); false for any other name.
func (f Facts) Get(name string) (string, bool) {
	bit, ok := factBit(name)
	return f.value(bit), ok
}

// known returns those facts of a set that are not "".
func (f *Facts) known(among factSet) factSet {
	var set factSet
	for _, k := range keyFacts {
		if k.bit&among != 0 && f.value(k.bit) != "" {
			set |= k.bit
		}
	}
	return set
}

// appendScope appends the canonical object of the facts in a set.
func (f *Facts) appendScope(dst []byte, set factSet) ([]byte, error) {
	open := byte('{')
	for _, k := range keyFacts {
		if k.bit&set == 0 {
			continue
		}
		value := f.value(k.bit)
		if value == "" {
			return nil, fmt.Errorf("%w: %s is not known", ErrFactMissing, k.name)
		}
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("%w: %s is not UTF-8", ErrFactMissing, k.name)
		}
		dst = append(dst, open, '"')
		dst = append(dst, k.name...)
		dst = append(dst, '"', ':')
		dst = appendString(dst, value)
		open = ','
	}
	return append(dst, '}'), nil
}
