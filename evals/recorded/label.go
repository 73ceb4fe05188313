package recorded

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// LabelFile is the name of the file that says what the runs of a folder were meant to do.
const LabelFile = "labels.jsonl"

// MaxLabels is how many lines a file of labels may have.
const MaxLabels = 1_000_000

// Label is what is known of one run: one line of a file of labels.
type Label struct {
	File        string   `json:"file"` // relative to the folder of the file of labels
	Run         string   `json:"run"`
	Calls       int      `json:"calls"`
	Writes      int      `json:"writes"`
	WriteErrors int      `json:"write_errors"`
	Repeats     []Repeat `json:"repeats"`
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
	MustRunAgain   = "must_run_again"  // it is wanted once more
	UnwantedEffect = "unwanted_effect" // it is not wanted, and has another effect
	NoOp           = "no_op"           // it changes nothing more
	Ambiguous      = "ambiguous"       // nobody can tell
	Attacker       = "attacker_"       // begins those of what an attacker wanted
)

// Labels are those of one folder.
type Labels struct {
	dir string
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
		f, err := os.Open(filepath.Join(dir, LabelFile))
		if err == nil {
			defer f.Close()
			return ReadLabels(dir, f)
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
	return ReadLabels("", f)
}

// ReadLabels reads labels; dir is the folder that they count from.
func ReadLabels(dir string, r io.Reader) (*Labels, error) {
	l := &Labels{dir: dir, of: map[[2]string]*Label{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var one Label
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Join(dir, LabelFile), n, err)
		}
		if n > MaxLabels {
			return nil, fmt.Errorf("%s: %w: at most %d lines", filepath.Join(dir, LabelFile), ErrLimit, MaxLabels)
		}
		l.of[[2]string{filepath.ToSlash(one.File), one.Run}] = &one
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, LabelFile), err)
	}
	return l, nil
}

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
