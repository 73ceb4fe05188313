package openaiguard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/sashabaranov/go-openai"
)

// Client is what [Tools.Run] needs of an [openai.Client].
type Client interface {
	CreateChatCompletion(context.Context, openai.ChatCompletionRequest) (openai.ChatCompletionResponse, error)
	CreateChatCompletionStream(context.Context, openai.ChatCompletionRequest) (*openai.ChatCompletionStream, error)
}

// RunOptions are the options of [Tools.Run]. The zero value is good.
type RunOptions struct {
	Turns int // how often the model is asked at most; 0: 32
	// Message is given each new message, in order, before anything is done that follows from it. A program that keeps
	// them can call Run with what it kept after a crash. An error ends Run.
	Message func(openai.ChatCompletionMessage) error
}

const defaultTurns = 32

var (
	// ErrTurns: the model was asked as often as is allowed and still calls tools.
	ErrTurns = errors.New("the conversation did not come to an end within the allowed number of turns")
	// ErrCutOff: the model's last message was cut off, by the token limit, a content filter or a broken stream.
	ErrCutOff = errors.New("the model's message was cut off")
	// ErrNoChoice: the model's answer has no message.
	ErrNoChoice = errors.New("the model's answer has no message")
)

// Run drives a conversation until the model answers without a tool call, and returns all of its messages. The tools of
// the request are set; with Stream set, answers are streamed. If the last message given has tool calls that are not
// answered, they are answered first. Nothing is asked twice by itself: an error of the client is returned, with the
// messages so far, and Run may be called with those again. A result counts as delivered when the model has answered to it.
func (t *Tools) Run(ctx context.Context, client Client, req openai.ChatCompletionRequest, o *RunOptions) ([]openai.ChatCompletionMessage, error) {
	r := &run{tools: t, client: client, req: req}
	if o != nil {
		r.options = *o
	}
	if r.options.Turns <= 0 {
		r.options.Turns = defaultTurns
	}
	r.req.Tools = t.List()
	r.req.Messages = slices.Clone(req.Messages)
	err := r.resume(ctx)
	for turn := 0; err == nil && turn < r.options.Turns; turn++ {
		var done bool
		if done, err = r.turn(ctx); done {
			return r.req.Messages, err
		}
	}
	if err == nil {
		err = ErrTurns
	}
	return r.req.Messages, err
}

// run is one conversation.
type run struct {
	tools   *Tools
	client  Client
	req     openai.ChatCompletionRequest
	options RunOptions
	owed    *Answers // what the model has not answered to
}

// add makes messages part of the conversation.
func (r *run) add(messages ...openai.ChatCompletionMessage) error {
	for _, m := range messages {
		r.req.Messages = append(r.req.Messages, m)
		if r.options.Message != nil {
			if err := r.options.Message(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume answers the calls that an earlier run left open.
func (r *run) resume(ctx context.Context) error {
	last := len(r.req.Messages) - 1
	answered := map[string]bool{}
	for last >= 0 && r.req.Messages[last].Role == openai.ChatMessageRoleTool {
		answered[r.req.Messages[last].ToolCallID] = true
		last--
	}
	if last < 0 {
		return nil
	}
	m := r.req.Messages[last]
	m.ToolCalls = slices.DeleteFunc(slices.Clone(m.ToolCalls), func(c openai.ToolCall) bool { return answered[c.ID] })
	if len(m.ToolCalls) == 0 {
		return nil
	}
	r.owed = r.tools.Answer(ctx, r.req.Messages[:last], openai.ChatCompletionChoice{Message: m})
	return r.add(r.owed.Messages...)
}

// turn asks the model once and answers its calls. It reports whether the conversation is at its end.
func (r *run) turn(ctx context.Context) (done bool, err error) {
	choice, broken := r.ask(ctx)
	if broken != nil && len(choice.Message.ToolCalls) == 0 {
		return true, broken
	}
	if r.owed != nil {
		r.owed.Delivered()
		r.owed = nil
	}
	repair(&choice.Message)
	earlier := r.req.Messages
	if err := r.add(choice.Message); err != nil {
		return true, err
	}
	if len(choice.Message.ToolCalls) == 0 {
		if cut(choice.FinishReason) {
			return true, fmt.Errorf("%w (%s)", ErrCutOff, choice.FinishReason)
		}
		return true, nil
	}
	r.owed = r.tools.Answer(ctx, earlier, choice)
	if err := r.add(r.owed.Messages...); err != nil {
		return true, err
	}
	return ctx.Err() != nil, ctx.Err()
}

// ask gets one answer of the model. With an error, the choice is what had come of it.
func (r *run) ask(ctx context.Context) (openai.ChatCompletionChoice, error) {
	if !r.req.Stream {
		response, err := r.client.CreateChatCompletion(ctx, r.req)
		if err == nil && len(response.Choices) == 0 {
			err = ErrNoChoice
		}
		if err != nil {
			return openai.ChatCompletionChoice{}, err
		}
		return response.Choices[0], nil
	}
	stream, err := r.client.CreateChatCompletionStream(ctx, r.req)
	if err != nil {
		return openai.ChatCompletionChoice{}, err
	}
	defer stream.Close()
	choice, err := Collect(stream)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCutOff, err)
	}
	return choice, err
}

// repair fills in what some servers leave out of a message and all want to have in it when it comes back.
func repair(m *openai.ChatCompletionMessage) {
	if m.Role == "" {
		m.Role = openai.ChatMessageRoleAssistant
	}
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		c.Index = nil
		if c.Type == "" {
			c.Type = openai.ToolTypeFunction
		}
		if c.ID == "" {
			c.ID = "call_" + rand.Text()
		}
	}
}
