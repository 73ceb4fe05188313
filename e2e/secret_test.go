package e2e_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const cardNumber = "4929731586024817"

const tillPolicies = `tools:
  till/charge: {effect: write, once_per: [/invoice], secret: [/card], downstream_id: result.json.id}
  till/charge_big: {effect: write, secret: [/card], approval: always}
  till/charge_checked:
    effect: write
    secret: [/card]
    lookup: [{tool: find_charge, arguments: {invoice: "{{key}}", card: "{{args.card}}"}, applied: "!result.is_error"}]
  till/balance: {effect: read, secret: [/card]}
`

// spellings are the ways in which a card number may stand in a file.
func spellings(card string) []string {
	var groups, escaped []string
	var wide []byte
	for i := 0; i < len(card); i += 4 {
		groups = append(groups, card[i:i+4])
	}
	for _, c := range card {
		escaped = append(escaped, fmt.Sprintf(`\u%04x`, c))
		wide = append(wide, byte(c), 0)
	}
	digits := []byte(card)
	slices.Reverse(digits)
	all := []string{card, strings.Join(groups, " "), strings.Join(groups, "-"), strings.Join(escaped, ""), string(wide), string(digits), hex.EncodeToString([]byte(card)), strings.ToUpper(hex.EncodeToString([]byte(card)))}
	slices.Reverse(groups)
	all = append(all, strings.Join(groups, ""), strings.Join(groups, " "))
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:before] + card))
		all = append(all, text[(before*8+5)/6:len(text)-1])
	}
	return append(all, card[:12], card[4:]) // most of it is too much
}

// shows fails the test if a text has the card number in any spelling.
func shows(t *testing.T, where, text string) {
	t.Helper()
	for _, s := range spellings(cardNumber) {
		if i := strings.Index(text, s); i >= 0 {
			t.Errorf("%s shows the card: …%q…", where, text[max(0, i-80):min(len(text), i+80)])
			return
		}
	}
}

// TestCardNumber sends a card number through the product, to a server that repeats it everywhere, by two processes on one
// ledger, with every end that a call may have. Afterwards it is in no file that the product wrote, and in nothing that it said.
func TestCardNumber(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	effects := filepath.Join(t.TempDir(), "effects")
	g := serve(t, upstream{name: "till", argv: []string{self, "till", effects}}, tillPolicies)
	said := map[string]string{}
	told := func(r *result) *result {
		t.Helper()
		if o := r.says("outcome"); o != "fresh" && o != "replayed" {
			said[fmt.Sprintf("call %d (%s)", len(said)+1, o)] = r.String()
		}
		return r
	}
	cli := func(args ...string) string {
		out := g.cli(t, args...)
		said["mcp-server "+strings.Join(args, " ")] = out
		return out
	}
	charge := func(invoice, act string) args {
		return args{"card": cardNumber, "invoice": invoice, "amount": 12, "memo": "card " + cardNumber, "act": act}
	}

	// settled calls until the server, which may just have died, is there and the outcome is known.
	settled := func(c *client, tool string, a args) *result {
		var r *result
		poll(t, tool+" has an outcome", func() bool {
			r = told(c.attempt(tool, a))
			return r.says("outcome") != "pending" && r.says("reason") != "tool_unavailable"
		})
		return r
	}

	a, b := g.start(t, legacy), g.start(t, modern)
	first := told(a.call("charge", charge("1", "")).is("fresh", ""))
	if !contains(first, cardNumber) {
		t.Errorf("the tool's own answer is not its own: %s", first)
	}
	told(b.call("charge", charge("1", ""))).repeats(first)
	changed := told(b.call("charge", args{"card": "5500000000000004", "invoice": "1", "amount": 12})).is("blocked", "arguments_changed")
	shows(t, "a call with another card", changed.String())
	told(a.attempt("charge", charge("2", "refuse")))
	told(b.attempt("charge", charge("3", "fail"))).is("escalated", "outcome_unknown")
	told(a.attempt("charge", charge("4", "garble"))).is("escalated", "outcome_unknown")
	told(b.attempt("charge", charge("5", "die"))).is("escalated", "outcome_unknown")
	told(a.call("charge", args{"card": cardNumber + cardNumber + cardNumber, "invoice": "6"})).is("blocked", "invalid_arguments")
	told(a.call("charge", charge("INV-"+cardNumber, ""))).is("blocked", "invalid_arguments")
	told(a.attempt("balance", charge("7", "die")))
	settled(a, "charge_checked", charge("8", "fail"))

	big := charge("9", "")
	told(a.call("charge_big", big)).is("pending", "approval_required")
	var waiting []struct{ ID string }
	list := cli("approvals", "list", "--json")
	if err := json.Unmarshal([]byte(list), &waiting); err != nil || len(waiting) != 1 {
		t.Fatalf("%v in %s", err, list)
	}
	cli("approvals", "list")
	cli("approvals", "approve", waiting[0].ID)
	if r := settled(b, "charge_big", big); r.says("status") != "succeeded" || !contains(r, cardNumber) {
		t.Errorf("approved: %s", r) // whole, for it was this call that sent the card
	}
	told(a.call("charge_big", charge("10", ""))).is("blocked", "earlier_unknown") // and shows what the first one got

	a.sendCall("charge", charge("11", "hang"))
	poll(t, "the last charge began", func() bool { return strings.Contains(readFile(t, effects), "11\n") })
	a.kill9()
	settled(b, "charge", charge("11", "hang")).is("escalated", "outcome_unknown")
	for _, r := range []*result{b.call("toolguard_operation", args{}), b.call("toolguard_operation", args{"key": first.says("key")})} {
		shows(t, "toolguard_operation", r.String())
	}

	var operations []struct{ Key string }
	if err := json.Unmarshal([]byte(cli("ops", "list", "--json")), &operations); err != nil || len(operations) < 8 {
		t.Fatalf("%v, %d operations", err, len(operations))
	}
	for _, op := range operations {
		cli("ops", "show", op.Key)
		cli("ops", "show", op.Key, "--json")
	}
	cli("export")
	cli("export", "--format", "csv")
	cli("report")
	b.end()
	cli("verify")
	cli("check")
	for name, text := range map[string]string{"the first process's stderr": a.stderr.String(), "the second one's": b.stderr.String()} {
		if !strings.Contains(text, "(secret)") {
			t.Errorf("%s has nothing of what the server wrote", name)
		}
		said[name] = text
	}
	for where, text := range said {
		shows(t, where, text)
	}
	files := 0
	err = filepath.WalkDir(g.data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files++
			shows(t, path, readFile(t, path))
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%v, %d files", err, files)
	}
}
