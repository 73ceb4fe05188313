package recorded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// executeTool is the tool by which LiveMCPBench's agents call all others.
const executeTool = "execute-tool"

// transcript puts a run together, message by message.
type transcript struct {
	run     Run
	waiting map[string][]int // calls without an answer, by id: some models use an id again
	order   []int            // calls without an answer
	batch   int
	message string // Claude Code: the message that the last line belonged to
}

func newTranscript(form string) *transcript {
	return &transcript{run: Run{Form: form}, waiting: map[string][]int{}}
}

func (t *transcript) end() *Run { return &t.run }

// add takes the next message in.
func (t *transcript) add(m *message) error {
	switch m.Role {
	case "user":
		t.run.Made += len(m.ToolCalls)
		return t.user(m)
	case "assistant":
		t.batch++
		return t.assistant(m)
	case "tool":
		if m.Requestor == "user" {
			return nil
		}
		id := m.ToolCallID
		if id == "" {
			id = m.ID
		}
		says := text(m.Content)
		if t.run.Form == "agentdojo" && begins(m.Error, '"') {
			says = plain(m.Error)
		}
		t.answer(id, says, t.failed(m))
	}
	return nil
}

// user counts a turn, unless the message only brings tools' results.
func (t *transcript) user(m *message) error {
	results, others := 0, 0
	for _, b := range m.blocks() {
		if b.Type != "tool_result" {
			others++
			continue
		}
		results++
		t.answer(b.ToolUseID, text(b.Content), b.IsError)
	}
	if results == 0 || others > 0 {
		t.run.Turns++
	}
	return nil
}

func (t *transcript) assistant(m *message) error {
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		if c.Requestor == "user" {
			t.run.Made++
			continue
		}
		if err := t.call(c.ID, c.name(), c.input()); err != nil {
			return err
		}
	}
	for _, b := range m.blocks() {
		if b.Type == "tool_use" {
			if err := t.call(b.ID, b.Name, b.Input); err != nil {
				return err
			}
		}
	}
	return nil
}

// call takes one call in.
func (t *transcript) call(id, tool string, input json.RawMessage) error {
	if len(t.run.Calls) >= MaxCalls {
		return fmt.Errorf("%w: a run has at most %d calls", ErrLimit, MaxCalls)
	}
	if tool == "" {
		return fmt.Errorf("%w: a tool call without a name", ErrForm)
	}
	arguments, err := object(input)
	if err != nil {
		return fmt.Errorf("the arguments of %s: %w", clip(tool, 100), err)
	}
	c := Call{Index: t.run.Made, Turn: t.run.Turns, Batch: t.batch, Tool: tool, Arguments: arguments, ID: clip(id, 200)}
	switch parts := strings.SplitN(tool, "__", 3); {
	case t.run.Form == "livemcpbench" && tool == executeTool:
		if err := c.unwrap(); err != nil {
			return err
		}
	case t.run.Form == "claude-code" && len(parts) == 3 && parts[0] == "mcp" && parts[1] != "" && parts[2] != "":
		c.Server, c.Tool = parts[1], parts[2]
	}
	c.Tool, c.Server = clip(c.Tool, 200), clip(c.Server, 200)
	t.run.Calls = append(t.run.Calls, c)
	t.run.Made++
	n := len(t.run.Calls) - 1
	t.order = append(t.order, n)
	t.waiting[c.ID] = append(t.waiting[c.ID], n)
	return nil
}

// unwrap takes the call out of one of execute-tool.
func (c *Call) unwrap() error {
	var w struct {
		Server string          `json:"server_name"`
		Tool   string          `json:"tool_name"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(c.Arguments, &w); err != nil || w.Tool == "" {
		return nil // a call of execute-tool that names no tool stays what it is
	}
	params, err := object(w.Params)
	if err != nil {
		return fmt.Errorf("the params of %s: %w", clip(w.Tool, 100), err)
	}
	c.Server, c.Tool, c.Arguments = w.Server, w.Tool, params
	return nil
}

// object is one JSON object, given as it is or as a text. What is absent is {}.
func object(raw json.RawMessage) (json.RawMessage, error) {
	if begins(raw, '"') {
		raw = []byte(plain(raw))
	}
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0, string(raw) == "null":
		return json.RawMessage("{}"), nil
	case len(raw) > MaxArguments:
		return nil, fmt.Errorf("%w: arguments have at most %d bytes", ErrLimit, MaxArguments)
	case !begins(raw, '{') || !json.Valid(raw):
		return nil, fmt.Errorf("%w: not a JSON object", ErrForm)
	case depth(raw) > MaxDepth:
		return nil, fmt.Errorf("%w: arguments are at most %d deep", ErrLimit, MaxDepth)
	}
	return bytes.Clone(raw), nil
}

// depth is how deep the arrays and objects of a valid JSON text stand in one another.
func depth(raw []byte) int {
	deep, most, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			deep++
			most = max(most, deep)
		case c == '}' || c == ']':
			deep--
		}
	}
	return most
}

// answer gives the call of that id its answer; without one, or with one that nobody has, the longest waiting call.
func (t *transcript) answer(id, says string, failed bool) {
	index := -1
	if list := t.waiting[id]; len(list) > 0 {
		index = list[0]
		t.waiting[id] = list[1:]
	} else if len(t.order) > 0 && id == "" {
		index = t.order[0]
	}
	if index < 0 {
		return
	}
	for i, n := range t.order {
		if n == index {
			t.order = append(t.order[:i], t.order[i+1:]...)
			break
		}
	}
	t.run.Calls[index].Answer, t.run.Calls[index].Failed = clip(says, MaxAnswer), failed
}

// failed reports whether a tool's message is an error.
func (t *transcript) failed(m *message) bool {
	switch t.run.Form {
	case "tau2-bench":
		return string(m.Error) == "true"
	case "agentdojo":
		return begins(m.Error, '"')
	case "livemcpbench":
		says := text(m.Content)
		return strings.Contains(says, "isError=True") || strings.Contains(says, `"isError": true`)
	}
	return strings.HasPrefix(text(m.Content), "Error")
}

// isLine reports whether a JSON object is a line of a Claude Code session.
func isLine(raw json.RawMessage) bool {
	var l sessionLine
	return json.Unmarshal(raw, &l) == nil && l.Type != "" && (l.Message != nil || l.Session != "")
}

type sessionLine struct {
	Type    string          `json:"type"`
	Session string          `json:"sessionId"`
	Side    bool            `json:"isSidechain"` // of another agent, with a conversation of its own
	Meta    bool            `json:"isMeta"`      // the program's own words, not the user's
	Message json.RawMessage `json:"message"`
}

// line takes one line of a Claude Code session in. Lines without a message, and those of other agents, are passed over.
func (t *transcript) line(raw json.RawMessage) error {
	var l sessionLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	if t.run.Name == "" {
		t.run.Name = clip(l.Session, 200)
	}
	if l.Message == nil || l.Side || l.Meta {
		return nil
	}
	var m message
	if err := json.Unmarshal(l.Message, &m); err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	switch l.Type {
	case "user":
		t.message = ""
		return t.user(&m)
	case "assistant":
		if m.ID == "" || m.ID != t.message { // a message comes in several lines
			t.batch++
		}
		t.message = m.ID
		return t.assistant(&m)
	}
	return nil
}
