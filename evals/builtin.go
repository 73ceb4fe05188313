package evals

import (
	"embed"
	"io/fs"
	"iter"

	"toolguard.dev/evals/recorded"
)

//go:embed builtin
var builtin embed.FS

// Builtin yields the runs that come with this package: made up, some in each of the forms that package recorded reads,
// with what goes right and wrong in real ones. Labels says what they were meant to do.
func Builtin() (runs iter.Seq2[*recorded.Run, error], labels func(*recorded.Run) *recorded.Label, err error) {
	dir, err := fs.Sub(builtin, "builtin")
	if err != nil {
		return nil, nil, err
	}
	l, err := recorded.LabelsFS(dir)
	if err != nil {
		return nil, nil, err
	}
	return recorded.FS(dir), l.Of, nil
}
