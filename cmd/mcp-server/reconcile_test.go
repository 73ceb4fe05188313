package main

// How lookups end a policy of pay: by our key, or by the invoice, which sees what others paid, too.
const (
	byKey     = `lookup: [{tool: find_payment, arguments: {reference: "{{key}}"}, ` + counting + `}]`
	byInvoice = `lookup: [{tool: find_payment, arguments: {invoice: "{{args.invoice_id}}"}, ` + counting + `}]`
	counting  = `applied: size(result.json.payments) == 1, absent: size(result.json.payments) == 0, settle: 500ms`
)
