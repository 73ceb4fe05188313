package keyderive_test

import (
	"fmt"

	"toolguard.dev/keyderive"
)

// An invoice is paid once per event that asks for it, whatever the wording.
func Example() {
	schema, err := keyderive.Parse([]byte(`{"type":"object","properties":{
		"invoice_id":{"type":"string"},"amount":{"type":"number"},
		"currency":{"type":"string","default":"USD"},"memo":{"type":"string"}}}`))
	if err != nil {
		panic(err)
	}
	deriver, err := keyderive.Definition{
		Version:   keyderive.KeyVersion,
		Declared:  true,
		Facts:     []string{"source_event"},
		Target:    []string{"/invoice_id"},
		MayDiffer: []string{"/memo"},
		Defaults:  keyderive.SchemaDefaults(schema),
	}.Compile()
	if err != nil {
		panic(err)
	}
	facts := keyderive.Facts{Tenant: "acme", Workflow: "accounts-payable", SourceEvent: "evt_1001", CallID: "call_0"}

	for _, text := range []string{
		`{"invoice_id":"INV-4471","amount":120.50}`,
		`{"memo":"second try","currency":"USD","amount":1.205e2,"invoice_id":"INV-4471"}`,
		`{"invoice_id":"INV-4471","amount":999}`,
	} {
		args, err := keyderive.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		id, err := deriver.Derive("billing/pay_invoice", facts, args)
		if err != nil {
			panic(err)
		}
		key, _ := id.Key(1)
		fmt.Println(key, id.MaterialDigest[:15])
	}
	// Output:
	// 108d4a9d-108e-88cc-aeea-ba110c849ec8 sha256:1de26781
	// 108d4a9d-108e-88cc-aeea-ba110c849ec8 sha256:1de26781
	// 108d4a9d-108e-88cc-aeea-ba110c849ec8 sha256:1dc2db8c
}

func ExampleCanonical() {
	form, err := keyderive.Canonical([]byte(`{ "b": 1e2, "a": [9007199254740993, "\u00e9"] }`))
	fmt.Println(string(form), err)
	_, err = keyderive.Canonical([]byte(`{"a":1,"\u0061":2}`))
	fmt.Println(err)
	// Output:
	// {"a":[9007199254740993,"é"],"b":100} <nil>
	// not strict JSON: a second member "a" at byte 7
}

func ExampleDiffer() {
	first, _ := keyderive.Parse([]byte(`{"amount":100,"lines":[{"n":1}],"currency":"USD"}`))
	second, _ := keyderive.Parse([]byte(`{"amount":1e2,"lines":[{"n":2}],"to":null}`))
	fmt.Println(keyderive.Differ(first, second, 10))
	// Output: [/currency /lines/0/n /to]
}
