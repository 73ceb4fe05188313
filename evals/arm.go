package evals

// Arm is one column of the table: what stands between the agent and the downstream.
type Arm struct {
	Name  string // as the command line takes it
	Title string // as the table shows it
	Notes string // what it is, in one sentence

	guarded bool
	policy  bool // the operator said what counts as the same call, and the runtime says which step it is at
	keyed   bool // the downstream honours the guard's key
	lookup  bool // the downstream can be asked what it has under a key

	cached bool // answers are cached by a hash of tool and arguments
	key    keySource
}

// keySource says who makes the idempotency key where there is no guard.
type keySource int

const (
	noKey keySource = iota
	randomKey
	modelKey
)

// Arms are all columns, in the order of the table.
var Arms = []Arm{
	{Name: "no-guard", Title: "no guard", Notes: "calls go straight to the downstream; the agent sends again what failed"},
	{Name: "random-key", Title: "random key", key: randomKey, Notes: "the client sends a new random idempotency key with each try, and the downstream honours keys"},
	{Name: "cache", Title: "cache by arguments", cached: true, Notes: "answers are cached in the agent's process by a hash of tool and arguments (members sorted), refusals too"},
	{Name: "model-key", Title: "model's own key", key: modelKey, Notes: "the model makes up an idempotency key when it plans a call, keeps it when it sends the call again, and makes up another when it plans anew; the downstream honours keys"},
	{Name: "toolguard", Title: "toolguard, no policy", guarded: true, Notes: "toolguard as it comes: it knows the session and the call ids that a chat client gives, nothing else; the downstream ignores keys"},
	{Name: "policy", Title: "toolguard, policy", guarded: true, policy: true, Notes: "toolguard with a policy per tool (once per source event, step and target) and a runtime that says which event and step it is at; the downstream ignores keys and cannot be asked"},
	{Name: "policy+key", Title: "policy + downstream key", guarded: true, policy: true, keyed: true, Notes: "the same, and the downstream honours toolguard's key for a day"},
	{Name: "policy+lookup", Title: "policy + lookup", guarded: true, policy: true, lookup: true, Notes: "the same as toolguard with a policy, and the downstream can be asked what it has under a key; its index lags"},
}

// SelectArms returns the arms of a list of names divided by commas; "" is all of them.
func SelectArms(list string) ([]Arm, error) {
	return choose(list, Arms, "arm", func(a Arm) string { return a.Name })
}

// Guarded reports whether toolguard stands there.
func (a *Arm) Guarded() bool { return a.guarded }

// Declared reports whether it has a policy, and the runtime facts that the policy asks for.
func (a *Arm) Declared() bool { return a.policy }

// NeedsKey reports whether the arm sends a key that the downstream is to know.
func (a *Arm) NeedsKey() bool { return a.keyed || a.key != noKey }

// NeedsLookup reports whether the arm asks the downstream what it has.
func (a *Arm) NeedsLookup() bool { return a.lookup }
