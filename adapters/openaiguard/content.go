package openaiguard

import (
	"encoding/json"
	"fmt"
	"strings"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// content is what a model reads of a result: the guard's words, and the tool's.
func content(r *toolguard.Result) string {
	var parts []string
	if r.Text != "" {
		parts = append(parts, r.Text)
	}
	if own := words(r.Answer); own != "" {
		if r.Answer.IsError() {
			own = "The tool answered with an error: " + own
		}
		parts = append(parts, own)
	}
	if len(parts) == 0 {
		return "The tool returned nothing."
	}
	return strings.Join(parts, "\n\n")
}

// words is an answer as text. What is no text is named.
func words(a registry.Answer) string {
	if a.Error != nil {
		return a.Error.Message
	}
	var result struct {
		Content []json.RawMessage `json:"content"`
	}
	if len(a.Result) > 0 && json.Unmarshal(a.Result, &result) != nil {
		return string(a.Result)
	}
	var parts []string
	for _, raw := range result.Content {
		if s := block(raw); s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return string(a.Structured())
	}
	return strings.Join(parts, "\n")
}

// block is one content block as text.
func block(raw json.RawMessage) string {
	var b struct {
		Type, Text, URI, Name string
		MimeType              string `json:"mimeType"`
		Resource              struct{ Text, URI string }
	}
	if json.Unmarshal(raw, &b) != nil {
		return string(raw)
	}
	switch {
	case b.Type == "text":
		return b.Text
	case b.Resource.Text != "":
		return b.Resource.URI + ":\n" + b.Resource.Text
	case b.Type == "resource_link", b.Type == "resource":
		return strings.TrimSpace(b.Name + " " + b.URI + b.Resource.URI)
	}
	return fmt.Sprintf("[%s, not shown here]", strings.TrimSpace(b.Type+" "+b.MimeType))
}
