package evals

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Front is a process of its own before a downstream: it takes connections at listen, an address such as 127.0.0.1:0, carries
// them to another address, and writes where it listens as the first line of out. It ends with its input. Who kills it takes
// the downstream away as the death of the downstream's own process would: connections are reset, and nobody listens.
func Front(in io.Reader, out io.Writer, listen, to string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go carry(c, to)
		}
	}()
	_, err = io.Copy(io.Discard, in)
	return err
}

// carry connects two connections until one of them ends.
func carry(c net.Conn, to string) {
	defer c.Close()
	other, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer other.Close()
	go func() {
		_, _ = io.Copy(other, c)
		_ = other.Close()
	}()
	_, _ = io.Copy(c, other)
}

// front is a running one.
type front struct {
	command []string
	to      string

	mu      sync.Mutex
	address string // once it has one, it keeps it
	cmd     *exec.Cmd
	back    *time.Timer
	ended   bool
}

// newFront starts one.
func newFront(command []string, to string) (*front, error) {
	f := &front{command: command, to: to, address: "127.0.0.1:0"}
	return f, f.start()
}

func (f *front) start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	f.cmd = exec.Command(f.command[0], append(f.command[1:len(f.command):len(f.command)], f.address, f.to)...)
	if _, err := f.cmd.StdinPipe(); err != nil { // which ends with this process
		return err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := f.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s does not serve: %w", f.command[0], err)
	}
	f.address = strings.TrimSpace(line)
	return nil
}

// lose kills it, and starts it again when away is over.
func (f *front) lose(ctx context.Context, away time.Duration) {
	f.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.back = time.AfterFunc(away, func() {
			if ctx.Err() == nil {
				_ = f.start()
			}
		})
	}
}

func (f *front) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cmd != nil && f.cmd.Process != nil {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
		f.cmd = nil
	}
}

func (f *front) end() {
	f.mu.Lock()
	f.ended = true
	if f.back != nil {
		f.back.Stop()
	}
	f.mu.Unlock()
	f.kill()
}
