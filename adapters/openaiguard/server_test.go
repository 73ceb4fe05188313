package openaiguard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/sashabaranov/go-openai"

	"toolguard.dev/adapters/goguard"
	"toolguard.dev/adapters/openaiguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// reply is what a scripted model answers.
type reply struct {
	message openai.ChatCompletionMessage
	finish  openai.FinishReason // "": as the message has it
	pieces  []openai.ToolCall   // in a stream, these instead of the message's calls
	cut     int                 // in a stream: the connection breaks after that many events
}

// model is an OpenAI-compatible server on loopback that answers by a script and refuses, as the real one does, a
// conversation in which a tool call has no answer.
type model struct {
	t      testing.TB
	server *httptest.Server
	answer func(turn int, req openai.ChatCompletionRequest) reply

	mu       sync.Mutex
	requests []openai.ChatCompletionRequest
	ids      int
}

func newModel(t testing.TB, answer func(turn int, req openai.ChatCompletionRequest) reply) *model {
	m := &model{t: t, answer: answer}
	m.server = httptest.NewServer(m)
	t.Cleanup(m.server.Close)
	return m
}

// script answers in turn, and then with "done".
func script(replies ...reply) func(int, openai.ChatCompletionRequest) reply {
	return func(turn int, _ openai.ChatCompletionRequest) reply {
		if turn < len(replies) {
			return replies[turn]
		}
		return reply{message: openai.ChatCompletionMessage{Content: "done"}}
	}
}

func (m *model) client() *openai.Client {
	c := openai.DefaultConfig("no secret")
	c.BaseURL = m.server.URL + "/v1"
	return openai.NewClientWithConfig(c)
}

// calls are calls with fresh ids, each given as a name and its arguments.
func (m *model) calls(namesAndArguments ...string) openai.ChatCompletionMessage {
	out := openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i < len(namesAndArguments); i += 2 {
		m.ids++
		out.ToolCalls = append(out.ToolCalls, openai.ToolCall{
			ID: fmt.Sprintf("call_%p_%d", m, m.ids), Type: openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: namesAndArguments[i], Arguments: namesAndArguments[i+1]},
		})
	}
	return out
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req openai.ChatCompletionRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, `{"error":{"message":"bad request"}}`, http.StatusBadRequest)
		return
	}
	if what := incomplete(req.Messages); what != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, what)
		return
	}
	m.mu.Lock()
	turn := len(m.requests)
	m.requests = append(m.requests, req)
	answer := m.answer
	m.mu.Unlock()
	a := answer(turn, req)
	if a.finish == "" {
		a.finish = openai.FinishReasonStop
		if len(a.message.ToolCalls)+len(a.pieces) > 0 {
			a.finish = openai.FinishReasonToolCalls
		}
	}
	if req.Stream {
		stream(w, a)
		return
	}
	a.message.Role = openai.ChatMessageRoleAssistant
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{Choices: []openai.ChatCompletionChoice{{Message: a.message, FinishReason: a.finish}}})
}

// incomplete says what is wrong with a conversation; "" if nothing is.
func incomplete(messages []openai.ChatCompletionMessage) string {
	open := map[string]bool{}
	for _, m := range messages {
		switch {
		case m.Role == openai.ChatMessageRoleTool && (!open[m.ToolCallID] || m.Content == ""):
			return "a tool message without a call before it, or without content"
		case m.Role == openai.ChatMessageRoleTool:
			delete(open, m.ToolCallID)
		case len(open) > 0:
			return "an assistant message with tool_calls must be followed by tool messages"
		}
		for _, c := range m.ToolCalls {
			if c.Type != openai.ToolTypeFunction || c.Index != nil {
				return "not a tool call"
			}
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return "an assistant message with tool_calls must be followed by tool messages"
	}
	return ""
}

// stream sends a reply as server-sent events, in pieces of a few bytes.
func stream(w http.ResponseWriter, a reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	sent := 0
	send := func(c openai.ChatCompletionStreamChoice) {
		if sent++; a.cut > 0 && sent > a.cut {
			panic(http.ErrAbortHandler)
		}
		raw, _ := json.Marshal(openai.ChatCompletionStreamResponse{Choices: []openai.ChatCompletionStreamChoice{c}})
		fmt.Fprintf(w, ": keep-alive\n\ndata: %s\n\n", raw)
		w.(http.Flusher).Flush()
	}
	delta := func(d openai.ChatCompletionStreamChoiceDelta) { send(openai.ChatCompletionStreamChoice{Delta: d}) }
	delta(openai.ChatCompletionStreamChoiceDelta{Role: "assistant"})
	for _, word := range a.message.Content {
		delta(openai.ChatCompletionStreamChoiceDelta{Content: string(word)})
	}
	pieces := a.pieces
	if pieces == nil {
		pieces = cutUp(a.message.ToolCalls)
	}
	for _, p := range pieces {
		delta(openai.ChatCompletionStreamChoiceDelta{ToolCalls: []openai.ToolCall{p}})
	}
	send(openai.ChatCompletionStreamChoice{FinishReason: a.finish})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// cutUp is how OpenAI streams calls: the name first, then the arguments in pieces.
func cutUp(calls []openai.ToolCall) (pieces []openai.ToolCall) {
	for i, c := range calls {
		arguments := c.Function.Arguments
		c.Index, c.Function.Arguments = &i, ""
		pieces = append(pieces, c)
		for len(arguments) > 0 {
			n := min(3, len(arguments))
			pieces = append(pieces, openai.ToolCall{Index: &i, Function: openai.FunctionCall{Arguments: arguments[:n]}})
			arguments = arguments[n:]
		}
	}
	return pieces
}

// office is a guard with a few tools, and what was done with them.
type office struct {
	guard *toolguard.Guard
	tools *openaiguard.Tools

	mu   sync.Mutex
	done []string
}

type order struct {
	Item string `json:"item"`
	N    int    `json:"n,omitempty"`
}

func newOffice(t testing.TB, o *openaiguard.Options) *office {
	t.Helper()
	g, err := toolguard.Open(t.Context(), storetest.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &office{guard: g}
	var tools []*toolguard.Tool
	for _, name := range []string{"buy", "get_stock", "refuse", "lose"} {
		tool, err := goguard.New(g, registry.Tool{Server: "shop", Name: name, Description: "It is for " + name}, f.handler(name))
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool.Tool)
	}
	if f.tools, err = openaiguard.New(g, o, tools...); err != nil {
		t.Fatal(err)
	}
	return f
}
