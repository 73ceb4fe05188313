package mcpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"unicode/utf8"

	"toolguard.dev/registry"
)

// inbox takes the messages of one server and hands its answers to whoever waits for them.
type inbox struct {
	name   string
	log    *slog.Logger
	notify func(method string, params json.RawMessage) // must not block
	send   func(message []byte)                        // sends what nobody waits for; must not block

	mu      sync.Mutex
	pending map[string]chan answer
}

// answer is what came back for a request.
type answer struct {
	registry.Answer
	broken error // it could not be read
}

// expect returns where the answer to a request comes in; forget must be called when nobody waits for it any more.
func (b *inbox) expect(id string) (answers <-chan answer, forget func()) {
	waiting := make(chan answer, 1)
	b.mu.Lock()
	b.pending[id] = waiting
	b.mu.Unlock()
	return waiting, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.pending, id)
	}
}

// message takes one message from the server. It never blocks.
func (b *inbox) message(line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	o, err := parseObject(line)
	if err == nil && o.text("jsonrpc") != "2.0" {
		err = errors.New("not JSON-RPC 2.0")
	}
	if err != nil {
		b.log.Warn("the MCP server wrote something to its stdout that is no message; skipped", "why", err, "line", clip(line, 200))
		if bytes.Contains(line, []byte(`"jsonrpc"`)) {
			var f idFinder
			f.write(line)
			b.answer(f.answers(), answer{broken: fmt.Errorf("%s answered with something that cannot be read: %w", b.name, err)}, true)
		}
		return
	}
	id, method := o.get("id"), o.text("method")
	switch {
	case method != "" && id != nil && string(id) != "null":
		b.serve(method, id)
	case method != "":
		b.notify(method, o.get("params"))
	default:
		b.answer(string(id), b.decode(o), false)
	}
}

// serve answers a request of the server: it may ask whether we are there, and nothing else.
func (b *inbox) serve(method string, id json.RawMessage) {
	o := object{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"id", id}}
	if method == "ping" {
		b.send(o.with("result", json.RawMessage(`{}`)).raw())
		return
	}
	b.send(o.with("error", encode(registry.ProtocolError{Code: -32601, Message: "method not found: " + clip([]byte(method), 100)})).raw())
}

// answer hands an answer to whoever waits for it.
func (b *inbox) answer(id string, a answer, guessed bool) {
	b.mu.Lock()
	waiting := b.pending[id]
	delete(b.pending, id)
	b.mu.Unlock()
	if waiting != nil {
		waiting <- a // buffered, and the id was just taken out
		return
	}
	if !guessed {
		b.log.Warn("the MCP server answered a request that is not open; dropped", "id", clip([]byte(id), 40))
	}
}

// decode reads an answer.
func (b *inbox) decode(o object) answer {
	result, problem := o.get("result"), o.get("error")
	if problem == nil || string(problem) == "null" {
		if result == nil {
			return answer{broken: fmt.Errorf("%s answered with neither result nor error", b.name)}
		}
		return answer{Answer: registry.Answer{Result: result}}
	}
	if result != nil && string(result) != "null" {
		return answer{broken: fmt.Errorf("%s answered with both a result and an error", b.name)}
	}
	var e registry.ProtocolError
	if problem[0] == '"' { // some servers say it in one string
		_ = json.Unmarshal(problem, &e.Message)
		e.Code = -32603
		return answer{Answer: registry.Answer{Error: &e}}
	}
	if err := json.Unmarshal(problem, &e); err != nil {
		return answer{broken: fmt.Errorf("%s answered with an error that cannot be read: %w", b.name, err)}
	}
	return answer{Answer: registry.Answer{Error: &e}}
}
