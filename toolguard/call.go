package toolguard

import (
	"encoding/json"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Call is one call as it arrived.
type Call struct {
	Tool      *Tool
	Arguments json.RawMessage // the caller's bytes; nil means {}
	Facts     keyderive.Facts // what the runtime knows; Tenant and Workflow "" mean "default"
	Missing   []string        // facts that are declared and did not come; "actor" counts only where a person must approve
	Conflict  []string        // facts of which two sources disagree
	Meta      json.RawMessage // the request's _meta, handed on
	Input     json.RawMessage // answers to what the tool asked for: the call continues its operation
}

// Result is what one call got.
type Result struct {
	Verdict Verdict
	Answer  registry.Answer // the tool's own or the recorded answer; zero where Text is all there is
	Text    string          // what happened and what to do, for the reader of the answer; "" where the answer says it all
	Guarded bool            // false: a read, or observe mode; the answer is shown as it is, without the verdict
	// Delivered is called when proof came that the caller has this result, and only then; at most once, and never nil.
	Delivered func()
}

// Verdict is shown on every guarded call's result.
type Verdict struct {
	Outcome      Outcome    `json:"outcome"`
	Reason       Reason     `json:"reason,omitempty"`
	Status       Status     `json:"status,omitempty"`
	Key          string     `json:"key,omitempty"`
	Tool         string     `json:"tool"`
	Occurrence   int        `json:"occurrence,omitempty"`
	Attempt      int        `json:"attempt,omitempty"`
	RecordedAt   *time.Time `json:"recorded_at,omitempty"`
	SettledAt    *time.Time `json:"settled_at,omitempty"`
	Differs      []string   `json:"differs,omitempty"`
	Approval     string     `json:"approval,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
}
