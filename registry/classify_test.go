package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"toolguard.dev/registry"
)

func errorAnswer(text string) registry.Answer {
	quoted, _ := json.Marshal(text)
	return registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":` + string(quoted) + `}],"isError":true}`)}
}

func textAnswer(text string) registry.Answer {
	a := errorAnswer(text)
	a.Result = json.RawMessage(strings.Replace(string(a.Result), `"isError":true`, `"isError":false`, 1))
	return a
}

func protocolError(code int, message string) registry.Answer {
	return registry.Answer{Error: &registry.ProtocolError{Code: code, Message: message}}
}

func TestClassifyHandlerErrors(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for _, c := range []struct {
		err  error
		want registry.Outcome
		sent bool
	}{
		{fmt.Errorf("dial: %w", registry.ErrNotSent), registry.Failed, false},
		{fmt.Errorf("dry: %w", registry.ErrNotApplied), registry.Failed, true},
		{errors.Join(context.DeadlineExceeded, registry.ErrNotSent), registry.Failed, false},
		{context.DeadlineExceeded, registry.Unknown, true},
		{errors.New("not found"), registry.Unknown, true},
	} {
		got := e.Classify(registry.Answer{}, c.err, "k")
		if got.Outcome != c.want || got.Sent != c.sent || got.Answered || got.Says == "" {
			t.Errorf("%v: got %+v", c.err, got)
		}
	}
}

func TestClassifyShapes(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for text, want := range map[string]registry.Outcome{
		`{"content":[]}`: registry.Succeeded,
		`{"content":[{"type":"text","text":"done"}]}`: registry.Succeeded,
		`{"content":[{"type":"hologram","x":1}]}`:     registry.Succeeded,
		`{}`: registry.Succeeded,
		`{"content":null,"isError":null,"structuredContent":{"a":1}}`:                           registry.Succeeded,
		`{"content":[{"type":"text","text":"\ud83d"}]}`:                                         registry.Succeeded,
		`{"resultType":"complete","content":[]}`:                                                registry.Succeeded,
		`{"content":[{"type":"text","text":"Error: no"}],"structuredContent":{"ok":true}}`:      registry.Unknown,
		`{"resultType":"input_required","inputRequests":{}}`:                                    registry.Incomplete,
		`{"resultType":"task","taskId":"t"}`:                                                    registry.Incomplete,
		`{"content":[],"inputRequests":{"a":{}}}`:                                               registry.Incomplete,
		`{"content":[],"task":{"taskId":"t"}}`:                                                  registry.Incomplete,
		`{"content":[{"type":"text","text":"not found"}],"isError":true,"task":{"taskId":"t"}}`: registry.Incomplete,
		`{"content":[],"task":"none"}`:                                                          registry.Succeeded,
		`{"content":[],"task":{"taskId":""}}`:                                                   registry.Succeeded,
		``:                                                                                      registry.Unknown,
		`null`:                                                                                  registry.Unknown,
		`[]`:                                                                                    registry.Unknown,
		`"ok"`:                                                                                  registry.Unknown,
		`{"content":"ok"}`:                                                                      registry.Unknown,
		`{"content":{}}`:                                                                        registry.Unknown,
		`{"content":["ok"]}`:                                                                    registry.Unknown,
		`{"content":[null]}`:                                                                    registry.Unknown,
		`{"content":[{"type":"text","text":7}]}`:                                                registry.Unknown,
		`{"content":[],"isError":"true"}`:                                                       registry.Unknown,
		`{"content":[],"resultType":7}`:                                                         registry.Unknown,
		`{"content":[{"type":"text","text":"not found"}],"isError":tru`:                   registry.Unknown,
		`{"content":[{"type":"text","text":"not found"}],"isError":true,"IsError":false}`: registry.Failed,
		strings.Repeat("[", 100_000): registry.Unknown,
		`{"content":[{"type":"text","text":"Not found"},{"type":"text","text":"ok"}],"isError":true}`: registry.Failed,
		`{"content":[],"isError":true}`: registry.Unknown,
	} {
		got := e.Classify(registry.Answer{Result: json.RawMessage(text)}, nil, "k")
		if got.Outcome != want || !got.Sent {
			t.Errorf("%.90s: got %+v, want %s", text, got, want)
		}
	}
}

