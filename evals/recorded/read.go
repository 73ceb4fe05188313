package recorded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
)

// Read yields the runs of one file; name stands for it. See [Files].
func Read(name string, r io.Reader) iter.Seq2[*Run, error] {
	return func(yield func(*Run, error) bool) {
		g := &gate{r: r}
		f := &file{name: name, gate: g, dec: json.NewDecoder(g), yield: yield}
		f.dec.UseNumber()
		if err := f.read(); err != nil && !errors.Is(err, errStopped) {
			yield(nil, &Malformed{File: name, Run: f.at(), Err: err})
		}
	}
}

var errStopped = errors.New("nobody reads on")

// file is one file on its way in.
type file struct {
	name  string
	gate  *gate
	dec   *json.Decoder
	yield func(*Run, error) bool
	n     int  // runs begun
	many  bool // the file is a list of runs
}

// at names the run that is being read.
func (f *file) at() string {
	if !f.many {
		return ""
	}
	return fmt.Sprintf("run %d and what follows it", f.n+1)
}

// open lets the next value in.
func (f *file) open() { f.gate.mark = f.dec.InputOffset() + MaxRun }

func (f *file) read() error {
	f.open()
	first, err := f.dec.Token()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	switch first {
	case json.Delim('['):
		return f.list()
	case json.Delim('{'):
		return f.object()
	}
	return fmt.Errorf("%w: it is neither an object nor a list", ErrForm)
}

// list reads a list of runs, or of the messages of one run, up to its end.
func (f *file) list() error {
	var messages []json.RawMessage
	size := 0
	for f.dec.More() {
		f.open()
		var raw json.RawMessage
		if err := f.dec.Decode(&raw); err != nil {
			return err
		}
		var head struct {
			Role, Messages, Traj json.RawMessage
		}
		if err := json.Unmarshal(raw, &head); f.n == 0 && (err != nil || head.Role == nil && head.Messages == nil && head.Traj == nil) {
			return fmt.Errorf("%w: it is a list of neither runs nor messages", ErrForm)
		}
		if head.Role != nil && f.n == 0 {
			if size += len(raw); size > MaxRun {
				return fmt.Errorf("%w: a run has at most %d bytes", ErrLimit, MaxRun)
			}
			messages = append(messages, raw)
			continue
		}
		f.many = true
		if err := f.run(raw); err != nil {
			return err
		}
	}
	if _, err := f.dec.Token(); err != nil {
		return err
	}
	if messages != nil {
		all, err := json.Marshal(messages)
		if err != nil {
			return err
		}
		return f.run(fmt.Appendf(nil, `{"messages":%s}`, all))
	}
	return nil
}

// object reads what stands in an object that was begun: one run, a tau2-bench file, or the first line of many.
func (f *file) object() error {
	o := map[string]json.RawMessage{}
	simulations := false
	for f.dec.More() {
		key, err := f.dec.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		f.open()
		if name == "simulations" {
			if open, err := f.dec.Token(); err != nil || open != json.Delim('[') {
				return errors.Join(fmt.Errorf("%w: simulations is no list", ErrForm), err)
			}
			simulations = true
			if err := f.list(); err != nil {
				return err
			}
			continue
		}
		var raw json.RawMessage
		if err := f.dec.Decode(&raw); err != nil {
			return err
		}
		switch name {
		case "messages", "traj", "message", "type", "sessionId", "isSidechain", "isMeta", "suite_name", "id", "task_id", "trial":
			o[name] = raw
		}
	}
	if _, err := f.dec.Token(); err != nil {
		return err
	}
	if simulations {
		return nil
	}
	whole, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if isLine(whole) {
		return f.session(whole)
	}
	f.open()
	if !f.dec.More() { // the file is one object
		return f.run(whole)
	}
	if o["messages"] == nil && o["traj"] == nil {
		return fmt.Errorf("%w: its lines have no messages", ErrForm)
	}
	f.many = true
	for raw := json.RawMessage(whole); ; {
		if err := f.run(raw); err != nil {
			return err
		}
		f.open()
		if !f.dec.More() {
			return nil
		}
		raw = nil
		if err := f.dec.Decode(&raw); err != nil {
			return err
		}
	}
}

// run hands out one run. An error ends the file.
func (f *file) run(raw json.RawMessage) error {
	f.n++
	r, err := Parse(raw)
	if err != nil {
		if !f.yield(nil, &Malformed{File: f.name, Run: f.label(), Err: err}) {
			return errStopped
		}
		return nil
	}
	return f.give(r)
}

func (f *file) give(r *Run) error {
	r.File = f.name
	if r.Name == "" {
		r.Name = f.label()
	}
	if !f.yield(r, nil) {
		return errStopped
	}
	return nil
}

// label names a run by its place.
func (f *file) label() string {
	if !f.many {
		return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(f.name), "l"), ".json")
	}
	return fmt.Sprintf("run %d", f.n)
}

// session reads a Claude Code session: one line for each message, the first of which is at hand.
func (f *file) session(line json.RawMessage) error {
	t := newTranscript("claude-code")
	var size int64
	for {
		if size += int64(len(line)); size > MaxRun {
			return fmt.Errorf("%w: a run has at most %d bytes", ErrLimit, MaxRun)
		}
		if err := t.line(line); err != nil {
			return err
		}
		f.open()
		if !f.dec.More() {
			break
		}
		line = nil
		if err := f.dec.Decode(&line); err != nil {
			return err
		}
	}
	return f.give(t.end())
}
