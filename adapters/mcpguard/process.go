package mcpguard

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long a child may take to end after its stdin was closed, and again after it was asked to end.
const patience = 2 * time.Second

// process is a running child with its pipes.
type process struct {
	cmd     *exec.Cmd
	in, out *os.File      // our ends of its stdin and stdout
	exited  chan struct{} // closed when it is gone, and its group with it
	err     error         // how it ended; read it after exited
}

// startProcess starts a child in a process group of its own. On Linux the child is killed when the thread that
// calls this ends, so call it on a locked thread that outlives the child.
func startProcess(c *Server, log *slog.Logger) (*process, error) {
	path, err := lookPath(c)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		closeAll()
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{c.Command}, c.Args...), Env: c.Env, Dir: c.Dir,
		Stdin: inR, Stdout: outW, Stderr: errW, SysProcAttr: ownGroup(),
	}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean ours
	}
	if err := cmd.Start(); err != nil {
		closeAll()
		return nil, err
	}
	for _, f := range []*os.File{inR, outW, errW} {
		_ = f.Close()
	}
	p := &process{cmd: cmd, in: inW, out: outR, exited: make(chan struct{})}
	go logLines(errR, log)
	go func() {
		p.err = cmd.Wait()
		killGroup(cmd.Process) // what it left behind
		close(p.exited)
	}()
	return p, nil
}

// stop ends the child and its group: gently first, by closing its stdin.
func (p *process) stop() {
	_ = p.in.Close()
	for _, end := range []func(*os.Process){terminateGroup, killGroup} {
		select {
		case <-p.exited:
			return
		case <-time.After(patience):
			end(p.cmd.Process)
		}
	}
	<-p.exited
}

// endsSoon reports whether the child has ended, or does so now that its output has (silent).
func (p *process) endsSoon(silent <-chan struct{}) bool {
	select {
	case <-p.exited:
		return true
	default:
	}
	select {
	case <-silent:
	default:
		return false
	}
	select {
	case <-p.exited:
		return true
	case <-time.After(patience):
		return false
	}
}

// ended says how the child ended.
func (p *process) ended() error {
	var exit *exec.ExitError
	if p.err == nil {
		return errors.New("it ended")
	}
	if errors.As(p.err, &exit) {
		return fmt.Errorf("it ended: %s", exit.ProcessState)
	}
	return p.err
}

// lookPath finds the command as the child's own environment would.
func lookPath(c *Server) (string, error) {
	if strings.ContainsRune(c.Command, filepath.Separator) {
		if c.Dir != "" && !filepath.IsAbs(c.Command) {
			return exec.LookPath(filepath.Join(c.Dir, c.Command))
		}
		return exec.LookPath(c.Command)
	}
	for i := len(c.Env) - 1; i >= 0; i-- {
		list, ok := strings.CutPrefix(c.Env[i], "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if !filepath.IsAbs(dir) {
				continue
			}
			if path, err := exec.LookPath(filepath.Join(dir, c.Command)); err == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("%q is not in the PATH it was given", c.Command)
	}
	return exec.LookPath(c.Command)
}

// logLines logs what the child writes to stderr, a line at a time.
func logLines(r *os.File, log *slog.Logger) {
	defer r.Close()
	in := bufio.NewReaderSize(r, 4096)
	long := false
	for {
		line, err := in.ReadSlice('\n')
		if text := strings.TrimSpace(strings.ToValidUTF8(string(line), "\uFFFD")); text != "" && !long {
			log.Info(text, "from", "stderr")
		}
		long = errors.Is(err, bufio.ErrBufferFull) // the rest of a long line is left out
		if err != nil && !long {
			return
		}
	}
}