func TestClassifyProtocolErrors(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for code, want := range map[int]registry.Outcome{
		-32700: registry.Failed, -32600: registry.Failed, -32601: registry.Failed, -32602: registry.Failed,
		-32603: registry.Unknown, -32000: registry.Unknown, -32001: registry.Unknown, 0: registry.Unknown, 404: registry.Unknown,
	} {
		if got := e.Classify(protocolError(code, "not found"), nil, ""); got.Outcome != want || got.Says != "not found" || !got.Answered {
			t.Errorf("%d: got %+v", code, got)
		}
	}
	// The TypeScript SDK says this after the tool has run.
	for _, message := range []string{"Output validation error: Tool pay has an output schema but no structured content was provided",
		"MCP error -32602: Invalid structured content for tool pay"} {
		if got := e.Classify(protocolError(-32602, message), nil, ""); got.Outcome != registry.Unknown {
			t.Errorf("%s: got %+v", message, got)
		}
	}
}

func TestClassifyStatus(t *testing.T) {
	e := compile(t, ``, registry.Policy{NotApplied: conditions(t, `result.text == "maintenance"`)})
	for _, c := range []struct {
		answer registry.Answer
		status int
		want   registry.Outcome
	}{
		{textAnswer("done"), 200, registry.Succeeded},
		{textAnswer("done"), 500, registry.Unknown},
		{errorAnswer("not found"), 503, registry.Unknown},
		{textAnswer("not found"), 404, registry.Failed},
		{textAnswer("invalid"), 408, registry.Unknown},
		{textAnswer("hm"), 400, registry.Unknown},
		{textAnswer("maintenance"), 503, registry.Failed},
		{registry.Answer{}, 400, registry.Unknown},
		{protocolError(-32602, "no"), 400, registry.Failed},
		{protocolError(-32602, "no"), 500, registry.Unknown},
		{protocolError(-32000, "HTTP 404 Not Found: session not found"), 404, registry.Unknown},
	} {
		c.answer.Status = c.status
		if got := e.Classify(c.answer, nil, ""); got.Outcome != c.want {
			t.Errorf("%d %s: got %+v", c.status, c.answer.Result, got)
		}
	}
}

func TestClassifyByStatus(t *testing.T) {
	e := compile(t, ``, registry.Policy{Errors: registry.ErrorStatus, DownstreamKey: registry.DownstreamKey{Header: "Idempotency-Key"}})
	for _, c := range []struct {
		text   string
		status int
		want   registry.Outcome
	}{
		{`{"id":1}`, 200, registry.Succeeded},
		{`{"id":1}`, 202, registry.Succeeded},
		{`see other`, 303, registry.Unknown},
		{`moved`, 307, registry.Unknown},
		{`{"amount":550,"hint":"retry after the connection timeout"}`, 422, registry.Failed},
		{`hm`, 402, registry.Failed},
		{`hm`, 429, registry.Failed},
		{`hm`, 408, registry.Unknown},
		{`hm`, 409, registry.Unknown},
		{`already exists`, 409, registry.Failed},
		{`Keys for idempotent requests can only be used with the same parameters they were first used with.`, 400, registry.Unknown},
		{`There is currently another in-progress request using this Idempotent Key`, 409, registry.Unknown},
		{`not found`, 500, registry.Unknown},
	} {
		a := errorAnswer(c.text)
		if c.status < 400 {
			a = textAnswer(c.text)
		}
		a.Status = c.status
		if got := e.Classify(a, nil, "k"); got.Outcome != c.want {
			t.Errorf("%d %s: got %+v", c.status, c.text, got)
		}
	}
}

