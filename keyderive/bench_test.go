package keyderive_test

import (
	"testing"

	"toolguard.dev/keyderive"
)

// benchArguments are 300 bytes, as a model writes them.
const benchArguments = `{"invoice_id":"INV-2024-004471","amount":1204.50,"currency":"USD","recipient":{"name":"Müller & Söhne GmbH","iban":"DE89370400440532013000"},"memo":"Payment for the consulting services rendered in September as agreed by mail","lines":[{"sku":"A-1","qty":2},{"sku":"B-7","qty":10}],"urgent":false,"x":0}`

const benchSchema = `{"type":"object","properties":{"currency":{"default":"USD"},"urgent":{"default":false},"recipient":{"properties":{"country":{"default":"DE"}}}}}`

func benchDeriver(declared bool) *keyderive.Deriver {
	def := keyderive.Definition{Version: 1, MayDiffer: []string{"/memo"}, KeyArgument: "/idempotency_key",
		Defaults: keyderive.SchemaDefaults(parse(benchSchema))}
	if declared {
		def.Declared, def.Facts, def.Target = true, []string{"source_event"}, []string{"/invoice_id"}
		def.Normalize = keyderive.Normalize{"/invoice_id": {"trim", "upper"}}
	}
	return must(def.Compile())
}

func BenchmarkDerive(b *testing.B) {
	text := []byte(benchArguments)
	facts := keyderive.Facts{Tenant: "acme", Workflow: "accounts-payable", SourceEvent: "evt_1001", CallID: "call_0"}
	for name, d := range map[string]*keyderive.Deriver{"declared": benchDeriver(true), "undeclared": benchDeriver(false)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				args, err := keyderive.Parse(text)
				if err != nil {
					b.Fatal(err)
				}
				if err := keyderive.CheckNumbers(args); err != nil {
					b.Fatal(err)
				}
				id, err := d.Derive("billing/pay_invoice", facts, args)
				if err != nil {
					b.Fatal(err)
				}
				id.Key(1)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(benchArguments)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := keyderive.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendCanonical(b *testing.B) {
	v := parse(benchArguments)
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = keyderive.AppendCanonical(buf[:0], v)
	}
}
