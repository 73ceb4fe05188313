package recorded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Limits on what is read. What is beyond them is an error that wraps ErrLimit.
const (
	MaxRun       = 16 << 20 // bytes of one run
	MaxCalls     = 10_000   // tool calls of one run
	MaxArguments = 1 << 20  // bytes of one call's arguments
	MaxDepth     = 100      // of arrays and objects in a call's arguments
)

// MaxAnswer is how much of a tool's answer is kept, in bytes; the rest is cut off.
const MaxAnswer = 2 << 10

// Why a run cannot be read; test with errors.Is.
var (
	ErrForm  = errors.New("not a recorded run of a known form") // it has none of the known forms, or breaks its own
	ErrLimit = errors.New("too large")                          // it is beyond one of the limits
)

// Run is one recorded run of an agent.
type Run struct {
	File  string // as it was named
	Name  string // within the file; unique there unless the file says otherwise
	Form  string // which reader read it
	Turns int    // messages of the user
	Calls []Call // the agent's, in the order of the transcript
	Made  int    // tool calls in the transcript, those that a simulated user makes with tools of its own included
}

// Call is one tool call of the agent.
type Call struct {
	Index     int             // its place among all tool calls of the transcript, from 0
	Turn      int             // messages of the user before it
	Batch     int             // which message of the assistant made it: calls of one message go out together
	Server    string          // where the run says which MCP server has the tool
	Tool      string          // its name
	Arguments json.RawMessage // one JSON object
	ID        string          // the call's id; models use some again
	Answer    string          // what the tool said, at most MaxAnswer bytes; "" where the run ends before
	Failed    bool            // the tool's answer is marked, or begins, as an error
}

// Malformed is a run that cannot be read, and why.
type Malformed struct {
	File string
	Run  string // "" where the whole file is meant
	Err  error
}

// Error names the file, the run and the reason in one line.
func (m *Malformed) Error() string {
	if m.Run == "" {
		return fmt.Sprintf("%s: %v", m.File, m.Err)
	}
	return fmt.Sprintf("%s: %s: %v", m.File, m.Run, m.Err)
}

// Unwrap returns the reason.
func (m *Malformed) Unwrap() error { return m.Err }

// Files yields the runs in files and, in lexical order, in the .json and .jsonl files of folders. A run that cannot be
// read is a *Malformed, after which it goes on with the next; labels.jsonl in a folder is no run. Any other error is
// that of a path which cannot be opened. Symbolic links in folders are not followed.
func Files(paths ...string) iter.Seq2[*Run, error] {
	return func(yield func(*Run, error) bool) {
		for _, root := range paths {
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case path == root && !d.IsDir():
				case !d.Type().IsRegular(), d.Name() == LabelFile:
					return nil
				case !strings.HasSuffix(path, ".json") && !strings.HasSuffix(path, ".jsonl"):
					return nil
				}
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				return readFile(path, f, yield)
			})
			if errors.Is(err, errEnough) || err != nil && !yield(nil, err) {
				return
			}
		}
	}
}

// errEnough: whoever iterates has stopped, and must not be called again.
var errEnough = errors.New("enough")

// readFile yields the runs of one file, and closes it.
func readFile(path string, f io.ReadCloser, yield func(*Run, error) bool) error {
	defer f.Close()
	for r, err := range Read(path, f) {
		if !yield(r, err) {
			return errEnough
		}
	}
	return nil
}

// FS is Files for the files of a file system, such as an embedded one.
func FS(fsys fs.FS) iter.Seq2[*Run, error] {
	return func(yield func(*Run, error) bool) {
		err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == LabelFile {
				return err
			}
			f, err := fsys.Open(path)
			if err != nil {
				return err
			}
			return readFile(path, f, yield)
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// gate refuses to read beyond a mark, so that no single value can take more memory than that.
type gate struct {
	r    io.Reader
	read int64
	mark int64
}

func (g *gate) Read(p []byte) (int, error) {
	if g.read >= g.mark {
		return 0, fmt.Errorf("%w: a run has at most %d bytes", ErrLimit, MaxRun)
	}
	if room := g.mark - g.read; int64(len(p)) > room {
		p = p[:room]
	}
	n, err := g.r.Read(p)
	g.read += int64(n)
	return n, err
}