func TestClassifyPolicy(t *testing.T) {
	insufficient := `result.text.contains("insufficient")`
	denied := `result.json.status == "denied"`
	maybe := `result.text.contains("maybe")`
	for name, c := range map[string]struct {
		notApplied, unknown []string
		mode                registry.ErrorMode
		answer              registry.Answer
		want                registry.Outcome
	}{
		"recognised error":           {[]string{insufficient}, nil, "", errorAnswer("insufficient thing"), registry.Failed},
		"recognised success":         {[]string{denied}, nil, "", registry.Answer{Result: []byte(`{"structuredContent":{"status":"denied"}}`)}, registry.Failed},
		"recognised text":            {[]string{denied}, nil, "", textAnswer(`{"status":"denied"}`), registry.Failed},
		"recognised in doubt":        {[]string{insufficient}, nil, "", errorAnswer("insufficient, timed out"), registry.Failed},
		"recognised protocol error":  {[]string{insufficient}, nil, "", protocolError(-32000, "insufficient"), registry.Failed},
		"failing not_applied":        {[]string{denied, insufficient}, nil, "", textAnswer("insufficient"), registry.Failed},
		"only failing":               {[]string{denied}, nil, "", textAnswer("ok"), registry.Succeeded},
		"unknown":                    {nil, []string{maybe}, "", textAnswer("maybe"), registry.Unknown},
		"unknown wins":               {[]string{insufficient}, []string{maybe}, "", errorAnswer("maybe insufficient"), registry.Unknown},
		"unknown wins over code":     {nil, []string{maybe}, "", protocolError(-32602, "maybe"), registry.Unknown},
		"failing unknown":            {nil, []string{denied}, "", textAnswer("ok"), registry.Unknown},
		"failing unknown, code":      {nil, []string{denied}, "", protocolError(-32602, "no"), registry.Failed},
		"words":                      {nil, nil, registry.ErrorWords, errorAnswer("hm"), registry.Unknown},
		"refused":                    {nil, nil, registry.ErrorRefused, errorAnswer("hm"), registry.Failed},
		"refused, doubt":             {nil, nil, registry.ErrorRefused, errorAnswer("hm\ntimeout"), registry.Unknown},
		"refused, part":              {nil, nil, registry.ErrorRefused, errorAnswer("1 of 3 failed"), registry.Unknown},
		"refused, protocol":          {nil, nil, registry.ErrorRefused, protocolError(-32000, "no"), registry.Unknown},
		"no error is a refusal":      {nil, nil, registry.ErrorUnknown, errorAnswer("not found"), registry.Unknown},
		"but what policy recognises": {[]string{insufficient}, nil, registry.ErrorUnknown, errorAnswer("insufficient"), registry.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			e := compile(t, ``, registry.Policy{NotApplied: conditions(t, c.notApplied...), Unknown: conditions(t, c.unknown...), Errors: c.mode})
			if got := e.Classify(c.answer, nil, ""); got.Outcome != c.want {
				t.Errorf("got %+v", got)
			}
		})
	}
	e := compile(t, ``, registry.Policy{NotApplied: conditions(t, `args.n == 1 && context.tenant == "acme"`)})
	a := textAnswer("ok")
	in := registry.Input{Arguments: parse(t, `{"n":1}`), Answer: &a}
	in.Facts.Tenant = "acme"
	if got := e.ClassifyCall(in, nil, ""); got.Outcome != registry.Failed {
		t.Errorf("got %+v", got)
	}
	if got := e.ClassifyCall(registry.Input{}, nil, ""); got.Outcome != registry.Unknown || !got.Sent {
		t.Errorf("no answer: got %+v", got)
	}
}

