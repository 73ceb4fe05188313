package evals

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"toolguard.dev/registry"
)

// child is an MCP server on stdio in a process of its own.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	errs diary
	gone chan struct{} // closed when it says nothing any more

	mu   sync.Mutex
	id   int
	wait map[int]chan registry.Answer
}

// errGone: the process ended before it answered.
var errGone = errors.New("the process has ended")

// startTime is how long a process may take to start.
const startTime = time.Minute

// maxLine is how long a message of a child may be.
const maxLine = 16 << 20

// startChild starts a command and agrees with it on the protocol.
func startChild(ctx context.Context, command []string) (*child, error) {
	c := &child{cmd: exec.Command(command[0], command[1:]...), gone: make(chan struct{}), wait: map[int]chan registry.Answer{}}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.cmd.Stderr = &c.errs
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.listen(out)
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	_, err = c.call(ctx, "initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": struct{}{},
		"clientInfo": map[string]string{"name": "chaos", "version": "1"}})
	if err == nil {
		err = c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	}
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("%s does not start: %w%s", command[0], err, c.errs.last())
	}
	return c, nil
}

func (c *child) listen(out io.Reader) {
	defer close(c.gone)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var m struct {
			ID     *int                    `json:"id"`
			Method string                  `json:"method"`
			Result json.RawMessage         `json:"result"`
			Error  *registry.ProtocolError `json:"error"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil || m.Method != "" {
			continue // a notification, or a question: nobody here answers any
		}
		c.mu.Lock()
		waiting := c.wait[*m.ID]
		delete(c.wait, *m.ID)
		c.mu.Unlock()
		if waiting != nil {
			waiting <- registry.Answer{Result: m.Result, Error: m.Error}
		}
	}
}

func (c *child) send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.in.Write(append(text, '\n'))
	return err
}

// call asks and waits for the answer.
func (c *child) call(ctx context.Context, method string, params any) (registry.Answer, error) {
	answer := make(chan registry.Answer, 1)
	c.mu.Lock()
	c.id++
	id := c.id
	c.wait[id] = answer
	c.mu.Unlock()
	if err := c.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}); err != nil {
		return registry.Answer{}, fmt.Errorf("%w: %w", errGone, err)
	}
	select {
	case a := <-answer:
		if a.Error != nil && method != "tools/call" {
			return a, errors.New(a.Error.Message)
		}
		return a, nil
	case <-c.gone:
		return registry.Answer{}, errGone
	case <-ctx.Done():
		return registry.Answer{}, ctx.Err()
	}
}

// kill ends the process by SIGKILL and waits until it has ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.in.Close()
	<-c.gone
	_ = c.cmd.Wait()
}

// address is where it serves HTTP, by its own word; "": it does not.
func (c *child) address() string { return c.errs.served() }

// diary is what a process says on stderr: its beginning is kept, and its last line.
type diary struct {
	mu    sync.Mutex
	begun []byte
	line  []byte
}

// maxDiary is how much of it is kept.
const maxDiary = 16 << 10

func (d *diary) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = append(d.begun, b[:min(len(b), maxDiary-len(d.begun))]...)
	if lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n")); len(lines[len(lines)-1]) > 0 {
		d.line = append(d.line[:0], lines[len(lines)-1]...)
	}
	return len(b), nil
}

// last is the last line, to be added to an error.
func (d *diary) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.line) == 0 {
		return ""
	}
	return ": " + Printable(clip(string(d.line), 500))
}

var serving = regexp.MustCompile(`console=(http://127\.0\.0\.1:\d+)/`)

func (d *diary) served() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := serving.FindSubmatch(d.begun); m != nil {
		return string(m[1])
	}
	return ""
}
