// Package restguard makes a guarded tool of an HTTP request.
//
// Start with [New]: a tool is described by its input schema and its policy, and a [Request] says what is sent for a call,
// with {{args.NAME}}, {{key}} and {{context.FACT}} where values go:
//
//	refund, err := restguard.New(guard, registry.Tool{
//		Server: "stripe", Name: "create_refund", InputSchema: schema,
//		Policy: registry.Policy{
//			OncePer:       []string{"/charge"},
//			DownstreamKey: registry.DownstreamKey{Header: "Idempotency-Key", Window: 24 * time.Hour},
//		},
//	}, restguard.Request{
//		Method: "POST", URL: "https://api.stripe.com/v1/refunds",
//		Header: map[string]string{"Authorization": "Bearer " + key},
//		Form:   map[string]string{"charge": "{{args.charge}}", "amount": "{{args.amount}}"},
//	})
//
// A request leaves once: redirects are not followed, and nothing is sent again when a connection breaks. What no byte
// left of has not happened; a status by which a server refuses a request tells the same ([registry.ErrorStatus]); a lost
// answer, a redirect and a status from 500 on leave open what happened. [LookUp] makes a request of its own to find out.
//
// What comes back is told as an MCP server would: the body as text, and as structured content where it is a JSON object.
//
// The package translates and decides nothing. It must not know a store, an identity rule or a status of an operation.
package restguard
