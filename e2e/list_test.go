package e2e_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The real servers, each with a folder or a service of its own.
func realServers(t testing.TB) map[string]upstream {
	dir := t.TempDir()
	all := map[string]upstream{
		"filesystem": filesystem(t, dir),
		"memory":     memory(t, filepath.Join(dir, "memory.jsonl")),
		"everything": everything(t),
		"git":        gitServer(t, dir),
	}
	for name, build := range peers {
		all[name] = build(t).up
	}
	return all
}

// toolCounts are of the servers that are here for what they list.
var toolCounts = map[string]int{"gitlab": 118, "notion": 24}

// TestListsAreEqual: a tool is listed as the server lists it. Reads to the letter; a guarded tool without task
// support, and with an outputSchema that allows _toolguard besides. toolguard_operation is ours.
func TestListsAreEqual(t *testing.T) {
	t.Parallel()
	for name, up := range realServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := direct(t, up)
			want := c.list()
			c.end()
			if n := toolCounts[name]; n != 0 && len(want) != n {
				t.Errorf("the server lists %d tools, no longer %d", len(want), n)
			}
			if name == "git" {
				if size := len(encode(t, want)); size < 70_000 {
					t.Errorf("the git server lists %d bytes: no longer the large one", size)
				}
			}
			for _, era := range eras {
				t.Run(era, func(t *testing.T) {
					c := wrap(t, up).start(t, era)
					got := c.list()
					c.end()
					var rest []any
					ours := 0
					for _, tool := range got {
						if tool.(map[string]any)["name"] == "toolguard_operation" {
							ours++
							continue
						}
						rest = append(rest, tool)
					}
					if ours != 1 && !unguarded {
						t.Errorf("toolguard_operation is listed %d times", ours)
					}
					sorted := func(all []string) []string { return slices.Sorted(slices.Values(all)) }
					sameJSON(t, "the names", sorted(names(rest)), sorted(names(want)))
					t.Run("order", func(t *testing.T) { sameJSON(t, "the names in order", names(rest), names(want)) })
					for _, kind := range []string{"reads", "guarded"} {
						t.Run(kind, func(t *testing.T) {
							for _, tool := range want {
								tool := tool.(map[string]any)
								i := slices.Index(names(rest), tool["name"].(string))
								if annotations, _ := tool["annotations"].(map[string]any); i < 0 || annotations["readOnlyHint"] == true != (kind == "reads") {
									continue
								}
								if kind == "reads" {
									sameJSON(t, "the entries of "+tool["name"].(string), rest[i], tool)
								} else {
									sameTool(t, rest[i].(map[string]any), tool)
								}
							}
						})
					}
				})
			}
		})
	}
}

func names(tools []any) []string {
	var all []string
	for _, tool := range tools {
		all = append(all, tool.(map[string]any)["name"].(string))
	}
	return all
}

// sameTool compares the entries of a tool that is guarded.
func sameTool(t *testing.T, got, want map[string]any) {
	t.Helper()
	name := want["name"].(string)
	got, want = clone(t, got), clone(t, want)
	if execution, _ := got["execution"].(map[string]any); execution["taskSupport"] == nil || execution["taskSupport"] == "forbidden" {
		delete(got, "execution")
		delete(want, "execution")
	}
	if schema, ok := want["outputSchema"].(map[string]any); ok {
		// Each of these is a plain object schema, so all can be widened.
		listed, _ := got["outputSchema"].(map[string]any)
		properties, _ := listed["properties"].(map[string]any)
		if _, ok := properties["_toolguard"]; !ok {
			t.Errorf("the outputSchema of %s does not allow _toolguard: %.300s", name, encode(t, listed))
		}
		delete(properties, "_toolguard")
		if required, ok := listed["required"].([]any); ok {
			for _, member := range required {
				if member == "_toolguard" {
					t.Errorf("%s requires _toolguard: a fresh answer has none", name)
				}
			}
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s allows anything: no longer the strict one", name)
		}
	}
	sameJSON(t, "the entries of "+name, got, want)
}

func clone(t *testing.T, v map[string]any) map[string]any {
	return decode(t, encode(t, v)).(map[string]any)
}

// TestInstructionsAreForwarded: what the server tells the model at connect, the model reads, whatever the guard adds.
func TestInstructionsAreForwarded(t *testing.T) {
	t.Parallel()
	up := everything(t)
	c := launch(t, legacy, up.argv, up.env)
	want, _ := c.hello()["instructions"].(string)
	c.end()
	if want == "" {
		t.Fatal("the server has no instructions any more")
	}
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			c := launch(t, era, wrap(t, up).command(t), nil)
			if got, _ := c.hello()["instructions"].(string); !strings.HasPrefix(got, want) {
				t.Errorf("instructions are %.200q, want to begin with %.200q", got, want)
			}
			c.end()
		})
	}
}

