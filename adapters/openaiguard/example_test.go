package openaiguard_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sashabaranov/go-openai"

	"toolguard.dev/adapters/goguard"
	"toolguard.dev/adapters/openaiguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// The event is handled twice. The model calls the tool both times; the mail goes out once.
func ExampleTools_Run() {
	ctx := context.Background()
	guard, err := toolguard.Open(ctx, storetest.NewMemory(), nil) // a real program opens a ledger on disk
	if err != nil {
		log.Fatal(err)
	}
	type mail struct {
		To   string `json:"to"`
		Text string `json:"text"`
	}
	send, err := goguard.New(guard, registry.Tool{Server: "mail", Name: "send_mail", Description: "Sends a mail."},
		func(_ context.Context, m mail) (string, error) {
			fmt.Println("sending to", m.To)
			return "sent", nil
		})
	if err != nil {
		log.Fatal(err)
	}
	tools, err := openaiguard.New(guard, nil, send.Tool)
	if err != nil {
		log.Fatal(err)
	}

	server := pretendModel()
	defer server.Close()
	config := openai.DefaultConfig("key")
	config.BaseURL = server.URL
	client := openai.NewClientWithConfig(config)

	ctx = toolguard.WithFacts(ctx, keyderive.Facts{SourceEvent: "evt-1"})
	for range 2 {
		conversation, err := tools.Run(ctx, client, openai.ChatCompletionRequest{
			Model:    "gpt-4.1",
			Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Tell Ann that it is ready."}},
		}, nil)
		if err != nil {
			log.Fatal(err)
		}
		text, _, _ := strings.Cut(conversation[2].Content, ".") // what the model was told of its call
		fmt.Println(text)
	}
	// Output:
	// sending to ann@example.org
	// sent
	// ALREADY DONE, not repeated
}

// pretendModel is a server that calls send_mail and then says that it is done.
func pretendModel() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"role":"tool"`) {
			fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}`)
			return
		}
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","tool_calls":[{"id":"call_1","type":"function",
			"function":{"name":"send_mail","arguments":"{\"to\":\"ann@example.org\",\"text\":\"It is ready.\"}"}}]},"finish_reason":"tool_calls"}]}`)
	}))
}
