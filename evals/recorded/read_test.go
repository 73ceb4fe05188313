package recorded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/evals/recorded"
)

// read collects what a file holds.
func read(t *testing.T, name, text string) (runs []*recorded.Run, skipped []error) {
	t.Helper()
	for r, err := range recorded.Read(name, strings.NewReader(text)) {
		if err != nil {
			skipped = append(skipped, err)
			continue
		}
		runs = append(runs, r)
	}
	return runs, skipped
}

// one of each form, all with the same two calls: pay {"n":1} at the user's first message, done, and pay {"n":2} at the
// second, refused.
var forms = map[string]string{
	"openai": `[{"role":"user","content":"a"},
		{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"pay","arguments":"{\"n\":1}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"paid"},
		{"role":"user","content":"b"},
		{"role":"assistant","tool_calls":[{"id":"c2","type":"function","function":{"name":"pay","arguments":"{\"n\":2}"}}]},
		{"role":"tool","tool_call_id":"c2","content":"Error: no"}]`,
	"anthropic": `{"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":[{"type":"text","text":"well"},{"type":"tool_use","id":"c1","name":"pay","input":{"n":1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"paid"}]},
		{"role":"user","content":[{"type":"text","text":"b"}]},
		{"role":"assistant","content":[{"type":"tool_use","id":"c2","name":"pay","input":{"n":2}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"Error: no"}],"is_error":true}]}]}`,
	"claude-code": `{"type":"summary","sessionId":"s"}
		{"type":"user","sessionId":"s","message":{"role":"user","content":"a"}}
		{"type":"assistant","sessionId":"s","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"well"}]}}
		{"type":"assistant","sessionId":"s","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"c1","name":"mcp__bank__pay","input":{"n":1}}]}}
		{"type":"user","sessionId":"s","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"paid"}]}}
		{"type":"user","sessionId":"s","isMeta":true,"message":{"role":"user","content":"the program's own words"}}
		{"type":"assistant","sessionId":"s","isSidechain":true,"message":{"id":"x","role":"assistant","content":[{"type":"tool_use","id":"x","name":"other","input":{}}]}}
		{"type":"user","sessionId":"s","message":{"role":"user","content":"b"}}
		{"type":"assistant","sessionId":"s","message":{"id":"m2","role":"assistant","content":[{"type":"tool_use","id":"c2","name":"mcp__bank__pay","input":{"n":2}}]}}
		{"type":"user","sessionId":"s","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"Error: no","is_error":true}]}}`,
	"tau-bench": `[{"task_id":3,"trial":1,"traj":[{"role":"system","content":"s"},{"role":"user","content":"a"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"pay","arguments":"{\"n\":1}"}}]},
		{"role":"tool","tool_call_id":"c1","name":"pay","content":"paid"},
		{"role":"user","content":"b"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c2","function":{"name":"pay","arguments":"{\"n\":2}"}}]},
		{"role":"tool","tool_call_id":"c2","name":"pay","content":"Error: no"}]}]`,
	"tau2-bench": `{"info":{},"tasks":[{"id":"3"}],"simulations":[{"id":"x","task_id":"3","trial":1,"messages":[{"role":"user","content":"a"},
		{"role":"assistant","tool_calls":[{"id":"c1","name":"pay","arguments":{"n":1},"requestor":"assistant"}]},
		{"id":"c1","role":"tool","content":"paid","requestor":"assistant","error":false},
		{"role":"user","content":"b"},
		{"role":"assistant","tool_calls":[{"id":"c2","name":"pay","arguments":{"n":2},"requestor":"assistant"}]},
		{"id":"c2","role":"tool","content":"Error: no","requestor":"assistant","error":true}]}]}`,
	"agentdojo": `{"suite_name":"banking","messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":null,"tool_calls":[{"function":"pay","args":{"n":1},"id":"c1"}]},
		{"role":"tool","content":"paid","tool_call_id":"c1","tool_call":{"function":"pay","args":{"n":1},"id":"c1"},"error":null},
		{"role":"user","content":"b"},
		{"role":"assistant","content":null,"tool_calls":[{"function":"pay","args":{"n":2},"id":"c2"}]},
		{"role":"tool","content":"","tool_call_id":"c2","error":"Error: no"}]}`,
	"livemcpbench": `[{"task_id":"t","messages":[{"role":"user","content":"a"},
		{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"execute-tool","arguments":"{\"server_name\":\"bank\",\"tool_name\":\"pay\",\"params\":{\"n\":1}}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"paid isError=False"},
		{"role":"user","content":"b"},
		{"role":"assistant","tool_calls":[{"id":"c2","function":{"name":"execute-tool","arguments":"{\"server_name\":\"bank\",\"tool_name\":\"pay\",\"params\":{\"n\":2}}"}}]},
		{"role":"tool","tool_call_id":"c2","content":"Error: no isError=True"}]}]`,
}

