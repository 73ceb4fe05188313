// Package registry knows tools: what they take and answer, what calling them
// does, and what the operator said about them.
//
// Start with [Compile]: it checks a [Tool] against its own schema and its
// [Policy] and returns an [Entry], which validates arguments, tells which calls
// only read, and classifies what the tool answered. [Entry.Definition] says
// what counts as the same call.
//
// The package must not know that there is a store, nor what an operation is:
// nothing here remembers a call. Schemas, arguments and answers come from
// outside and are taken for hostile: no reference to another document is ever
// followed, every expression is bounded, and nothing in them makes it panic.
// Everything may be used from any number of goroutines; values such as
// keyderive.Parse makes are never changed.
package registry
