package openaiguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"toolguard.dev/adapters/goguard"
	"toolguard.dev/adapters/openaiguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

func (f *office) handler(name string) func(context.Context, order) (string, error) {
	return func(_ context.Context, in order) (string, error) {
		f.mu.Lock()
		f.done = append(f.done, name+" "+in.Item)
		f.mu.Unlock()
		switch name {
		case "refuse":
			return "", registry.NotApplied(errors.New("out of stock"))
		case "lose":
			return "", errors.New("connection reset")
		}
		return name + " " + in.Item + ": ok", nil
	}
}

// work is a context in which the runtime says what the work is for.
func work(t testing.TB) context.Context {
	return toolguard.WithFacts(t.Context(), keyderive.Facts{SourceEvent: "evt-1", Session: "s"})
}

func ask(stream bool) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: "m", Stream: stream, Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "go on"}}}
}

// said are the tool messages of a conversation.
func said(messages []openai.ChatCompletionMessage) []string {
	var out []string
	for _, m := range messages {
		if m.Role == openai.ChatMessageRoleTool {
			out = append(out, m.Content)
		}
	}
	return out
}

// TestRun holds for plain and for streamed answers: every call gets a message that the model can act on.
func TestRun(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			f := newOffice(t, nil)
			m := newModel(t, nil)
			m.answer = script(
				reply{message: m.calls("buy", `{"item":"a"}`, "get_stock", `{"item":"a"}`, "buy", `{"item":"a"}`)}, // in one message
				reply{message: m.calls("buy", `{"item":`, "sell", `{}`, "buy", `{"items":"b"}`, "get_stock", `{"item"`, "buy", "")},
				reply{message: m.calls("refuse", `{"item":"c"}`)},
				reply{message: m.calls("lose", `{"item":"d"}`)},
			)
			messages, err := f.tools.Run(work(t), m.client(), ask(stream), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := said(messages)
			want := []string{"", "get_stock a: ok", "", "NOT SENT. The arguments are not valid for buy", `NOT SENT. There is no tool "sell". These are the tools: buy, get_stock, lose, refuse.`,
				"NOT SENT. The arguments are not valid for buy", "NOT SENT. The arguments are not valid for get_stock", "NOT SENT. The arguments are not valid for buy", "out of stock", "OUTCOME UNKNOWN."}
			if len(got) != len(want) {
				t.Fatalf("%d messages: %q", len(got), got)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("message %d: %q, want %q…", i, got[i], want[i])
				}
			}
			twins := []string{got[0], got[2]} // whichever came first was the one that was made
			slices.Sort(twins)
			if !strings.HasPrefix(twins[0], "ALREADY DONE") || !strings.HasSuffix(twins[0], "buy a: ok") || twins[1] != "buy a: ok" {
				t.Errorf("two identical calls: %q", twins)
			}
			slices.Sort(f.done)
			if done := strings.Join(f.done, ", "); done != "buy a, get_stock a, lose d, refuse c" {
				t.Errorf("done: %s", done)
			}
			if last := messages[len(messages)-1]; last.Content != "done" {
				t.Errorf("the last message: %+v", last)
			}
			if tools := m.requests[0].Tools; len(tools) != 4 || tools[0].Function.Name != "buy" || tools[0].Function.Description != "It is for buy" {
				t.Errorf("the tools: %+v", tools)
			}
		})
	}
}