func TestForms(t *testing.T) {
	for form, text := range forms {
		t.Run(form, func(t *testing.T) {
			runs, skipped := read(t, "dir/file.json", text)
			if len(runs) != 1 || len(skipped) != 0 {
				t.Fatalf("%d runs, skipped %v", len(runs), skipped)
			}
			r := runs[0]
			if r.Form != form || r.Name == "" || r.File != "dir/file.json" || r.Turns != 2 || r.Made != 2 || len(r.Calls) != 2 {
				t.Fatalf("%+v", r)
			}
			a, b := r.Calls[0], r.Calls[1]
			if a.Tool != "pay" || string(a.Arguments) != `{"n":1}` || a.Turn != 1 || a.Index != 0 || a.ID != "c1" || a.Failed || !strings.HasPrefix(a.Answer, "paid") {
				t.Errorf("first call %+v", a)
			}
			if b.Tool != "pay" || string(b.Arguments) != `{"n":2}` || b.Turn != 2 || b.Index != 1 || !b.Failed || !strings.HasPrefix(b.Answer, "Error: no") {
				t.Errorf("second call %+v", b)
			}
			if a.Batch == b.Batch {
				t.Errorf("both calls are of message %d", a.Batch)
			}
			if want := map[string]string{"claude-code": "bank", "livemcpbench": "bank"}[form]; a.Server != want {
				t.Errorf("the server is %q", a.Server)
			}
		})
	}
}

// TestUsersOwnCalls: tau2-bench's simulated users have tools too. Their calls are none of the agent's, and count as places.
func TestUsersOwnCalls(t *testing.T) {
	runs, skipped := read(t, "f", `{"simulations":[{"task_id":"1","trial":0,"messages":[
		{"role":"user","tool_calls":[{"id":"u","name":"toggle","arguments":{},"requestor":"user"}]},
		{"id":"u","role":"tool","content":"on","requestor":"user","error":false},
		{"role":"assistant","tool_calls":[{"id":"a","name":"pay","arguments":{},"requestor":"assistant"}]},
		{"id":"a","role":"tool","content":"paid","requestor":"assistant","error":false}]}]}`)
	if len(skipped) > 0 || len(runs) != 1 || len(runs[0].Calls) != 1 || runs[0].Calls[0].Index != 1 || runs[0].Made != 2 || runs[0].Calls[0].Answer != "paid" {
		t.Errorf("%+v, %v", runs, skipped)
	}
}

