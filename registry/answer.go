package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"toolguard.dev/keyderive"
)

// view is what is read of an answer. Member names count letter by letter, as JSON has it.
type view struct {
	readable      bool
	incomplete    bool
	isError       bool
	text          string // all text blocks, joined by newlines; of a protocol error its message
	texts         int    // how many there are
	structured    any
	hasStructured bool
	saysError     bool // not marked as an error, but speaks like one
	empty         bool // no text, no other content block, nothing structured
}

// NewAnswer is an answer as an MCP server gives it: texts, and structured content, nil where there is none. The error says
// that structured is no JSON.
func NewAnswer(structured json.RawMessage, isError bool, texts ...string) (Answer, error) {
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	result := struct {
		Content    []block         `json:"content"`
		Structured json.RawMessage `json:"structuredContent,omitempty"`
		IsError    bool            `json:"isError,omitempty"`
	}{[]block{}, structured, isError}
	for _, text := range texts {
		result.Content = append(result.Content, block{"text", text})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(result); err != nil {
		return Answer{}, err
	}
	return Answer{Result: bytes.TrimSpace(b.Bytes())}, nil
}

// Text returns the texts of the answer, joined by newlines: of a result its text blocks, of a protocol error its
// message. "" if there are none or the answer is unreadable.
func (a Answer) Text() string { return a.view().text }

// Words returns all that the answer says, for a reader who gets nothing but text: its content, in which what is no text is
// named; else its structured content; of a protocol error the message. "" if it says nothing.
func (a Answer) Words() string {
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
		if s := blockWords(raw); s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return string(a.Structured())
	}
	return strings.Join(parts, "\n")
}

// blockWords is one content block as text.
func blockWords(raw json.RawMessage) string {
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

// Structured returns the answer's structuredContent as it came, nil if it has none (null counts as none).
func (a Answer) Structured() json.RawMessage {
	var members map[string]json.RawMessage
	if a.Error != nil || json.Unmarshal(a.Result, &members) != nil || string(members["structuredContent"]) == "null" {
		return nil
	}
	return members["structuredContent"]
}

// IsError tells whether the answer says of itself that it is an error: a protocol error, isError true, or an HTTP
// status from 400 on.
func (a Answer) IsError() bool { return a.view().isError }

func (a Answer) view() *view {
	v := &view{isError: a.Error != nil || a.Status >= 400}
	if a.Error != nil {
		v.readable, v.text = true, a.Error.Message
		return v
	}
	result, strict := decode(a.Result)
	members, ok := result.(map[string]any)
	if !ok {
		return v
	}
	isError, isBool := members["isError"].(bool)
	v.isError = v.isError || isError
	if !isBool && members["isError"] != nil || !v.readContent(members["content"]) {
		return v
	}
	if v.structured = members["structuredContent"]; v.structured != nil {
		v.hasStructured = true
		if !strict { // a lone surrogate in a text does not spoil it; one in itself does
			v.structured, _ = keyderive.Parse(a.Structured())
		}
	}
	blocks, _ := members["content"].([]any)
	v.empty = v.text == "" && !v.hasStructured && len(blocks) == v.texts
	v.saysError = v.saysError || !v.isError && structuredError(v.structured)
	v.incomplete, v.readable = readIncomplete(members)
	return v
}

// decode reads a result: strictly, or else as servers in the field write them, with half an emoji at the end of a
// text that was cut.
func decode(raw []byte) (v any, strict bool) {
	if v, err := keyderive.Parse(raw); err == nil {
		return v, true
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	return v, false
}

// readContent reads the texts of the content blocks; false if it is no content. Blocks of unknown types are fine.
func (v *view) readContent(content any) bool {
	if content == nil {
		return true
	}
	blocks, ok := content.([]any)
	if !ok {
		return false
	}
	var texts []string
	for _, b := range blocks {
		block, ok := b.(map[string]any)
		if !ok {
			return false
		}
		if block["type"] != "text" {
			continue
		}
		text, ok := block["text"].(string)
		if !ok {
			return false
		}
		texts = append(texts, text)
		v.saysError = v.saysError || !v.isError && (saysError(text) || jsonError(text))
	}
	v.text, v.texts = strings.Join(texts, "\n"), len(texts)
	return true
}

// readIncomplete tells whether a result is only a step on the way: more input is asked for, or a task goes on.
func readIncomplete(members map[string]any) (incomplete, readable bool) {
	kind, isText := members["resultType"].(string)
	if !isText && members["resultType"] != nil {
		return false, false
	}
	task, _ := members["task"].(map[string]any)
	id, _ := task["taskId"].(string)
	return isText && kind != "complete" || members["inputRequests"] != nil || id != "", true
}

// json returns what expressions see as result.json: the structured content, else the only text read as JSON, else
// nil. What is no strict JSON is nil too.
func (v *view) json() any {
	if v.hasStructured {
		return v.structured
	}
	if v.texts != 1 {
		return nil
	}
	value, err := keyderive.Parse([]byte(v.text))
	if err != nil {
		return nil
	}
	return value
}

// structuredText is the structured content as a text, "" if there is none.
func (v *view) structuredText() string {
	if v.structured == nil {
		return ""
	}
	return string(keyderive.AppendCanonical(nil, v.structured))
}
