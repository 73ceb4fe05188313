package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// clientFile is a file in which an MCP client keeps its servers.
type clientFile struct {
	path    string
	member  string // what the client calls them: mcpServers, or servers
	entries []clientEntry
}

// clientEntry is one server as the client's file has it.
type clientEntry struct {
	name    string
	members map[string]json.RawMessage
}

func (e clientEntry) text(member string) string {
	var s string
	_ = json.Unmarshal(e.members[member], &s) // another type counts as absent
	return s
}

// older tells whether a server is reached over HTTP+SSE, the transport before streamable HTTP.
func (e clientEntry) older() bool {
	return e.text("command") == "" && (e.text("type") == "sse" || e.text("transport") == "sse")
}

// ours tells whether an entry starts toolguard already.
func (e clientEntry) ours() bool {
	var args []string
	_ = json.Unmarshal(e.members["args"], &args)
	base := strings.TrimSuffix(filepath.Base(e.text("command")), ".exe")
	return (base == "mcp-server" || slices.Contains(args, "./cmd/mcp-server")) &&
		(slices.Contains(args, "serve") || slices.Contains(args, "wrap"))
}

// maxClientFile bounds a client's file; some keep much else in it.
const maxClientFile = 64 << 20

// readClientFile reads the servers of Claude Desktop, Claude Code, Cursor, Windsurf, VS Code and others.
func readClientFile(path string) (*clientFile, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxClientFile {
		err = fmt.Errorf("%s: has %d bytes; no client's file is that large", path, info.Size())
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(path) == ".toml" {
		return nil, fmt.Errorf("%s: is TOML, which is not read; write its servers as {\"mcpServers\": {NAME: {\"command\": …, \"args\": […]}}} in a JSON file", path)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(plainJSON(data), &whole); err != nil {
		return nil, fmt.Errorf("%s: is no JSON object: %w", path, place(plainJSON(data), err))
	}
	folder, err := workspaceOf(path)
	if err != nil {
		return nil, err
	}
	known := editorVariables(folder)
	for name, raw := range whole {
		whole[name] = json.RawMessage(known.Replace(string(raw)))
	}
	for _, member := range []string{"mcpServers", "servers"} {
		if f, ok, err := readEntries(path, member, whole[member]); ok || err != nil {
			return f, err
		}
	}
	var nested map[string]json.RawMessage // VS Code's settings.json
	if json.Unmarshal(whole["mcp"], &nested) == nil {
		if f, ok, err := readEntries(path, "servers", nested["servers"]); ok || err != nil {
			return f, err
		}
	}
	return nil, fmt.Errorf("%s: has no mcpServers (and no servers)", path)
}

// workspaceOf is the folder that an editor would have open: that of the file, or the one above .vscode or .cursor.
func workspaceOf(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(abs)
	if base := filepath.Base(dir); base == ".vscode" || base == ".cursor" {
		dir = filepath.Dir(dir)
	}
	return dir, nil
}

// editorVariables replaces what VS Code and Cursor put in by themselves, within JSON.
func editorVariables(workspace string) *strings.Replacer {
	inside := func(s string) string { s = quoted(s); return s[1 : len(s)-1] }
	words := []string{"${workspaceFolder}", inside(workspace), "${workspaceFolderBasename}", inside(filepath.Base(workspace)),
		"${pathSeparator}", inside(string(filepath.Separator)), "${/}", inside(string(filepath.Separator))}
	if home, err := os.UserHomeDir(); err == nil {
		words = append(words, "${userHome}", inside(home))
	}
	return strings.NewReplacer(words...)
}

func readEntries(path, member string, raw json.RawMessage) (*clientFile, bool, error) {
	if raw == nil {
		return nil, false, nil
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, false, fmt.Errorf("%s: %s is no object", path, member)
	}
	f := &clientFile{path: path, member: member}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := clientEntry{name: name}
		if err := json.Unmarshal(entries[name], &e.members); err != nil {
			return nil, false, fmt.Errorf("%s: %s.%s is no object", path, member, name)
		}
		f.entries = append(f.entries, e)
	}
	if len(f.entries) == 0 {
		return nil, false, fmt.Errorf("%s: %s is empty", path, member)
	}
	return f, true, nil
}

// place adds the line to a JSON error.
func place(data []byte, err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:min(int(e.Offset), len(data))], []byte("\n")), err)
	}
	return err
}

// plainJSON takes out what editors' JSON has beyond JSON: a byte order mark, comments, and commas before a closing
// bracket. Lines stay where they are.
func plainJSON(data []byte) []byte {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	out := make([]byte, 0, len(data))
	comma := -1 // where the last comma stands, if nothing but white space came after it
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case c == '"':
			end := i + 1
			for end < len(data) && data[end] != '"' {
				if data[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(data)-1)
			out = append(out, data[i:end+1]...)
			i, comma = end, -1
			continue
		case bytes.HasPrefix(data[i:], []byte("//")):
			for i+1 < len(data) && data[i+1] != '\n' {
				i++
			}
			continue
		case bytes.HasPrefix(data[i:], []byte("/*")):
			end := bytes.Index(data[i+2:], []byte("*/"))
			if end < 0 {
				return out
			}
			out = append(out, bytes.Repeat([]byte("\n"), bytes.Count(data[i:i+2+end], []byte("\n")))...)
			i += end + 3
			continue
		case c == ',':
			comma = len(out)
		case (c == '}' || c == ']') && comma >= 0:
			out[comma] = ' '
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
		out = append(out, c)
	}
	return out
}

// clientPlaces are the files in which clients keep their servers, project files first.
func clientPlaces() []string {
	places := []string{".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"}
	home, err := os.UserHomeDir()
	if err != nil {
		return places
	}
	desktop := filepath.Join(home, ".config", "Claude")
	switch runtime.GOOS {
	case "darwin":
		desktop = filepath.Join(home, "Library", "Application Support", "Claude")
	case "windows":
		if dir, err := os.UserConfigDir(); err == nil {
			desktop = filepath.Join(dir, "Claude")
		}
	}
	return append(places, filepath.Join(desktop, "claude_desktop_config.json"), filepath.Join(home, ".claude.json"),
		filepath.Join(home, ".cursor", "mcp.json"), filepath.Join(home, ".codeium", "windsurf", "mcp_config.json"))
}

// findClientFile is the one client's file with servers that there is.
func findClientFile(places []string) (*clientFile, error) {
	var found []*clientFile
	var paths []string
	for _, path := range places {
		if f, err := readClientFile(path); err == nil {
			found = append(found, f)
			paths = append(paths, path)
		}
	}
	switch len(found) {
	case 0:
		return nil, usage{fmt.Errorf("no client's file with MCP servers was found; tried %s; name one with --from", strings.Join(places, ", "))}
	case 1:
		return found[0], nil
	}
	return nil, usage{fmt.Errorf("several clients have MCP servers: %s; choose one with --from", strings.Join(paths, ", "))}
}