// TestMalformed: one bad run costs itself, or, where the text itself breaks, what follows it; it is named either way.
func TestMalformed(t *testing.T) {
	good := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"pay","arguments":"{}"}}]}]}`
	bad := func(arguments string) string {
		quoted, _ := json.Marshal(arguments)
		return fmt.Sprintf(`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"pay","arguments":%s}}]}]}`, quoted)
	}
	for _, c := range []struct {
		name, text string
		runs       int
		says       []string
		is         error
	}{
		{"arguments that are no object", "[" + good + "," + bad("[1]") + "," + good + "]", 2, []string{"run 2", "pay", "not a JSON object"}, recorded.ErrForm},
		{"arguments cut off", "[" + good + "," + bad(`{"a":`) + "," + good + "]", 2, []string{"run 2"}, recorded.ErrForm},
		{"arguments too deep", "[" + good + "," + bad(strings.Repeat(`{"a":`, 200)+"1"+strings.Repeat("}", 200)) + "]", 1, []string{"run 2", "deep"}, recorded.ErrLimit},
		{"arguments too large", "[" + good + "," + bad(`{"a":"`+strings.Repeat("x", recorded.MaxArguments)+`"}`) + "]", 1, []string{"run 2"}, recorded.ErrLimit},
		{"a call without a name", "[" + good + `,{"messages":[{"role":"assistant","tool_calls":[{}]}]}]`, 1, []string{"run 2", "name"}, recorded.ErrForm},
		{"another kind of run", "[" + good + `,{"messages":7}]`, 1, []string{"run 2"}, recorded.ErrForm},
		{"the file cut off", "[" + good + `,{"messages":[`, 1, []string{"run 2"}, nil},
		{"a run too large", "[" + good + `,{"messages":[{"role":"user","content":"` + strings.Repeat("x", recorded.MaxRun+1) + `"}]}]`, 1, []string{"run 2"}, recorded.ErrLimit},
		{"no runs at all", `[{"a":1}]`, 0, []string{"f.json"}, recorded.ErrForm},
		{"no JSON", `hello`, 0, []string{"f.json"}, recorded.ErrForm},
		{"empty", ``, 0, []string{"f.json"}, recorded.ErrForm},
		{"lines of something else", `{"id":1}` + "\n" + `{"id":2}`, 0, []string{"f.json"}, recorded.ErrForm},
		{"simulations that are no list", `{"simulations":{}}`, 0, []string{"simulations"}, recorded.ErrForm},
		{"lines of runs", good + "\n" + bad("7") + "\n" + good, 2, []string{"run 2"}, recorded.ErrForm},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs, skipped := read(t, "f.json", c.text)
			if len(runs) != c.runs || len(skipped) != 1 {
				t.Fatalf("%d runs, skipped %v", len(runs), skipped)
			}
			var m *recorded.Malformed
			if !errors.As(skipped[0], &m) || c.is != nil && !errors.Is(m, c.is) {
				t.Fatalf("%v", skipped[0])
			}
			for _, part := range c.says {
				if !strings.Contains(m.Error(), part) {
					t.Errorf("%q does not say %q", m.Error(), part)
				}
			}
			if len(m.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(m.Error()))
			}
		})
	}
}

func TestFilesAndLabels(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b/run.json", forms["agentdojo"])
	write("a.json", forms["tau-bench"])
	write("readme.md", "no run")
	write(recorded.LabelFile, `{"file":"a.json","run":"task3/trial1","calls":2,"writes":2,"repeats":[{"tool":"pay","relation":"exact","first_call":0,"second_call":1,"hand_label":"must_run_again"}]}
{"file":"b/run.json","run":"run.json","calls":7}
`)
	labels, err := recorded.FindLabels(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range recorded.Files(dir) {
		if err != nil {
			t.Fatal(err)
		}
		rel, _ := filepath.Rel(dir, r.File)
		l := labels.Of(r)
		if l == nil {
			t.Fatalf("%s has no label", rel)
		}
		got = append(got, fmt.Sprint(filepath.ToSlash(rel), " ", r.Form, " ", l.Calls, " ", len(l.Repeats)))
	}
	if want := []string{"a.json tau-bench 2 1", "b/run.json agentdojo 7 0"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	missing := 0
	for _, err := range recorded.Files(filepath.Join(dir, "nowhere")) {
		if err != nil {
			missing++
		}
	}
	if missing != 1 {
		t.Error("a path that is not there is no error")
	}
}

// TestConstantMemory reads 60 MB of runs and holds at most one.
func TestConstantMemory(t *testing.T) {
	run := fmt.Sprintf(`{"task_id":1,"trial":0,"traj":[{"role":"user","content":%q},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"pay","arguments":"{}"}}]}]}`, strings.Repeat("x", 20_000))
	const n = 3000
	r, w := io.Pipe()
	go func() {
		defer w.Close()
		fmt.Fprint(w, "[", run)
		for range n - 1 {
			fmt.Fprint(w, ",", run)
		}
		fmt.Fprint(w, "]")
	}()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, count, most := heap(), 0, uint64(0)
	for _, err := range recorded.Read("f", r) {
		if err != nil {
			t.Fatal(err)
		}
		if count++; count%1000 == 0 {
			most = max(most, heap())
		}
	}
	if count != n || most > before+8<<20 {
		t.Errorf("%d runs, %d KB more on the heap", count, (most-before)>>10)
	}
}

// Whoever stops at a run is not given those of the next path.
func TestStoppingEarly(t *testing.T) {
	var paths []string
	for range 2 {
		path := filepath.Join(t.TempDir(), "run.json")
		if err := os.WriteFile(path, []byte(`{"messages":[{"role":"user","content":"x"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	n := 0
	for range recorded.Files(paths...) {
		n++
		break
	}
	for range recorded.FS(os.DirFS(filepath.Dir(paths[0]))) {
		n++
		break
	}
	if n != 2 {
		t.Errorf("%d runs, want one of each", n)
	}
}
