package restguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"toolguard.dev/adapters/restguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// A refund is asked for twice for one event. One request leaves, with the operation's key in its header.
func ExampleNew() {
	payments := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println("downstream got", string(body), "with a key of", len(r.Header.Get("Idempotency-Key")), "characters")
		fmt.Fprint(w, `{"id":"re_1","status":"pending"}`)
	}))
	defer payments.Close()

	ctx := context.Background()
	guard, err := toolguard.Open(ctx, storetest.NewMemory(), nil) // a real program opens a ledger on disk
	if err != nil {
		log.Fatal(err)
	}
	refund, err := restguard.New(guard, registry.Tool{
		Server: "stripe", Name: "create_refund", Description: "Refunds a charge.", Effect: registry.Write,
		InputSchema: json.RawMessage(`{"type":"object","required":["charge"],
			"properties":{"charge":{"type":"string"},"amount":{"type":"integer"}}}`),
		Policy: registry.Policy{
			OncePer:       []string{"source_event", "/charge"},
			DownstreamKey: registry.DownstreamKey{Header: "Idempotency-Key", Window: 24 * time.Hour},
		},
	}, restguard.Request{
		Method: "POST", URL: payments.URL + "/v1/refunds",
		Form: map[string]string{"charge": "{{args.charge}}", "amount": "{{args.amount}}"}, // amount is left out where it is not given
	})
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		r := guard.Do(ctx, toolguard.Call{
			Tool: refund, Arguments: json.RawMessage(`{"charge":"ch_1"}`), Facts: keyderive.Facts{SourceEvent: "evt-1"},
		})
		fmt.Println(r.Verdict.Outcome, string(r.Answer.Structured()))
	}
	// Output:
	// downstream got charge=ch_1 with a key of 36 characters
	// fresh {"id":"re_1","status":"pending"}
	// replayed {"id":"re_1","status":"pending"}
}
