// Package goguard makes a guarded tool of a Go function.
//
// Start with [New]: the function takes a struct and returns one, the schemas are derived from them, and the tool that
// comes out is called by Go code ([Func.Call]), offered to a model (package openaiguard) or served over MCP
// (mcpguard.Tools). Whichever way a call comes, it derives the same key and meets the same record.
//
//	pay, err := goguard.New(guard, registry.Tool{
//		Server: "books", Name: "pay_invoice",
//		Policy: registry.Policy{OncePer: []string{"source_event", "/invoice_id"}},
//	}, func(ctx context.Context, in Payment) (Receipt, error) { … })
//
// An error that the function returns leaves open what it did, and the call is not repeated by itself, unless it is
// marked with [registry.NotApplied]: then it is known that nothing happened, and the next call may try again. Inside
// the function [registry.DispatchFrom] gives the operation's key and the number of the attempt, for a database's unique
// column or an API's idempotency key, and [toolguard.FactsFrom] the runtime facts.
//
// The package translates and decides nothing. It must not know a store, an identity rule or a status.
package goguard
