package registry_test

import (
	"encoding/json"
	"testing"

	"toolguard.dev/registry"
)

// An answer that says that it is an error though it is not marked as one is no success.
func TestClassifyUnmarkedError(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	quoted := func(text string) string {
		b, _ := json.Marshal(text)
		return string(b)
	}
	for text, want := range map[string]registry.Outcome{
		"Failed to create issue: title is required": registry.Unknown, "failed: x": registry.Unknown, "Could not connect": registry.Unknown,
		"Couldn’t save": registry.Unknown, "Unable to save": registry.Unknown, "Cannot delete x": registry.Unknown,
		"An error occurred": registry.Unknown, "Unexpected error: x": registry.Unknown, "❌ Failed to send": registry.Unknown,
		"<error>x</error>": registry.Unknown, "Traceback (most recent call last):\n x": registry.Unknown, "Internal server error": registry.Unknown,
		"fatal: not a git repository": registry.Unknown, "⚠️ Error: x": registry.Unknown, "Exception: x": registry.Unknown,
		`{"error":"not found"}`: registry.Unknown, `{"error":{"code":5,"message":"x"}}`: registry.Unknown, `{"errors":["x"],"data":null}`: registry.Unknown,
		`{"success":false}`: registry.Unknown, `{"ok":false,"reason":"x"}`: registry.Unknown, ` {"status":"error"} `: registry.Unknown,
		`{"status":"FAILED","id":1}`: registry.Unknown, `{"isError":true}`: registry.Unknown, `{"Error":"x"}`: registry.Unknown, `{"error":true}`: registry.Unknown,

		"Failed logins: 0": registry.Succeeded, "Failures: 0": registry.Succeeded, "Done. No error": registry.Succeeded, "Canned reply saved": registry.Succeeded,
		"Unable-bodied list saved": registry.Succeeded, "Exceptions list updated": registry.Succeeded, "Application rejected": registry.Succeeded,
		`{"status":500,"code":"internal_server_error","message":"x"}`: registry.Unknown, `{"type":"about:blank","title":"x","status":404}`: registry.Unknown,
		`{"object":"error","id":null}`: registry.Unknown, `{"statusCode":502}`: registry.Unknown, `{"status_code":429}`: registry.Unknown,
		`{"status":200,"id":1}`: registry.Succeeded, `{"status":4}`: registry.Succeeded, `{"object":"page","status":600}`: registry.Succeeded,
		`{"error":null}`: registry.Succeeded, `{"error":""}`: registry.Succeeded, `{"errors":[]}`: registry.Succeeded, `{"errors":0}`: registry.Succeeded,
		`{"error":false,"id":1}`: registry.Succeeded, `{"error":{}}`: registry.Succeeded, `{"error":{"code":0,"message":""}}`: registry.Succeeded,
		`{"error":"none"}`: registry.Succeeded, `{"success":true}`: registry.Succeeded, `{"ok":1}`: registry.Succeeded, `{"status":"ok"}`: registry.Succeeded,
		`{"status":"failed_over"}`: registry.Succeeded, `{"data":{"error":"x"},"id":1}`: registry.Succeeded, `{"error_count":2}`: registry.Succeeded,
		`[{"error":"x"}]`: registry.Succeeded, `{"error":"x"`: registry.Succeeded, `{"title":"error"}`: registry.Succeeded,
	} {
		if got := e.Classify(textAnswer(text), nil, ""); got.Outcome != want {
			t.Errorf("%s: got %s, want %s", text, got.Outcome, want)
		}
		wrapped := registry.Answer{Result: json.RawMessage(`{"content":[],"structuredContent":{"result":` + quoted(text) + `}}`)}
		if got := e.Classify(wrapped, nil, ""); got.Outcome != want {
			t.Errorf("wrapped %s: got %s, want %s", text, got.Outcome, want)
		}
		second := registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"starting"},{"type":"text","text":` + quoted(text) + `}]}`)}
		if got := e.Classify(second, nil, ""); got.Outcome != want {
			t.Errorf("second block %s: got %s, want %s", text, got.Outcome, want)
		}
	}
	for result, want := range map[string]registry.Outcome{
		`{"content":[{"type":"text","text":"Error: connection timed out"}],"structuredContent":{"result":"Error: connection timed out"}}`: registry.Unknown,
		`{"content":[{"type":"text","text":"starting"},{"type":"text","text":"Error: timed out"}]}`:                                       registry.Unknown,
		`{"structuredContent":{"error":"x","id":null}}`:                                                                                   registry.Unknown,
		`{"structuredContent":{"result":{"error":"x"}}}`:                                                                                  registry.Unknown,
		`{"structuredContent":{"success":false}}`:                                                                                         registry.Unknown,
		`{"structuredContent":{"result":"Error: x","id":7}}`:                                                                              registry.Succeeded,
		`{"structuredContent":{"result":"done","error":null}}`:                                                                            registry.Succeeded,
		`{"structuredContent":{"items":[{"error":"x"}]}}`:                                                                                 registry.Succeeded,
		`{"structuredContent":{"result":[]}}`:                                                                                             registry.Succeeded,
		`{"content":[{"type":"text","text":"ok"}],"structuredContent":1}`:                                                                 registry.Succeeded,
	} {
		if got := e.Classify(registry.Answer{Result: json.RawMessage(result)}, nil, ""); got.Outcome != want {
			t.Errorf("%s: got %s, want %s", result, got.Outcome, want)
		}
	}
	// What the policy recognises comes first.
	e = compile(t, ``, registry.Policy{NotApplied: conditions(t, `result.text.startsWith("Error: card declined")`)})
	if got := e.Classify(textAnswer("Error: card declined"), nil, ""); got.Outcome != registry.Failed {
		t.Errorf("recognised: got %s", got.Outcome)
	}
	e = compile(t, ``, registry.Policy{DownstreamKey: registry.DownstreamKey{Meta: "key"}})
	text := quoted("Idempotency key was used with different parameters")
	a := registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":` + text + `}],"structuredContent":{"result":` + text + `}}`)}
	if got := e.Classify(a, nil, "k"); got.Outcome != registry.Unknown {
		t.Errorf("key trouble, wrapped: got %s", got.Outcome)
	}
}
