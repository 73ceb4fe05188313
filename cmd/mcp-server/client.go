package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"toolguard.dev/toolguard"
)

// client is a small MCP client on a child's pipes: what the demo's agent speaks.
type client struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed at the end of the child's output
	id    int
}

// startClient starts a server and shakes hands with it.
func startClient(ctx context.Context, cmd *exec.Cmd) (*client, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &client{cmd: cmd, in: in, lines: make(chan []byte, 16)}
	go func() {
		defer close(c.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			c.lines <- append([]byte(nil), s.Bytes()...)
		}
	}()
	var hello json.RawMessage
	err = c.request(ctx, "initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "toolguard-demo", "version": version()}}, &hello)
	if err == nil {
		err = c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	}
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

func (c *client) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.in.Write(append(line, '\n'))
	return err
}

// begin sends a request and does not wait for its answer.
func (c *client) begin(method string, params any) error {
	c.id++
	return c.send(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
}

// request sends a request and waits for its answer.
func (c *client) request(ctx context.Context, method string, params, result any) error {
	if err := c.begin(method, params); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", method, context.Cause(ctx))
		case line, ok := <-c.lines:
			if !ok {
				return fmt.Errorf("%s: the server ended", method)
			}
			var m struct {
				ID     *int            `json:"id"`
				Result json.RawMessage `json:"result"`
				Error  *struct {
					Message string `json:"message"`
				} `json:"error"`
			}
			if err := json.Unmarshal(line, &m); err != nil {
				return fmt.Errorf("%s: the server wrote what is no JSON: %s", method, short(string(line), 100))
			}
			switch {
			case m.ID == nil || *m.ID != c.id: // a notification
			case m.Error != nil:
				return errors.New(m.Error.Message)
			default:
				return json.Unmarshal(m.Result, result)
			}
		}
	}
}

// answered is a tool's result, as far as the demo looks at it.
type answered struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
	Meta    struct {
		Verdict toolguard.Verdict `json:"dev.toolguard/verdict"`
	} `json:"_meta"`
}

// text is all that the model reads.
func (a answered) text() string {
	var parts []string
	for _, c := range a.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, " ")
}

func (c *client) call(ctx context.Context, tool string, arguments any) (a answered, err error) {
	err = c.request(ctx, "tools/call", map[string]any{"name": tool, "arguments": arguments}, &a)
	return a, err
}

// kill ends the server at once, as a crash does.
func (c *client) kill() {
	_ = c.cmd.Process.Kill()
	c.in.Close()
	for range c.lines {
	}
	_ = c.cmd.Wait() // says that it was killed
}

// end closes the server's stdin and waits for it.
func (c *client) end() error {
	c.in.Close()
	for range c.lines {
	}
	return c.cmd.Wait()
}