// TestChangedListIsTold: a tool that the server no longer has is no longer listed, and the client is told to look.
func TestChangedListIsTold(t *testing.T) {
	t.Parallel()
	tp := tapped(t, everything(t))
	c := wrap(t, tp.up).start(t, legacy)
	before := names(c.list())
	told := len(c.noted("notifications/tools/list_changed"))
	tp.update(func() {
		tp.tools = func(tools []any) []any {
			return slices.DeleteFunc(tools, func(tool any) bool { return tool.(map[string]any)["name"] == "echo" })
		}
	})
	tp.inject(map[string]any{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
	c.until(t, "the changed list is told", func() bool {
		n := 0
		for _, note := range c.notes {
			if note.Method == "notifications/tools/list_changed" {
				n++
			}
		}
		return n > told
	})
	sameJSON(t, "the names after echo went", names(c.list()), slices.DeleteFunc(before, func(name string) bool { return name == "echo" }))
	c.end()
}

// TestLogLinesAreForwarded: what the server logs over MCP reaches a client that asked for it.
func TestLogLinesAreForwarded(t *testing.T) {
	t.Parallel()
	tp := tapped(t, everything(t))
	c := wrap(t, tp.up).start(t, legacy)
	c.request("logging/setLevel", map[string]any{"level": "debug"})
	c.call("toggle-simulated-logging", args{}) // logs once at once, at a random level
	c.waitNote("the server's log line arrives", func(n note) bool {
		data, ok := n.Params["data"].(string)
		return n.Method == "notifications/message" && ok && strings.Contains(strings.ToLower(data), "message")
	})
	c.end()
	tp.gone() // this server does not end by itself when its input does, once it logs
}

// TestReadsPassUntouched: a read is the server's own answer, every time, and no record of ours.
func TestReadsPassUntouched(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "a.txt"), "one <two> & \u2028 \U0001F600\n")
			tp := tapped(t, filesystem(t, dir))
			c := wrap(t, tp.up).start(t, era)
			for _, call := range []struct {
				name string
				args args
			}{
				{"read_text_file", args{"path": filepath.Join(dir, "a.txt")}},
				{"list_directory", args{"path": dir}},
				{"directory_tree", args{"path": dir}},
				{"list_allowed_directories", args{}},
				{"read_text_file", args{"path": filepath.Join(dir, "none.txt")}}, // isError
			} {
				n := tp.executions(call.name)
				for range 2 {
					got := c.call(call.name, call.args)
					if got.verdict != nil {
						t.Errorf("%s, a read, has the verdict %s", call.name, encode(t, got.verdict))
					}
					sameJSON(t, call.name+": guarded and own", got.own(), tp.last(call.name).response["result"])
				}
				tp.executed(call.name, n+2)
			}
			c.end()
		})
	}
}

// odd content: images, links, embedded resources, annotations, structured content, error texts.
var oddCalls = []struct {
	name string
	args args
}{
	{"get-tiny-image", args{}},
	{"get-resource-links", args{"count": 4}},
	{"get-resource-reference", args{"resourceType": "Blob", "resourceId": 2}},
	{"get-resource-reference", args{"resourceType": "Text", "resourceId": 1}},
	{"get-annotated-message", args{"messageType": "success", "includeImage": true}},
	{"get-structured-content", args{"location": "Chicago"}},
	{"get-sum", args{"a": json.Number("0.1"), "b": json.Number("9007199254740991")}},
	{"echo", args{"message": "<b>&amp;\u2028\u0000 \U0001F600 \"\\"}},
	{"gzip-file-as-resource", args{"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"}},
	{"gzip-file-as-resource", args{"name": "y.gz", "data": "data:text/plain,hello", "outputType": "resourceLink"}},
}

// TestOddContentIsEqual: whatever a tool answers is the client's, member for member, passed through and guarded;
// and a replay shows it again.
func TestOddContentIsEqual(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run("as annotated/"+era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			c := wrap(t, tp.up).start(t, era)
			for _, call := range oddCalls {
				got := c.call(call.name, call.args)
				sameJSON(t, call.name+": guarded and own", got.own(), tp.last(call.name).response["result"])
			}
			c.end()
		})
		t.Run("as writes/"+era, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			c := serve(t, tp.up, "tools: {everything/*: {effect: write}}").start(t, era)
			for _, call := range oddCalls {
				n := tp.executions(call.name)
				first := c.call(call.name, call.args).is("fresh", "")
				sameJSON(t, call.name+": guarded and own", first.own(), tp.last(call.name).response["result"])
				c.call(call.name, call.args).repeats(first)
				tp.executed(call.name, n+1)
			}
			c.end()
		})
	}
}
