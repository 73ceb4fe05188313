package goguard_test

import (
	"context"
	"fmt"
	"log"

	"toolguard.dev/adapters/goguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

type Payment struct {
	InvoiceID string `json:"invoice_id" jsonschema:"the invoice to pay"`
	Cents     int64  `json:"cents"`
}

type Receipt struct {
	PaymentID string `json:"payment_id"`
}

// A function becomes a tool, and the same invoice is paid once for each event.
func ExampleNew() {
	ctx := context.Background()
	guard, err := toolguard.Open(ctx, storetest.NewMemory(), nil) // a real program opens a ledger on disk
	if err != nil {
		log.Fatal(err)
	}
	pay, err := goguard.New(guard, registry.Tool{
		Server: "books", Name: "pay_invoice", Description: "Pays an invoice.", Effect: registry.Write,
		Policy: registry.Policy{OncePer: []string{"source_event", "/invoice_id"}},
	}, func(ctx context.Context, in Payment) (Receipt, error) {
		d, _ := registry.DispatchFrom(ctx)
		fmt.Printf("paying %s, attempt %d, with a key of %d characters\n", in.InvoiceID, d.Attempt, len(d.Key))
		return Receipt{PaymentID: "PAY-1"}, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx = toolguard.WithFacts(ctx, keyderive.Facts{SourceEvent: "evt-1"})
	for range 2 { // the event was delivered twice
		receipt, verdict, err := pay.Call(ctx, Payment{InvoiceID: "INV-7", Cents: 4200})
		fmt.Println(receipt.PaymentID, verdict.Outcome, err)
	}
	_, verdict, err := pay.Call(ctx, Payment{InvoiceID: "INV-7", Cents: 9900})
	fmt.Println(verdict.Outcome, verdict.Reason, verdict.Differs, err != nil)
	// Output:
	// paying INV-7, attempt 1, with a key of 36 characters
	// PAY-1 fresh <nil>
	// PAY-1 replayed <nil>
	// blocked arguments_changed [/cents] true
}
