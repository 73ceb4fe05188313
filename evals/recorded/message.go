package recorded

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// message is a message in any of the forms: each member means the same in all forms that have it.
type message struct {
	ID         string          `json:"id"`
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"` // a text, or a list of blocks
	ToolCalls  []toolCall      `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	Requestor  string          `json:"requestor"` // tau2-bench: "user" for tools that the simulated user has
	Error      json.RawMessage `json:"error"`     // tau2-bench: a boolean; AgentDojo: a text or null
}

// toolCall is one call: OpenAI and tau-bench have function as {name, arguments as a text}, AgentDojo as the name
// beside args, tau2-bench name and arguments as an object.
type toolCall struct {
	ID        string          `json:"id"`
	Function  json.RawMessage `json:"function"`
	Args      json.RawMessage `json:"args"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Requestor string          `json:"requestor"`
}

// block is a part of an Anthropic message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blocks are the parts of a message whose content is a list; nil for a text.
func (m *message) blocks() []block {
	if !begins(m.Content, '[') {
		return nil
	}
	var list []block
	_ = json.Unmarshal(m.Content, &list) // a list of other things has no blocks
	return list
}

// text is a content's text, whatever its form.
func text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var list []block
	if json.Unmarshal(content, &list) != nil {
		return ""
	}
	var all []string
	for _, b := range list {
		if b.Text != "" {
			all = append(all, b.Text)
		}
	}
	return strings.Join(all, "\n")
}

// name is the called function's name.
func (c *toolCall) name() string {
	if c.Name != "" {
		return c.Name
	}
	name, _ := c.function()
	return name
}

// function reads the member function: a name, or an object with name and arguments.
func (c *toolCall) function() (name string, arguments json.RawMessage) {
	var f struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(c.Function, &name) == nil {
		return name, nil
	}
	_ = json.Unmarshal(c.Function, &f)
	return f.Name, f.Arguments
}

// input is what the tool is called with: an object, or a text that holds one.
func (c *toolCall) input() json.RawMessage {
	switch {
	case c.Args != nil:
		return c.Args
	case c.Arguments != nil:
		return c.Arguments
	}
	_, arguments := c.function()
	return arguments
}

func begins(raw json.RawMessage, with byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == with
}

// clip cuts a text to at most n bytes, at the end of a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
