// Package eventguard makes an event that is delivered twice find what was done for it the first time.
//
// Start with [Handler]: it takes the event's identity from the request as its sender gives it, and puts it into the
// request's context as the source event. Guarded tools that are called with that context are done once for the event:
//
//	http.Handle("POST /stripe", verified(eventguard.Handler(eventguard.Stripe, work)))
//
// A consumer of a queue does the same with [WithMessage]. Whatever the handler calls then, Go functions ([goguard]), a
// model's tools ([openaiguard]) or an mcp-go server, derives its keys from that event.
//
// An identity is worth what the request is worth: check the sender's signature before, with the sender's own library.
// Whoever may send what he likes could name an event that was done, and would have his own passed over.
//
// The package translates and decides nothing: what a repeated event leads to is the guard's business, and the handler
// runs again for it.
//
// [goguard]: https://pkg.go.dev/toolguard.dev/adapters/goguard
// [openaiguard]: https://pkg.go.dev/toolguard.dev/adapters/openaiguard
package eventguard
