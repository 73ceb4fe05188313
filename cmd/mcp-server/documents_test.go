package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/cmd/mcp-server/config"
)

// documents are what users read, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	out := map[string]string{}
	for _, path := range append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	}
	return out
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

func blocks(text, language string) (out []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language || strings.HasPrefix(m[1], language+" ") {
			out = append(out, m[2])
		}
	}
	return out
}

// Every example of a configuration is one that is taken.
func TestDocumentsConfigurations(t *testing.T) {
	seen := 0
	for path, text := range documents(t) {
		for _, block := range blocks(text, "yaml") {
			seen++
			if !strings.Contains(block, "mcpServers:") && !strings.Contains(block, "httpTools:") {
				block = "mcpServers: {books: {command: books}, shop: {command: shop}}\n" + block
			}
			environment := func(string) (string, bool) { return "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", true }
			if _, err := config.Parse(filepath.Base(path), []byte(block), environment); err != nil {
				t.Errorf("%v\n%s", err, block)
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d examples were found", seen)
	}
}

// Every command that a document shows, in a block or in a code span, is there, with its flags.
func TestDocumentsCommands(t *testing.T) {
	command := regexp.MustCompile("(?m)(?:`|^|[ /])mcp-server ([a-z][^`\n]*)")
	shown := regexp.MustCompile("`[^`\n]+`")
	seen := 0
	for path, text := range documents(t) {
		for _, code := range append(blocks(text, "sh"), shown.FindAllString(fence.ReplaceAllString(text, ""), -1)...) {
			for _, m := range command.FindAllStringSubmatch(code, -1) {
				line, _, _ := strings.Cut(strings.NewReplacer("&&", "#", "|", "#", " > ", "#").Replace(m[1]), "#")
				c, rest, err := (&program{}).command().Find(strings.Fields(line))
				if err == nil && c.HasSubCommands() {
					err = errors.New("there is no such command")
				}
				if err == nil {
					err = c.ParseFlags(rest)
				}
				if err != nil {
					t.Errorf("%s: mcp-server %s: %v", filepath.Base(path), line, err)
				}
				seen++
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d commands were found", seen)
	}
}

// A link leads to a file, and to a heading, that is there.
func TestDocumentsLinks(t *testing.T) {
	all := documents(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for path, text := range all {
		text = fence.ReplaceAllString(text, "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "" {
				continue
			}
			target := path
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(path), u.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", path, m[1], err)
			}
			if u.Fragment != "" && !slices.Contains(anchors(all[target]), u.Fragment) {
				t.Errorf("%s: %s: there is no such heading; there are %s", path, m[1], anchors(all[target]))
			}
		}
	}
}

func anchors(text string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		plain := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

// Every key of the configuration and of a policy is explained.
func TestDocumentsKeys(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("config", "toolguard.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		object
		Defs map[string]object `json:"definitions"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var page string
	for path, text := range documents(t) {
		if filepath.Base(path) == "configuration.md" {
			page = text
		}
	}
	keys := schema.Properties
	for key := range schema.Defs["policy"].Properties {
		keys[key] = nil
	}
	if len(keys) < 25 {
		t.Errorf("only %d keys were found", len(keys))
	}
	for key := range keys {
		if !regexp.MustCompile("(?m)^\\|[^|]*`"+key+"`").MatchString(page) && key != "$schema" {
			t.Errorf("docs/configuration.md does not say what %s is", key)
		}
	}
}