func TestClassifyWords(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	refusals := []string{
		"Invoice not found", "NOT_FOUND: no row", "ResourceNotFoundException", "Error: invalid date", "permission denied",
		"PERMISSION_DENIED", "AccessDenied", "403 Forbidden", "Request failed with status code 404", "HTTP 422", "HTTP/1.1 404 x",
		"status: 400", "the amount must be positive", "amount must be <= 500", "limit must be less than 500",
		"Field 'to' is required", "some fields are missing", "some required parameters are missing",
		"You don't have permission", "You don’t have permission to do that", "File already exists", "unknown tool: pay",
		"MCP error -32602: Input validation error: Invalid arguments for tool pay", "Issue #502 does not exist",
		"GET /items/503: 404 not found", "balance 1,500 is not valid", "invalid price 500.25", "card declined",
		"insufficient funds", "Error response from daemon: No such container: x",
		"invalid: 12/31/2025 is in the past", "the thing could not be created: permission denied", "\n  Not Found  \nmore",
	}
	for _, text := range refusals {
		if got := e.Classify(errorAnswer(text), nil, ""); got.Outcome != registry.Failed {
			t.Errorf("%q: got %s, want failed", text, got.Outcome)
		}
		if got := e.Classify(textAnswer("ok: "+text), nil, ""); got.Outcome != registry.Succeeded {
			t.Errorf("%q, no error: got %s", text, got.Outcome)
		}
	}
	doubts := []string{
		"", "Something went wrong", "failed", "first line\nnot found", "notfoundation", "unforbidden",
		"invalid: timed out", "not found\nTimeoutError", "ConnectTimeout: invalid", "connection refused", "ECONNRESET: invalid",
		"DEADLINE_EXCEEDED invalid", "denied: connection reset by peer", "invalid response from server",
		"Invalid: upstream returned 502", "Request failed with status code 500: invalid", "503: not found", "error 599, invalid",
		"invalid, internal server error", "Service Unavailable: invalid", "not found, please try again",
		"operation was aborted: invalid state", "cancelled: not allowed", "network error: not found", "socket hang up: invalid",
		"1 of 3 items failed: not found", "1 of 3 items failed", "2 out of 10 rows invalid", "2/3 sent, 1 rejected",
		"partially applied: 1 invalid", "Some recipients were rejected", "some of them not found",
		"Issue was created, but the label was not found", "Created #12 but assignee not found", "Email sent but template is missing",
		"Successfully paid; receipt not found", "payment has already been processed: invalid",
		"invalid character '<' looking for beginning of value", "Output validation error: invalid structured content",
		"2 sent, others rejected", "conflict", "duplicate", "too many requests", "rate limit exceeded", "404", "order 404 failed",
		"unexpected EOF: invalid", "dial tcp 127.0.0.1:80: refused", "killed: not permitted", "EAI_AGAIN not found",
	}
	for _, text := range doubts {
		if got := e.Classify(errorAnswer(text), nil, ""); got.Outcome != registry.Unknown {
			t.Errorf("%q: got %s, want unknown", text, got.Outcome)
		}
	}
	for text, want := range map[string]registry.Outcome{
		"Error: not found": registry.Unknown, "Error not found": registry.Unknown, "ERROR - x": registry.Unknown, "error": registry.Unknown,
		"  Error\nx": registry.Unknown, "[ERROR] x": registry.Unknown, "**Error**: x": registry.Unknown, "❌ Error: x": registry.Unknown,
		"Errors: 0": registry.Succeeded, "Error-free run": registry.Succeeded, "No Error": registry.Succeeded, "Erro": registry.Succeeded,
		"ErrorBudget created": registry.Succeeded, "Timeout set to 5": registry.Succeeded,
	} {
		if got := e.Classify(textAnswer(text), nil, ""); got.Outcome != want {
			t.Errorf("%q: got %s, want %s", text, got.Outcome, want)
		}
	}
}

// Every word of the lists does what the lists are for.
func TestWordLists(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for _, w := range registry.RefusalWords {
		if got := e.Classify(errorAnswer("x "+strings.ToUpper(w)+"."), nil, ""); got.Outcome != registry.Failed {
			t.Errorf("refusal word %q: got %s", w, got.Outcome)
		}
	}
	for _, w := range registry.DoubtWords {
		if got := e.Classify(errorAnswer("denied\n\n("+w+")"), nil, ""); got.Outcome != registry.Unknown {
			t.Errorf("doubt word %q: got %s", w, got.Outcome)
		}
	}
}

