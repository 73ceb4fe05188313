package recorded

import (
	"encoding/json"
	"fmt"
)

// Parse reads one run that is whole in memory, and tells its form by what it has:
//
//	{"traj": […]}                                        tau-bench
//	{"messages": […], "task_id": …, "trial": …}          an element of tau2-bench's simulations
//	{"messages": […]} with tool_calls {function, args}   AgentDojo
//	{"messages": […]} with calls of execute-tool         LiveMCPBench
//	{"messages": […]} with content blocks                Anthropic
//	{"messages": […]}                                    OpenAI chat completions
//
// Name is "" where the run does not name itself. Errors wrap ErrForm or ErrLimit.
func Parse(raw json.RawMessage) (*Run, error) {
	if len(raw) > MaxRun {
		return nil, fmt.Errorf("%w: a run has at most %d bytes", ErrLimit, MaxRun)
	}
	var o struct {
		Traj     []message       `json:"traj"`
		Messages []message       `json:"messages"`
		Task     json.RawMessage `json:"task_id"`
		Trial    *json.Number    `json:"trial"`
		Suite    string          `json:"suite_name"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	name := ""
	form, messages := "", o.Messages
	switch {
	case o.Traj != nil:
		form, messages = "tau-bench", o.Traj
		name = fmt.Sprintf("task%s/trial%s", plain(o.Task), number(o.Trial))
	case messages == nil:
		return nil, fmt.Errorf("%w: it has no messages", ErrForm)
	case o.Task != nil && o.Trial != nil:
		form = "tau2-bench"
		name = fmt.Sprintf("%s/trial%s", plain(o.Task), number(o.Trial))
	default:
		form = formOf(messages)
	}
	t := newTranscript(form)
	for i := range messages {
		if err := t.add(&messages[i]); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	r := t.end()
	r.Name = clip(name, 200)
	return r, nil
}

// formOf tells the forms apart that all have messages and nothing else that is certain.
func formOf(messages []message) string {
	form := "openai"
	for i := range messages {
		m := &messages[i]
		for j := range m.ToolCalls {
			c := &m.ToolCalls[j]
			switch {
			case c.Args != nil:
				return "agentdojo"
			case c.name() == executeTool:
				return "livemcpbench"
			}
		}
		for _, b := range m.blocks() {
			if b.Type == "tool_use" || b.Type == "tool_result" {
				return "anthropic"
			}
		}
	}
	return form
}

// plain is a JSON string's value, or another value as it is spelled.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func number(n *json.Number) string {
	if n == nil {
		return "0"
	}
	return n.String()
}