func TestReplayedConversationHasNewIDs(t *testing.T) {
	f := newOffice(t, nil)
	for range 2 {
		m := newModel(t, nil)
		m.answer = script(reply{message: m.calls("buy", `{"item":"a"}`)})
		if _, err := f.tools.Run(work(t), m.client(), ask(true), nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.done) != 1 {
		t.Errorf("done: %q", f.done)
	}
}

// TestWithoutFactsRepeatsAreMeant plays A, B, A without any fact: the model has seen each result, and the last is meant.
// Its server numbers the calls of each message anew, which must not make the last call the first.
func TestWithoutFactsRepeatsAreMeant(t *testing.T) {
	f := newOffice(t, nil)
	m := newModel(t, nil)
	var replies []reply
	for _, item := range []string{"a", "b", "a"} {
		r := reply{message: m.calls("buy", `{"item":"`+item+`"}`)}
		r.message.ToolCalls[0].ID = "call_0"
		replies = append(replies, r)
	}
	m.answer = script(replies...)
	ctx := toolguard.WithFacts(t.Context(), keyderive.Facts{Session: "s"})
	if _, err := f.tools.Run(ctx, m.client(), ask(false), nil); err != nil {
		t.Fatal(err)
	}
	if done := strings.Join(f.done, ", "); done != "buy a, buy b, buy a" {
		t.Errorf("done: %s", done)
	}
}

func TestBrokenStream(t *testing.T) {
	f := newOffice(t, nil)
	m := newModel(t, nil)
	m.answer = script(
		reply{message: m.calls("buy", `{"item":"a"}`, "buy", `{"item":"b"}`), cut: 9}, // the first call is whole
		reply{message: m.calls("buy", `{"item":"c"}`), finish: openai.FinishReasonLength},
	)
	messages, err := f.tools.Run(work(t), m.client(), ask(true), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range said(messages) {
		if !strings.HasPrefix(s, "NOT SENT. The message with this call was cut off") {
			t.Error(s)
		}
	}
	if len(f.done) != 0 || len(m.requests) != 3 {
		t.Errorf("done: %q in %d turns", f.done, len(m.requests))
	}
	m.answer = script()
	m.answer = func(int, openai.ChatCompletionRequest) reply {
		return reply{message: openai.ChatCompletionMessage{Content: "I was about to"}, cut: 5}
	}
	if _, err := f.tools.Run(work(t), m.client(), ask(true), nil); !errors.Is(err, openaiguard.ErrCutOff) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken text: %v", err)
	}
	m.answer = func(int, openai.ChatCompletionRequest) reply {
		return reply{message: openai.ChatCompletionMessage{Content: "I was"}, finish: openai.FinishReasonLength}
	}
	if _, err := f.tools.Run(work(t), m.client(), ask(false), nil); !errors.Is(err, openaiguard.ErrCutOff) {
		t.Errorf("a text over the limit: %v", err)
	}
}

func TestFactsThatCallsNeed(t *testing.T) {
	f := newOffice(t, &openaiguard.Options{Needs: []string{"source_event"}})
	m := newModel(t, nil)
	m.answer = script(reply{message: m.calls("buy", `{"item":"a"}`)})
	messages, err := f.tools.Run(t.Context(), m.client(), ask(false), nil)
	if got := said(messages); err != nil || len(got) != 1 || !strings.Contains(got[0], "source_event") || len(f.done) != 0 {
		t.Errorf("%q, %v, done: %q", got, err, f.done)
	}
}

func TestRunGoesOn(t *testing.T) {
	f := newOffice(t, nil)
	m := newModel(t, nil)
	endless := func(int, openai.ChatCompletionRequest) reply {
		return reply{message: m.calls("get_stock", `{"item":"a"}`)}
	}
	m.answer = endless
	messages, err := f.tools.Run(work(t), m.client(), ask(false), &openaiguard.RunOptions{Turns: 3})
	if !errors.Is(err, openaiguard.ErrTurns) || len(m.requests) != 3 || len(messages) != 7 {
		t.Fatalf("%v after %d requests, %d messages", err, len(m.requests), len(messages))
	}

	stop := errors.New("disk full")
	var kept []openai.ChatCompletionMessage
	m.answer = func(int, openai.ChatCompletionRequest) reply {
		return reply{message: m.calls("buy", `{"item":"a"}`, "buy", `{"item":"b"}`)}
	}
	_, err = f.tools.Run(work(t), m.client(), ask(false), &openaiguard.RunOptions{Message: func(m openai.ChatCompletionMessage) error {
		if len(kept) == 2 {
			return stop // the first answer is kept, the second is not
		}
		kept = append(kept, m)
		return nil
	}})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	m.answer = script()
	req := ask(false)
	req.Messages = append(req.Messages, kept...)
	messages, err = f.tools.Run(work(t), m.client(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := said(messages); len(got) != 2 || !strings.HasPrefix(got[1], "ALREADY DONE") || len(messages) != 5 {
		t.Errorf("%q", got)
	}
	if slices.Sort(f.done); strings.Join(f.done, ", ") != "buy a, buy b, get_stock a, get_stock a, get_stock a" {
		t.Errorf("done: %q", f.done)
	}
}

func TestDeliveredOnlyWhenTheModelWentOn(t *testing.T) {
	f := newOffice(t, nil)
	choice := openai.ChatCompletionChoice{Message: newModel(t, nil).calls("buy", `{"item":"a"}`)}
	other := openai.ChatCompletionChoice{Message: newModel(t, nil).calls("buy", `{"item":"b","n":1}`)}
	first := f.tools.Answer(t.Context(), nil, choice)
	f.tools.Answer(t.Context(), nil, other).Delivered()
	if again := f.tools.Answer(t.Context(), nil, choice); again.Results[0].Verdict.Outcome != toolguard.Replayed {
		t.Errorf("owed: %+v", again.Results[0].Verdict)
	}
	first.Delivered()
	if again := f.tools.Answer(t.Context(), nil, choice); again.Results[0].Verdict.Outcome != toolguard.Fresh {
		t.Errorf("delivered, and another write since: %+v", again.Results[0].Verdict)
	}
}

// pieces is a stream of given tool call pieces.
type pieces struct {
	left   []openai.ToolCall
	finish bool
}

func (p *pieces) Recv() (r openai.ChatCompletionStreamResponse, err error) {
	c := openai.ChatCompletionStreamChoice{}
	switch {
	case len(p.left) > 0:
		c.Delta.ToolCalls = p.left[:1]
		p.left = p.left[1:]
	case p.finish:
		p.finish = false
		c.FinishReason = openai.FinishReasonToolCalls
	default:
		return r, io.EOF
	}
	r.Choices = []openai.ChatCompletionStreamChoice{{Index: 1}, c}
	return r, nil
}

func piece(index int, id, name, arguments string) openai.ToolCall {
	c := openai.ToolCall{ID: id, Function: openai.FunctionCall{Name: name, Arguments: arguments}}
	if index >= 0 {
		c.Index = &index
	}
	return c
}

func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []openai.ToolCall
		want   string
	}{
		"interleaved":            {[]openai.ToolCall{piece(0, "a", "x", ""), piece(1, "b", "y", ""), piece(0, "", "", "{"), piece(1, "", "", "{ "), piece(0, "", "", "}"), piece(1, "", "", "}")}, `a x {} · b y { }`},
		"all under index 0":      {[]openai.ToolCall{piece(0, "a", "x", "{}"), piece(0, "b", "y", "{}")}, `a x {} · b y {}`},
		"no index":               {[]openai.ToolCall{piece(-1, "a", "x", "{"), piece(-1, "", "", "}"), piece(-1, "b", "y", "{}")}, `a x {} · b y {}`},
		"the name every time":    {[]openai.ToolCall{piece(0, "a", "x", "{"), piece(0, "a", "x", "}")}, `a x {}`},
		"the name in pieces":     {[]openai.ToolCall{piece(0, "a", "get_", ""), piece(0, "", "stock", "{}")}, `a get_stock {}`},
		"the id after the start": {[]openai.ToolCall{piece(0, "", "x", ""), piece(0, "a", "", "{}")}, `a x {}`},
		"an absurd index":        {[]openai.ToolCall{piece(1<<40, "a", "x", "{}")}, `a x {}`},
	} {
		t.Run(name, func(t *testing.T) {
			choice, err := openaiguard.Collect(&pieces{c.pieces, true})
			var got []string
			for _, call := range choice.Message.ToolCalls {
				got = append(got, call.ID+" "+call.Function.Name+" "+call.Function.Arguments)
			}
			if s := strings.Join(got, " · "); err != nil || s != c.want {
				t.Errorf("%s, %v; want %s", s, err, c.want)
			}
		})
	}
	endless := make([]openai.ToolCall, 10_000)
	for i := range endless {
		endless[i] = piece(i, fmt.Sprint(i), "x", "{}")
	}
	choice, err := openaiguard.Collect(&pieces{endless, true})
	if !errors.Is(err, openaiguard.ErrTooLarge) || choice.FinishReason != openaiguard.FinishCut || len(choice.Message.ToolCalls) > 200 {
		t.Errorf("%v, %s, %d calls", err, choice.FinishReason, len(choice.Message.ToolCalls))
	}
	choice, err = openaiguard.Collect(&pieces{[]openai.ToolCall{piece(0, "", "x", "{}")}, false})
	if !errors.Is(err, io.ErrUnexpectedEOF) || choice.FinishReason != openaiguard.FinishCut || choice.Message.ToolCalls[0].ID == "" {
		t.Errorf("%v, %+v", err, choice)
	}
}

func TestContentOfOtherTools(t *testing.T) {
	results := map[string]string{
		`{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"resource","resource":{"uri":"file:///x","text":"inside"}},{"type":"resource_link","uri":"file:///y","name":"why"}]}`: "a\n[image image/png, not shown here]\nfile:///x:\ninside\nwhy file:///y",
		`{"content":[],"structuredContent":{"n":9007199254740993}}`:          `{"n":9007199254740993}`,
		`{"content":[{"type":"text","text":"no such item"}],"isError":true}`: "The tool answered with an error: no such item",
		`{"content":[]}`: "The tool returned nothing.",
	}
	f := newOffice(t, nil)
	for result, want := range results {
		entry, err := registry.Compile(registry.Tool{Server: "s", Name: "get_it", Effect: registry.Read, EffectSource: "declared",
			Handler: func(context.Context, *registry.Dispatch) (registry.Answer, error) {
				return registry.Answer{Result: json.RawMessage(result)}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		tool, err := f.guard.Register(t.Context(), entry)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := openaiguard.New(f.guard, nil, tool)
		if err != nil {
			t.Fatal(err)
		}
		a := tools.Answer(t.Context(), nil, openai.ChatCompletionChoice{Message: newModel(t, nil).calls("get_it", "")})
		if got := a.Messages[0].Content; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCallsThatWait tells the model of a call that a person has to allow, and of one that takes longer than the model
// is kept waiting: neither is made twice, and the second is found done later.
func TestCallsThatWait(t *testing.T) {
	f := newOffice(t, nil)
	started, finish := make(chan bool), make(chan bool)
	add := func(name string, p registry.Policy, h func()) *toolguard.Tool {
		t.Helper()
		tool, err := goguard.New(f.guard, registry.Tool{Server: "shop", Name: name, Effect: registry.Write, Policy: p}, func(context.Context, order) (string, error) {
			h()
			return name + " is done", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return tool.Tool
	}
	tools, err := openaiguard.New(f.guard, nil,
		add("sign", registry.Policy{Approval: &registry.Approval{}}, func() { t.Error("it was made without a yes") }),
		add("print", registry.Policy{AnswerWithin: 100 * time.Millisecond}, func() { started <- true; <-finish }))
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(t, nil)
	go func() { <-started }() // once: a second time, nobody would be there
	m.answer = script(reply{message: m.calls("sign", `{"item":"a"}`, "print", `{"item":"a"}`)}, reply{message: m.calls("print", `{"item":"a"}`)})
	messages, err := tools.Run(work(t), m.client(), ask(false), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"NOT DONE YET.", "STILL RUNNING.", "STILL RUNNING."} {
		if got := said(messages); len(got) != 3 || !strings.HasPrefix(got[i], want) {
			t.Errorf("message %d of %q, want %s", i, got, want)
		}
	}
	close(finish)
	if err := f.guard.Close(t.Context()); err != nil { // waits until it is recorded
		t.Fatal(err)
	}
	a := tools.Answer(work(t), nil, openai.ChatCompletionChoice{Message: m.calls("print", `{"item":"a"}`)})
	if got := a.Messages[0].Content; !strings.HasPrefix(got, "ALREADY DONE") || !strings.HasSuffix(got, "print is done") {
		t.Error(got)
	}
}
