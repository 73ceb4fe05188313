package recorded

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LabelFile is the name of the file that says what the runs of a folder were meant to do.
const LabelFile = "labels.jsonl"

// MaxLabels is how many lines a file of labels may have.
const MaxLabels = 1_000_000

// Label is what is known of one run: one line of a file of labels.
type Label struct {
	File        string   `json:"file"` // relative to the folder of the file of labels
	Run         string   `json:"run"`
	Calls       int      `json:"calls"`  // in the transcript; in one that was read, -1: it is not said
	Writes      int      `json:"writes"` // of these, the calls of tools that do not only read; -1: it is not said
	WriteErrors int      `json:"write_errors"`
	Repeats     []Repeat `json:"repeats"`

	At   string `json:"-"` // the file of labels that says so, and its line
	Path string `json:"-"` // where the run's file is
}

// Repeat is a write that the agent made again, of the same tool and with the same arguments or similar ones.
type Repeat struct {
	Tool     string `json:"tool"`
	Relation string `json:"relation"` // exact, canon, listorder, freetext or material
	First    int    `json:"first_call"`
	Second   int    `json:"second_call"`
	Verdict  string `json:"hand_label"` // one of the verdicts, or "" where nobody judged it
}

// Verdicts of those who read the runs on repeated writes.
const (
	MustRunAgain    = "must_run_again"                  // it is wanted once more
	UnwantedEffect  = "unwanted_effect"                 // it is not wanted, and has another effect
	UnwantedRefused = "unwanted_but_refused_downstream" // it is not wanted, and the tool refused it
	NoOp            = "no_op"                           // it changes nothing more
	Ambiguous       = "ambiguous"                       // nobody can tell
	Attacker        = "attacker_"                       // begins those of what an attacker wanted
)

// ErrLabel is a line that is no label.
var ErrLabel = errors.New("not a label")

// Labels are those of one file.
type Labels struct {
	dir string
	all []*Label
	of  map[[2]string]*Label
}

// FindLabels reads the file of labels that belongs to a path: in the folder itself, or in one above it, at most four up.
// Without one the result has no labels.
func FindLabels(path string) (*Labels, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for range 5 {
		name := filepath.Join(dir, LabelFile)
		f, err := os.Open(name)
		if err == nil {
			defer f.Close()
			return ReadLabels(name, f)
		}
		dir = filepath.Dir(dir)
	}
	return &Labels{}, nil
}

// LabelsFS reads the file of labels of a file system.
func LabelsFS(fsys fs.FS) (*Labels, error) {
	f, err := fsys.Open(LabelFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLabels("", LabelFile, f)
}

// ReadLabels reads a file of labels; name is its path, from whose folder the runs' files count. An error names the line, and
// wraps ErrLabel if it is none, or ErrLimit.
func ReadLabels(name string, r io.Reader) (*Labels, error) {
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	return readLabels(dir, name, r)
}

func readLabels(dir, name string, r io.Reader) (*Labels, error) {
	l := &Labels{dir: dir, of: map[[2]string]*Label{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	n := 1
	for ; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, n)
		if n > MaxLabels {
			return nil, fmt.Errorf("%s: %w: at most %d lines", at, ErrLimit, MaxLabels)
		}
		one, err := parseLabel(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		of := [2]string{filepath.ToSlash(one.File), one.Run}
		if old := l.of[of]; old != nil {
			return nil, fmt.Errorf("%s: %w: the run is labelled in %s already", at, ErrLabel, old.At)
		}
		one.At, one.Path = at, filepath.Join(dir, filepath.FromSlash(one.File))
		l.of[of], l.all = one, append(l.all, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, n, err)
	}
	return l, nil
}

// parseLabel reads one line. Members that it does not know are the writer's own.
func parseLabel(line []byte) (*Label, error) {
	one := &Label{Calls: -1, Writes: -1}
	if err := json.Unmarshal(line, one); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLabel, err)
	}
	var has struct {
		Repeats []map[string]json.RawMessage `json:"repeats"`
	}
	_ = json.Unmarshal(line, &has) // it is a label
	switch {
	case one.File == "" || one.Run == "":
		return nil, fmt.Errorf("%w: it names no file, or no run", ErrLabel)
	case has.Repeats == nil:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(line, &members)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if members[name][0] == '[' {
				return nil, fmt.Errorf("%w: it has no repeats, but a list named %s", ErrLabel, clip(name, 100))
			}
		}
	}
	for i, r := range one.Repeats {
		for _, name := range []string{"first_call", "second_call", "hand_label"} {
			if _, ok := has.Repeats[i][name]; !ok {
				return nil, fmt.Errorf("%w: repeat %d has no %s", ErrLabel, i+1, name)
			}
		}
		if r.First < 0 || r.First >= r.Second {
			return nil, fmt.Errorf("%w: repeat %d: its second_call, %d, does not come after its first_call, %d", ErrLabel, i+1, r.Second, r.First)
		}
		if !slices.Contains(verdicts, r.Verdict) && !strings.HasPrefix(r.Verdict, Attacker) {
			return nil, fmt.Errorf("%w: repeat %d: there is no hand_label %q; there are null, %s and those that begin with %s",
				ErrLabel, i+1, clip(r.Verdict, 100), strings.Join(verdicts[1:], ", "), Attacker)
		}
	}
	return one, nil
}

var verdicts = []string{"", MustRunAgain, UnwantedEffect, UnwantedRefused, NoOp, Ambiguous}

// All yields the labels in the order of their lines.
func (l *Labels) All() iter.Seq[*Label] { return slices.Values(l.all) }

// Of returns the label of a run; nil: it has none. A file with one run may be labelled under any name for it.
func (l *Labels) Of(r *Run) *Label {
	if l == nil || l.of == nil {
		return nil
	}
	file := r.File
	if l.dir != "" {
		abs, err := filepath.Abs(file)
		if err != nil {
			return nil
		}
		if file, err = filepath.Rel(l.dir, abs); err != nil {
			return nil
		}
	}
	file = filepath.ToSlash(file)
	if one := l.of[[2]string{file, r.Name}]; one != nil {
		return one
	}
	for _, name := range names(file) { // of a file that is one run
		if one := l.of[[2]string{file, name}]; one != nil {
			return one
		}
	}
	return nil
}

// names are those by which a file of one run may be labelled: its path, from each of its folders on.
func names(file string) []string {
	all := []string{file}
	for i, c := range file {
		if c == '/' {
			all = append(all, file[i+1:])
		}
	}
	return all
}
