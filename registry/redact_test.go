package registry_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

const (
	card   = "4111111111111111"
	phrase = `Pä"ss<word>\1/&`
)

func secretTool(t *testing.T, secret ...string) *registry.Entry {
	t.Helper()
	e, err := registry.Compile(registry.Tool{Server: "shop", Name: "pay", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"card":{"type":["string","number"],"maxLength":40},"pass":{"type":"string"},"pin":{"type":"string"},"cvv":{"type":"string"},"memo":{"type":"string"},"amount":{"type":"number"}}}`),
		Policy: registry.Policy{Secret: secret}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func redactor(t *testing.T, e *registry.Entry, args string) (*registry.Redactor, any) {
	t.Helper()
	v, err := keyderive.Parse([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return e.Redactor(v), v
}

func TestRedactorText(t *testing.T) {
	e := secretTool(t, "/card", "/pass", "/pin", "/cvv")
	args, _ := json.Marshal(map[string]string{"card": card, "pass": phrase, "pin": "1234", "cvv": "737"})
	r, _ := redactor(t, e, string(args))
	quoted, _ := json.Marshal(phrase)
	for _, c := range []struct{ name, text, want string }{
		{"plain", "card " + card + " was declined", "card (secret) was declined"},
		{"inside a word", "x" + card + "y", "x(secret)y"},
		{"twice", card + card, "(secret)(secret)"},
		{"in groups", "4111 1111 1111 1111 or 4111-1111-1111-1111", "(secret) or (secret)"},
		{"over lines", "4111 1111\n  1111 1111", "(secret)"},
		{"as JSON", string(quoted), `"(secret)"`},
		{"as Go", fmt.Sprintf("%q", phrase), `"(secret)"`},
		{"in a URL", "https://x/?p=" + url.QueryEscape(phrase), "https://x/?p=(secret)"},
		{"in a path", "https://x/" + url.PathEscape(phrase), "https://x/(secret)"},
		{"in hex", hex.EncodeToString([]byte(card)) + strings.ToUpper(hex.EncodeToString([]byte(phrase))), "(secret)(secret)"},
		{"in escapes", `{"c":"\u0034111111111111111"}`, `{"c":"(secret)"}`},
		{"only escapes", `say \u0034\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031\u0031`, "say (secret)"},
		{"cut", "the card 411111111111", "the card (secret)"},
		{"cut with dots", "the card 411111111111…", "the card (secret)"},
		{"a short one as a word", "PIN 1234, not 12345 or A1234", "PIN (secret), not 12345 or A1234"},
		{"too short to look for", "737 miles", "737 miles"},
		{"nothing", "all is well", "all is well"},
		{"empty", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := r.Text(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for before := range 4 {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
			text := enc.EncodeToString([]byte("user:"[:before] + card + ":more"))
			if got := r.Text(text); got == text {
				t.Errorf("base64 with %d bytes before: %s", before, got)
			}
		}
	}
	grouped, _ := redactor(t, e, `{"card":"4111 1111 1111 1111"}`)
	if got := grouped.Text("x " + card); got != "x (secret)" {
		t.Errorf("without its spaces: %q", got)
	}
	number, _ := redactor(t, e, `{"card":4111111111111111}`)
	if got := number.Text("x " + card); got != "x (secret)" {
		t.Errorf("a number: %q", got)
	}
	if !r.Shows("INV-"+card) || r.Shows("INV-1234") || (*registry.Redactor)(nil).Shows(card) {
		t.Error("Shows")
	}
	if none := secretTool(t).Redactor(nil); none != nil || none.Text(card) != card {
		t.Error("a tool without secrets hides something")
	}
}

func TestRedactorJSON(t *testing.T) {
	e := secretTool(t, "/card", "/pin", "/cvv")
	r, args := redactor(t, e, `{"card":"`+card+`","pin":"1234","cvv":"737","memo":"for `+card+`","amount":1234}`)
	if got, want := string(r.Arguments(args)), `{"amount":"(secret)","card":"(secret)","cvv":"(secret)","memo":"for (secret)","pin":"(secret)"}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	for _, c := range []struct{ name, text, want string }{
		{"untouched, byte for byte", `{ "b":1.0, "a":"x" }`, `{ "b":1.0, "a":"x" }`},
		{"strings, numbers and names", `{"n":4111111111111111,"4111111111111111":["x ` + card + `"]}`, `{"(secret)":["x (secret)"],"n":"(secret)"}`},
		{"escaped", `{"a":"\u0034111111111111111"}`, `{"a":"(secret)"}`},
		{"JSON in a text", `{"text":"{\"card\":\"\\u0034111111111111111\"}"}`, `{"text":"{\"card\":\"(secret)\"}"}`},
		{"half an emoji", `{"a":"\ud83d","b":"` + card + `"}`, `{"a":"` + "\uFFFD" + `","b":"(secret)"}`},
		{"no JSON", card, `"(secret)"`},
		{"no JSON at all", `{"a":` + card, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(r.JSON(json.RawMessage(c.text))); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("secret-number-%d", i)
	}
	list, _ := json.Marshal(map[string]any{"card": many})
	if all, _ := redactor(t, e, string(list)); all.Text("anything") != registry.Hidden {
		t.Error("too many secrets to look for, and a text is shown")
	}
}

func TestRedactorSame(t *testing.T) {
	e := secretTool(t, "/card", "/pin")
	one, _ := redactor(t, e, `{"card":"a","amount":1}`)
	same, _ := redactor(t, e, `{"amount":2,"card":"a"}`)
	other, _ := redactor(t, e, `{"card":"b"}`)
	if !one.Same(same) || one.Same(other) || one.Same(nil) {
		t.Error("Same")
	}
}

// What a tool says is hidden before it is cut, and a fault in the arguments does not quote them.
func TestSecretsInWords(t *testing.T) {
	e := secretTool(t, "/card")
	args := `{"card":"` + card + `"}`
	_, v := redactor(t, e, args)
	for _, pad := range []int{0, 475, 480, 490, 495, 499, 3990} {
		text := strings.Repeat("x", pad) + " " + card + " declined"
		a := registry.Answer{Result: json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"` + text + `"}]}`)}
		for name, c := range map[string]registry.Classification{
			"answer":   e.ClassifyCall(registry.Input{Arguments: v, Answer: &a}, nil, ""),
			"error":    e.ClassifyCall(registry.Input{Arguments: v}, errors.New(text), ""),
			"protocol": e.ClassifyCall(registry.Input{Arguments: v, Answer: &registry.Answer{Error: &registry.ProtocolError{Message: text}}}, nil, ""),
		} {
			if strings.Contains(c.Says, "4111") || c.Says == "" {
				t.Errorf("%s after %d: %s", name, pad, c.Says)
			}
		}
	}
	_, long := redactor(t, e, `{"card":"`+card+card+card+`"}`)
	if err := e.Validate(long); err == nil || strings.Contains(err.Error(), "4111") {
		t.Errorf("%v", err)
	}
	id, err := registry.CompileExpression("result.json.id", registry.KindAnswer)
	if err != nil {
		t.Fatal(err)
	}
	e, err = registry.Compile(registry.Tool{Server: "a", Name: "b", Policy: registry.Policy{Secret: []string{"/card"}, DownstreamID: id}})
	if err != nil {
		t.Fatal(err)
	}
	a := registry.Answer{Result: json.RawMessage(`{"content":[],"structuredContent":{"id":"p-` + card + `"}}`)}
	if c := e.ClassifyCall(registry.Input{Arguments: v, Answer: &a}, nil, ""); c.DownstreamID != "" || c.Outcome != registry.Succeeded {
		t.Errorf("%+v", c)
	}
}

func TestSecretPolicy(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"card":{"type":"object","properties":{"pan":{"type":"string"}}},"to":{"type":"array","items":{"type":"string"}},"key":{"type":"string"}},"additionalProperties":false}`)
	for _, c := range []struct {
		name, says string
		policy     registry.Policy
	}{
		{"good", "", registry.Policy{Secret: []string{"/card", "/to/*"}, OncePer: []string{"source_event", "/key"}, MayDiffer: []string{"/card"}}},
		{"unknown", "does not have", registry.Policy{Secret: []string{"/cards"}}},
		{"no pointer", "no JSON Pointer", registry.Policy{Secret: []string{"card"}}},
		{"once_per", "once_per names /card", registry.Policy{Secret: []string{"/card"}, OncePer: []string{"/card"}}},
		{"below once_per", "once_per names /card", registry.Policy{Secret: []string{"/card/pan"}, OncePer: []string{"/card"}}},
		{"above once_per", "once_per names /to/0", registry.Policy{Secret: []string{"/to/*"}, OncePer: []string{"/to/0"}}},
		{"entity", "entity names /card/pan", registry.Policy{Secret: []string{"/card"}, Entity: []string{"/card/pan"}}},
		{"key", "the downstream key goes to /key", registry.Policy{Secret: []string{"/key"}, DownstreamKey: registry.DownstreamKey{Argument: "/key"}}},
		{"may_differ", "counts as a whole", registry.Policy{Secret: []string{"/card"}, MayDiffer: []string{"/card/pan"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := registry.Compile(registry.Tool{Server: "a", Name: "b", InputSchema: schema, Policy: c.policy})
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, registry.ErrPolicy) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v", err)
			}
		})
	}
	bare, err := json.Marshal(registry.Policy{})
	if err != nil || strings.Contains(string(bare), "Secret") {
		t.Errorf("a policy without secrets has another hash than before: %s", bare)
	}
}
