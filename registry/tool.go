package registry

import (
	"context"
	"encoding/json"
	"time"

	"toolguard.dev/keyderive"
)

// Effect says what calling a tool does to the world, and with it how its calls are guarded.
type Effect string

const (
	Read       Effect = "read"       // changes nothing: passed through, never recorded as an operation
	Idempotent Effect = "idempotent" // sets a state: recorded, one in flight per entity, sent again when asked again
	Write      Effect = "write"      // guarded in full
	Deny       Effect = "deny"       // never called
)

// Tool is one callable thing of one server, as its adapter found it and its policy describes it.
// Fill it in, then hand it to [Compile]; a Tool is not changed afterwards.
type Tool struct {
	Server string // the server's name in keys and policies
	Name   string // the tool's own name, as the server spells it

	Description string // what it is for, as a model is told; "" where its adapter lists the server's own words

	InputSchema  json.RawMessage // JSON Schema as the server sent it; empty means any object
	OutputSchema json.RawMessage // as the server sent it; empty means none was declared
	Version      string          // what stands behind the tool (server name and version, command); part of the workflow version

	Effect       Effect
	EffectSource string // "declared", "annotated" or "presumed"
	Policy       Policy
	Handler      Handler

	action string // set by Compile
}

// Action is the name a tool has in keys and policies: "server/tool".
func (t *Tool) Action() string {
	if t.action != "" {
		return t.action
	}
	return t.Server + "/" + t.Name
}

// Handler sends one attempt to the tool and returns its answer.
//
// A returned error means that the outcome is unknown, unless it wraps [ErrNotSent] (no byte left for the
// tool) or [ErrNotApplied] (the tool is known not to have done it). The context carries the attempt's deadline.
// A handler that can still learn the answer after the deadline returns only then: the guard does not wait for it
// but takes a late answer as evidence. Handlers are called concurrently.
type Handler func(ctx context.Context, d *Dispatch) (Answer, error)

// Dispatch is one attempt of one operation, or one read, on its way to the tool.
type Dispatch struct {
	Key       string          // what is sent downstream as the idempotency key; "" for a read
	Operation string          // the operation's key; "" for a read
	Attempt   int             // 1, 2, …; 0 for a read
	Arguments json.RawMessage // the frozen bytes, with the key argument filled in
	Meta      json.RawMessage // the caller's request _meta, or nil
	Input     json.RawMessage // answers to what the tool asked for (MCP input responses), or nil
	Values    *Values         // of a lookup: what is known of the attempt, for a request that is made of it; else nil
	// Sending is called right before the first byte leaves. An error means that it must not leave any more;
	// the handler returns it as it is.
	Sending func() error
	// Sent is called once the last byte has left: from then on this attempt can send nothing any more. A handler that
	// cannot tell need not call it.
	Sent func()
}

// dispatchKey is where a context carries its attempt.
type dispatchKey struct{}

// WithDispatch returns a context that carries an attempt, for [DispatchFrom].
func WithDispatch(ctx context.Context, d *Dispatch) context.Context {
	return context.WithValue(ctx, dispatchKey{}, d)
}

// DispatchFrom returns the attempt that a handler's context belongs to, so that code below the handler can give the
// key to a database or an API; false where ctx is no handler's. The attempt is not to be changed.
func DispatchFrom(ctx context.Context) (*Dispatch, bool) {
	d, ok := ctx.Value(dispatchKey{}).(*Dispatch)
	return d, ok
}

// Answer is what a tool answered. Exactly one of Result and Error is set.
type Answer struct {
	Result json.RawMessage // the raw result object: for MCP a CallToolResult
	Error  *ProtocolError  // a JSON-RPC error instead of a result
	Status int             // HTTP status where there was one, else 0
}

// ProtocolError is a JSON-RPC 2.0 error object.
type ProtocolError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Policy is what the operator said about one tool. The zero value is a tool nobody described.
type Policy struct {
	OncePer       []string // fact names and JSON Pointers; nil: not declared, non-nil and empty: once per tenant and workflow
	MayDiffer     []string // JSON Pointers
	Normalize     keyderive.Normalize
	Entity        []string      // JSON Pointers
	RepeatAfter   time.Duration // counted from delivery; 0: never
	DownstreamKey DownstreamKey
	ReadsWhen     *Expression   // over the arguments: such calls only read
	DownstreamID  *Expression   // over the answer: the downstream's name for what was made
	NotApplied    []*Expression // over the answer: known not to have happened
	Unknown       []*Expression // over the answer: not known
	Approval      *Approval     // nil: no call needs one
	Lookups       []Lookup      // in order; how to learn what became of an attempt of unknown outcome
	Errors        ErrorMode     // "" means ErrorWords; with Approval ErrorUnknown
	Receipt       bool          // keep and give a receipt instead of the result
	AnswerWithin  time.Duration // how long a caller waits; 0: DefaultAnswerWithin
	Timeout       time.Duration // an attempt's own deadline; 0: DefaultTimeout
	Attempts      int           // budget of attempts that may have happened; 0: DefaultAttempts
	Retention     time.Duration // how long bodies of final operations are kept; 0: DefaultRetention
	Owner         string        // who is asked when nobody can know
	Secret        []string      `json:",omitempty"` // JSON Pointers, * for every index: arguments that are never shown and kept only sealed
}

// Defaults of [Policy].
const (
	DefaultAnswerWithin = 45 * time.Second
	DefaultTimeout      = 10 * time.Minute
	DefaultAttempts     = 3
	DefaultRetention    = 720 * time.Hour
)

// DownstreamKey says where the downstream takes an idempotency key from, and for how long it honours one.
// At most one of Argument, Meta and Header is set.
type DownstreamKey struct {
	Argument string        // JSON Pointer of the argument, hidden from the model
	Meta     string        // member of the request's _meta
	Header   string        // HTTP header
	Window   time.Duration // how long the downstream honours the key; 0: not at all
}

// ErrorMode says how an error answer that no expression recognised is read.
type ErrorMode string

const (
	ErrorWords   ErrorMode = "words"   // by the built-in refusal words
	ErrorStatus  ErrorMode = "status"  // by the HTTP status, and where that says nothing by the words
	ErrorRefused ErrorMode = "refused" // every error answer is a refusal
	ErrorUnknown ErrorMode = "unknown" // no error answer is
)