func TestClassifyKeyTrouble(t *testing.T) {
	key := "0191d6a2-0000-8000-8000-000000000001"
	withKey := registry.Policy{DownstreamKey: registry.DownstreamKey{Header: "Idempotency-Key"}, Errors: registry.ErrorRefused,
		NotApplied: conditions(t, `result.text.contains("declared")`)}
	e, plainEntry := compile(t, ``, withKey), compile(t, ``, registry.Policy{Errors: registry.ErrorRefused})
	for _, text := range []string{
		"Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than 'x'",
		"There is currently another in-progress request using this Idempotent Key", "Idempotency-Key is already used",
		"A request is outstanding for this Idempotency-Key", "IDEMPOTENCY_KEY_REUSED: Different request parameters used",
		"IdempotentParameterMismatch", "invalid: key " + key + " already in use", "the request is still being processed",
		"concurrent request", "declared: request in progress", "invalid: used with different parameters",
	} {
		if got := e.Classify(errorAnswer(text), nil, key); got.Outcome != registry.Unknown {
			t.Errorf("%q: got %s", text, got.Outcome)
		}
		if strings.Contains(text, "invalid") {
			if got := plainEntry.Classify(errorAnswer(text), nil, ""); got.Outcome != registry.Failed {
				t.Errorf("%q, no key: got %s", text, got.Outcome)
			}
		}
	}
	for text, want := range map[string]registry.Outcome{
		"declared": registry.Failed, "Idempotency-Key is missing": registry.Failed, "invalid idempotency key": registry.Failed,
	} {
		if got := e.Classify(errorAnswer(text), nil, key); got.Outcome != want {
			t.Errorf("%q: got %s", text, got.Outcome)
		}
	}
	if got := e.Classify(textAnswer("Made ticket 'fix concurrent request handling, in progress' with key "+key), nil, key); got.Outcome != registry.Succeeded {
		t.Errorf("success that quotes: got %s", got.Outcome)
	}
	if got := e.Classify(textAnswer("Idempotency key was used with different parameters"), nil, key); got.Outcome != registry.Unknown {
		t.Errorf("unmarked: got %s", got.Outcome)
	}
	for _, message := range []string{"idempotency key already used", "a request with this key is in progress", "request still being processed",
		"duplicate of idempotency key " + key, "IdempotentParameterMismatch"} {
		for _, code := range []int{-32700, -32600, -32601, -32602, -32000} {
			if got := e.Classify(protocolError(code, message), nil, key); got.Outcome != registry.Unknown {
				t.Errorf("protocol error %d %s: got %s", code, message, got.Outcome)
			}
		}
	}
}

func TestClassifyExists(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for text, want := range map[string]bool{
		"reference k-1 already exists": true, "duplicate key k-1": true, "reference k-2 already exists": false,
		"k-1 not found": false, "already exists": false,
	} {
		if got := e.Classify(errorAnswer(text), nil, "k-1"); got.Exists != want {
			t.Errorf("%q: got %+v", text, got)
		}
	}
	if got := e.Classify(errorAnswer("already exists"), nil, ""); got.Exists {
		t.Error("no key was sent")
	}
}

func TestClassifyDownstreamIDAndSays(t *testing.T) {
	id := expression(t, `result.json.id`, registry.KindAnswer)
	e := compile(t, ``, registry.Policy{DownstreamID: id})
	if got := e.Classify(textAnswer(`{"id":12345678901234567}`), nil, ""); got.DownstreamID != "12345678901234567" {
		t.Errorf("got %+v", got)
	}
	if got := e.Classify(textAnswer(`none`), nil, ""); got.DownstreamID != "" || got.Outcome != registry.Succeeded {
		t.Errorf("got %+v", got)
	}
	text := expression(t, `result.text`, registry.KindAnswer)
	e = compile(t, ``, registry.Policy{DownstreamID: text})
	for id, want := range map[string]string{
		strings.Repeat("é", 512): strings.Repeat("é", 512), strings.Repeat("é", 512) + "x": "", " PAY 1\n": "PAY 1",
		"PAY-1\nPAY-2": "", "PAY\u20281": "", "a\x00b": "", "ü 7": "ü 7",
	} {
		if got := e.Classify(textAnswer(id), nil, ""); got.DownstreamID != want {
			t.Errorf("%.40q: id %.40q", id, got.DownstreamID)
		}
	}
	for text, want := range map[string]string{
		" a\r\n\tb\x00\x1b[31mc\u2028d ":  "a b [31mc d",
		strings.Repeat("ü", 300):          strings.Repeat("ü", 250),
		strings.Repeat("x", 499) + "ü":    strings.Repeat("x", 499),
		strings.Repeat(" ", 5000) + "far": "",
		"bad \xff byte":                   "bad � byte",
	} {
		got := e.Classify(textAnswer(text), nil, "")
		if got.Says != want || !utf8.ValidString(got.Says) {
			t.Errorf("%q: says %q", text, got.Says)
		}
	}
	if got := e.Classify(registry.Answer{Result: []byte(`[1, 2]`)}, nil, ""); got.Says != "[1, 2]" {
		t.Errorf("unreadable: says %q", got.Says)
	}
	if got := e.Classify(registry.Answer{Result: []byte(`{"structuredContent":{"a":1}}`)}, nil, ""); got.Says != `{"a":1}` {
		t.Errorf("structured: says %q", got.Says)
	}
}
