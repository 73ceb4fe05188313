package toolguard

// Status is where an operation stands in its life.
type Status string

const (
	StatusAwaitingApproval Status = "awaiting_approval" // a person must say yes before it is sent
	StatusApproved         Status = "approved"          // a person said yes; not sent yet
	StatusRejected         Status = "rejected"          // a person said no; final
	StatusDispatching      Status = "dispatching"       // an attempt is on its way
	StatusSucceeded        Status = "succeeded"         // done; final
	StatusFailed           Status = "failed"            // known not to have happened, in every attempt
	StatusUnknown          Status = "unknown"           // may have happened
	StatusEscalated        Status = "escalated"         // may have happened, and only a person or late evidence can tell
	StatusAbandoned        Status = "abandoned"         // a person gave it up; final
)

// Final reports whether nothing but a mark can follow.
func (s Status) Final() bool {
	return s == StatusSucceeded || s == StatusAbandoned || s == StatusRejected
}

// transitions is the one table of an operation's life: from → to. "" is the operation that does not exist yet.
// A status is assigned only by [Operation.become], which consults it.
var transitions = map[Status][]Status{
	"":                     {StatusAwaitingApproval, StatusDispatching},
	StatusAwaitingApproval: {StatusApproved, StatusRejected, StatusSucceeded, StatusEscalated}, // the latter two by late answers to attempts before it
	StatusApproved:         {StatusDispatching, StatusAwaitingApproval, StatusSucceeded, StatusEscalated},
	StatusDispatching:      {StatusSucceeded, StatusFailed, StatusUnknown, StatusEscalated},
	StatusFailed:           {StatusDispatching, StatusAwaitingApproval, StatusSucceeded, StatusEscalated},
	StatusUnknown:          {StatusDispatching, StatusSucceeded, StatusFailed, StatusEscalated, StatusAbandoned},
	StatusEscalated:        {StatusDispatching, StatusSucceeded, StatusFailed, StatusAbandoned},
	StatusSucceeded:        nil,
	StatusAbandoned:        nil,
	StatusRejected:         nil,
}

// Outcome is what one call got.
type Outcome string

const (
	Fresh     Outcome = "fresh"     // the tool's own answer
	Replayed  Outcome = "replayed"  // done before, not repeated
	Pending   Outcome = "pending"   // not known yet
	Blocked   Outcome = "blocked"   // not sent
	Escalated Outcome = "escalated" // a person must decide
)

// Reason says why a call got its outcome.
type Reason string

const (
	ReasonNotRecorded      Reason = "not_recorded"
	ReasonDone             Reason = "done"
	ReasonBodyExpired      Reason = "body_expired"
	ReasonBodyNotStored    Reason = "body_not_stored"
	ReasonInProgress       Reason = "in_progress"
	ReasonReconciling      Reason = "reconciling"
	ReasonApprovalRequired Reason = "approval_required"
	ReasonApprovalRejected Reason = "approval_rejected"
	ReasonInvalidArguments Reason = "invalid_arguments"
	ReasonArgumentsChanged Reason = "arguments_changed"
	ReasonRefused          Reason = "refused"
	ReasonContextRequired  Reason = "context_required"
	ReasonContextConflict  Reason = "context_conflict"
	ReasonEarlierUnknown   Reason = "earlier_unknown"
	ReasonAbandoned        Reason = "abandoned"
	ReasonDenied           Reason = "denied"
	ReasonStoreUnavailable Reason = "store_unavailable"
	ReasonToolUnavailable  Reason = "tool_unavailable"
	ReasonOutcomeUnknown   Reason = "outcome_unknown"
	ReasonAttemptsSpent    Reason = "attempts_spent"
)
