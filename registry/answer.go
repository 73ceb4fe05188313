package registry

import (
	"bytes"
	"encoding/json"
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

// Text returns the texts of the answer, joined by newlines: of a result its text blocks, of a protocol error its
// message. "" if there are none or the answer is unreadable.
func (a Answer) Text() string { return a.view().text }

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
