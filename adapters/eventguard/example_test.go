package eventguard_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"toolguard.dev/adapters/eventguard"
	"toolguard.dev/adapters/goguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// Stripe delivers an event again when it did not hear that it arrived. The parcel is sent once.
func ExampleHandler() {
	guard, err := toolguard.Open(context.Background(), storetest.NewMemory(), nil) // a real program opens a ledger on disk
	if err != nil {
		log.Fatal(err)
	}
	type order struct {
		ID string `json:"id"`
	}
	ship, err := goguard.New(guard, registry.Tool{Server: "shop", Name: "ship"}, func(_ context.Context, o order) (string, error) {
		fmt.Println("sending", o.ID)
		return "parcel 1", nil
	})
	if err != nil {
		log.Fatal(err)
	}

	handler := eventguard.Handler(eventguard.Stripe, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parcel, verdict, err := ship.Call(r.Context(), order{"A-1"})
		fmt.Println(parcel, verdict.Outcome, err)
	}))
	for range 2 {
		event := httptest.NewRequest("POST", "/stripe", strings.NewReader(`{"id":"evt_1","type":"checkout.session.completed"}`))
		handler.ServeHTTP(httptest.NewRecorder(), event)
	}
	// Output:
	// sending A-1
	// parcel 1 fresh <nil>
	// parcel 1 replayed <nil>
}

// A queue delivers at least once. The message's id makes that once.
func ExampleWithMessage() {
	ctx, err := eventguard.WithMessage(context.Background(), "orders/3/1042") // topic, partition, offset
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(toolguard.FactsFrom(ctx).SourceEvent)
	// Output: orders/3/1042
}
