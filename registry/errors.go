package registry

import "errors"

// Conditions a caller may test for with errors.Is.
var (
	// ErrNotSent: no byte of the attempt left for the tool.
	ErrNotSent = errors.New("not sent")
	// ErrNotApplied: the tool is known not to have done it.
	ErrNotApplied = errors.New("not applied")
	// ErrSchema: the tool's schema does not compile, or needs what is refused (references to other documents).
	ErrSchema = errors.New("schema")
	// ErrArguments: the arguments are not valid for the tool; the text says where and why.
	ErrArguments = errors.New("arguments")
	// ErrPolicy: the policy does not fit the tool (a pointer its schema does not have, an expression that does not compile).
	ErrPolicy = errors.New("policy")
)

// NotApplied marks a handler's error as proof that the tool did nothing: the result wraps [ErrNotApplied] and err, and
// reads as err does. Any other error of a handler leaves open what happened. nil stays nil.
func NotApplied(err error) error {
	if err == nil {
		return nil
	}
	return notApplied{err}
}

type notApplied struct{ error }

func (e notApplied) Unwrap() []error { return []error{ErrNotApplied, e.error} }
