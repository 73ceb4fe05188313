package openaiguard

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/sashabaranov/go-openai"

	"toolguard.dev/keyderive"
	"toolguard.dev/toolguard"
)

// Answers are the answers to the tool calls of one message.
type Answers struct {
	Messages []openai.ChatCompletionMessage // one for each call, in the order of the calls
	Results  []*toolguard.Result            // what the guard answered; nil where no tool was meant or the call was cut off
}

// Delivered marks the results as known to have arrived. Call it when the model has answered to a request that held the
// messages, and only then: until it is marked, a result is owed to the next identical call.
func (a *Answers) Delivered() {
	for _, r := range a.Results {
		if r != nil {
			r.Delivered()
		}
	}
}

// maxCalls is how many calls of one message are made.
const maxCalls = 128

// The answers to calls that are not made, besides those to calls of no tool.
const (
	textCut  = "NOT SENT. The message with this call was cut off before its end, so none of its calls was made. Make the call again if it is still wanted."
	textMany = "NOT SENT. This message has more calls than are made at once. Make this call in a message of its own if it is still wanted."
)

// FinishCut is the finish reason of a message that [Collect] did not get whole.
const FinishCut openai.FinishReason = "cut_off"

// Answer runs the tool calls of a choice in parallel, each through the guard, and waits for all: each for as long as
// the tool's answer_within allows, or until ctx ends; what is not answered by then is said to be still running. The
// facts are those of ctx. Calls of a message that was cut off (by the token limit, a content filter or a broken stream)
// are not made. earlier is the conversation that the choice answers: an id that it has already is no call id, for some
// servers number calls anew in each message.
func (t *Tools) Answer(ctx context.Context, earlier []openai.ChatCompletionMessage, choice openai.ChatCompletionChoice) *Answers {
	calls := choice.Message.ToolCalls
	a := &Answers{Messages: make([]openai.ChatCompletionMessage, len(calls)), Results: make([]*toolguard.Result, len(calls))}
	ids := uses(append(earlier[:len(earlier):len(earlier)], choice.Message))
	var running sync.WaitGroup
	for i, call := range calls {
		a.Messages[i] = openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, ToolCallID: call.ID}
		tool := t.byName[call.Function.Name]
		switch {
		case cut(choice.FinishReason):
			a.Messages[i].Content = textCut
		case tool == nil:
			a.Messages[i].Content = t.unknown(call.Function.Name)
		case i >= maxCalls:
			a.Messages[i].Content = textMany
		default:
			running.Go(func() {
				id := ""
				if ids[call.ID] == 1 {
					id = call.ID
				}
				a.Results[i] = t.guard.Do(ctx, t.call(ctx, tool, id, call.Function.Arguments))
				a.Messages[i].Content = content(a.Results[i])
			})
		}
	}
	running.Wait()
	return a
}

func cut(r openai.FinishReason) bool {
	return r == FinishCut || r == openai.FinishReasonLength || r == openai.FinishReasonContentFilter
}

// uses counts how often each tool call id is given in a conversation.
func uses(conversation []openai.ChatCompletionMessage) map[string]int {
	ids := map[string]int{}
	for _, m := range conversation {
		for _, c := range m.ToolCalls {
			ids[c.ID]++
		}
	}
	return ids
}

// call is a tool call as the guard takes it. id is "" where none is known.
func (t *Tools) call(ctx context.Context, tool *toolguard.Tool, id, arguments string) toolguard.Call {
	c := toolguard.Call{Tool: tool, Facts: toolguard.FactsFrom(ctx)}
	c.Facts.CallID = ""
	if keyderive.UsableFact(id) {
		c.Facts.CallID = id
	}
	if arguments = strings.TrimSpace(arguments); arguments != "" { // many models say nothing where there is nothing to say
		c.Arguments = json.RawMessage(arguments)
	}
	for _, name := range t.needs {
		if value, _ := c.Facts.Get(name); value == "" {
			c.Missing = append(c.Missing, name)
		}
	}
	return c
}

// content is what a model reads of a result: the guard's words, and the tool's.
func content(r *toolguard.Result) string {
	var parts []string
	if r.Text != "" {
		parts = append(parts, r.Text)
	}
	if own := r.Answer.Words(); own != "" {
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
