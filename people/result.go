package people

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Result makes an MCP result of what a person says that a tool answered: an MCP result (a JSON object with content) as it
// is; any other JSON object as the structuredContent of one, and as its text; any other JSON, or plain text, as its text.
// Nothing gives nil.
func Result(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		if strings.IndexAny(strings.TrimSpace(text), `{["`) == 0 { // meant as JSON
			return nil, fmt.Errorf("no JSON: %.60s", strings.TrimSpace(text))
		}
		return textResult(text, nil)
	}
	raw := json.RawMessage(text)
	var members map[string]json.RawMessage
	isObject := json.Unmarshal(raw, &members) == nil && members != nil
	if _, ok := members["content"]; ok {
		return raw, nil
	}
	var plain string
	if json.Unmarshal(raw, &plain) != nil {
		plain = text
	}
	if !isObject {
		raw = nil
	}
	return textResult(plain, raw)
}

func textResult(text string, structured json.RawMessage) (json.RawMessage, error) {
	result := map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}}
	if structured != nil {
		result["structuredContent"] = structured
	}
	return json.Marshal(result)
}
