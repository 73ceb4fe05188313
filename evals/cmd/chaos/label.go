package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"toolguard.dev/evals/recorded"
)

// labels are what is known of the runs, and which of it was used.
type labels struct {
	builtin func(*recorded.Run) *recorded.Label // not nil: of the built-in runs
	files   []*recorded.Labels
	within  []string        // paths under which each label is to have its run; nil: each is
	used    map[string]bool // by file and line
}

// readLabels reads the file that was given, or those that belong to paths.
func readLabels(file string, paths []string) (*labels, error) {
	known := &labels{used: map[string]bool{}}
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--labels: %w", err)
		}
		defer f.Close()
		l, err := recorded.ReadLabels(file, f)
		known.files = []*recorded.Labels{l}
		return known, err
	}
	for _, path := range paths {
		l, err := recorded.FindLabels(path)
		if err != nil {
			return nil, err
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		known.files, known.within = append(known.files, l), append(known.within, path)
	}
	return known, nil
}

// of returns the label of a run; nil: it has none.
func (known *labels) of(r *recorded.Run) *recorded.Label {
	if known.builtin != nil {
		return known.builtin(r)
	}
	for _, l := range known.files {
		if label := l.Of(r); label != nil {
			known.used[label.At] = true
			return label
		}
	}
	return nil
}

// unmatched lists the labels that no run was found for, though it should have been.
func (known *labels) unmatched() (list []*recorded.Label) {
	for _, l := range known.files {
		for label := range l.All() {
			if !known.used[label.At] && known.expects(label) {
				known.used[label.At] = true // a file may belong to several paths
				list = append(list, label)
			}
		}
	}
	return list
}

func (known *labels) expects(l *recorded.Label) bool {
	if known.within == nil {
		return true
	}
	for _, path := range known.within {
		if rest, ok := strings.CutPrefix(l.Path, path); ok && (rest == "" || rest[0] == filepath.Separator || path == string(filepath.Separator)) {
			return true
		}
	}
	return false
}
