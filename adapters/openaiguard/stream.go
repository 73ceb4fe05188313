package openaiguard

import (
	"errors"
	"io"

	"github.com/sashabaranov/go-openai"
)

// Stream is a streamed answer, such as [openai.ChatCompletionStream].
type Stream interface {
	Recv() (openai.ChatCompletionStreamResponse, error)
}

// ErrTooLarge: a streamed answer is larger than is taken in. The rest of it is not read.
var ErrTooLarge = errors.New("the streamed answer is too large")

// maxStream is how many bytes of text and arguments a streamed message may have.
const maxStream = 8 << 20

// Collect reads a stream to its end and returns its first choice, with the tool calls put together. A stream that ends
// before it gave a finish reason gives what has come so far with the finish reason [FinishCut], and the error; its
// calls are not whole, and [Tools.Answer] makes none of them.
func Collect(s Stream) (openai.ChatCompletionChoice, error) {
	var c collector
	c.choice.Message.Role = openai.ChatMessageRoleAssistant
	for {
		response, err := s.Recv()
		if err == nil {
			err = c.add(response)
		}
		switch {
		case err == nil:
			continue
		case c.choice.FinishReason != "" && !errors.Is(err, ErrTooLarge):
			err = nil // all is there; what came after does not matter
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			c.choice.FinishReason = FinishCut
		}
		repair(&c.choice.Message)
		return c.choice, err
	}
}

// collector puts one message together.
type collector struct {
	choice openai.ChatCompletionChoice
	index  []int // of each tool call, as the server counts
	size   int
}

func (c *collector) add(r openai.ChatCompletionStreamResponse) error {
	for _, choice := range r.Choices {
		if choice.Index != 0 {
			continue
		}
		d, m := choice.Delta, &c.choice.Message
		c.size += len(d.Content) + len(d.Refusal) + len(d.ReasoningContent)
		m.Content += d.Content
		m.Refusal += d.Refusal
		m.ReasoningContent += d.ReasoningContent
		for _, call := range d.ToolCalls {
			c.size += len(call.ID) + len(call.Function.Name) + len(call.Function.Arguments)
			c.addCall(call)
		}
		if c.size > maxStream || len(m.ToolCalls) > maxCalls {
			return ErrTooLarge
		}
		if choice.FinishReason != "" && choice.FinishReason != openai.FinishReasonNull {
			c.choice.FinishReason = choice.FinishReason
		}
	}
	return nil
}

// addCall adds a piece of a tool call. A piece belongs to the latest call of its index; without an index, to the latest
// of all. An id or a name that differs begins another call: some servers send every call whole, under index 0.
func (c *collector) addCall(piece openai.ToolCall) {
	calls := &c.choice.Message.ToolCalls
	at := len(*calls) - 1
	for piece.Index != nil && at >= 0 && c.index[at] != *piece.Index {
		at--
	}
	if at < 0 || piece.ID != "" && (*calls)[at].ID != "" && piece.ID != (*calls)[at].ID {
		index := len(*calls)
		if piece.Index != nil {
			index = *piece.Index
		}
		*calls = append(*calls, openai.ToolCall{ID: piece.ID, Type: piece.Type, Function: piece.Function})
		c.index = append(c.index, index)
		return
	}
	call := &(*calls)[at]
	if call.ID == "" {
		call.ID = piece.ID
	}
	if call.Function.Name != piece.Function.Name { // some repeat it with every piece
		call.Function.Name += piece.Function.Name
	}
	call.Function.Arguments += piece.Function.Arguments
}
