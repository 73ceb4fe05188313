package openaiguard_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"toolguard.dev/adapters/goguard"
	"toolguard.dev/adapters/openaiguard"
	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

func TestMain(m *testing.M) {
	if os.Getenv("OPENAIGUARD_AGENT") != "" {
		if err := agent(); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// agent is a program that works on one event: it plays the conversation from its beginning and prints each message of a
// tool before it goes on. With OPENAIGUARD_AGENT=hangs it never goes on.
func agent() error {
	ctx := context.Background()
	store, err := badgerstore.Open(os.Getenv("OPENAIGUARD_LEDGER"), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	guard, err := toolguard.Open(ctx, store, nil)
	if err != nil {
		return err
	}
	defer guard.Close(ctx)
	pay, err := goguard.New(guard, registry.Tool{Server: "books", Name: "pay_invoice"}, func(_ context.Context, in struct {
		ID string `json:"id"`
	}) (string, error) {
		r, err := http.Post(os.Getenv("OPENAIGUARD_BOOKS"), "text/plain", strings.NewReader(in.ID))
		if err != nil {
			return "", err
		}
		return "paid " + in.ID, r.Body.Close()
	})
	if err != nil {
		return err
	}
	tools, err := openaiguard.New(guard, nil, pay.Tool)
	if err != nil {
		return err
	}
	config := openai.DefaultConfig("no secret")
	config.BaseURL = os.Getenv("OPENAIGUARD_MODEL") + "/v1"
	ctx = toolguard.WithFacts(ctx, keyderive.Facts{SourceEvent: "evt-1"})
	messages, err := tools.Run(ctx, openai.NewClientWithConfig(config), ask(true), &openaiguard.RunOptions{
		Message: func(m openai.ChatCompletionMessage) error {
			if m.Role == openai.ChatMessageRoleTool {
				fmt.Println(m.Content)
				if os.Getenv("OPENAIGUARD_AGENT") == "hangs" {
					select {}
				}
			}
			return nil
		},
	})
	if err == nil {
		fmt.Println(messages[len(messages)-1].Content)
	}
	return err
}

// TestKilledBeforeItsMessageWasSent kills the agent after the tool ran and before the model was told. The next one plays
// the same conversation, in which the model uses other ids, and the invoice is not paid a second time.
func TestKilledBeforeItsMessageWasSent(t *testing.T) {
	var paid atomic.Int64
	books := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { paid.Add(1) }))
	defer books.Close()
	m := newModel(t, nil)
	m.mu.Lock() // another process asks: nothing else orders this before its first request
	m.answer = func(_ int, req openai.ChatCompletionRequest) reply {
		if len(req.Messages) > 1 {
			return reply{message: openai.ChatCompletionMessage{Content: "It is paid."}}
		}
		return reply{message: m.calls("pay_invoice", `{"id":"INV-7"}`)}
	}
	m.mu.Unlock()
	ledger := t.TempDir()
	start := func(mode string) (*exec.Cmd, *bufio.Scanner) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), "OPENAIGUARD_AGENT="+mode, "OPENAIGUARD_LEDGER="+ledger,
			"OPENAIGUARD_BOOKS="+books.URL, "OPENAIGUARD_MODEL="+m.server.URL)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		return c, bufio.NewScanner(out)
	}

	first, says := start("hangs")
	if !says.Scan() || says.Text() != "paid INV-7" {
		t.Fatalf("the first agent said %q", says.Text())
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()

	second, says := start("goes on")
	var lines []string
	for says.Scan() {
		lines = append(lines, says.Text())
	}
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(lines, "\n")
	if !strings.HasPrefix(said, "ALREADY DONE, not repeated.") || !strings.Contains(said, "paid INV-7") || !strings.HasSuffix(said, "It is paid.") {
		t.Errorf("the second agent said %q", said)
	}
	if n := paid.Load(); n != 1 {
		t.Errorf("paid %d times", n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) != 3 || m.ids != 2 {
		t.Errorf("%d requests, %d calls", len(m.requests), m.ids)
	}
}
