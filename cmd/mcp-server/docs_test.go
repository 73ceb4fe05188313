package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// commandInDocs is a command of ours, in a code span or a code block.
var commandInDocs = regexp.MustCompile("(?m)(?:`|^|&& )mcp-server ([^`\n]+)")

// The commands that docs/controls.md names are there, with their flags.
func TestControlsNameCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/controls.md")
	if err != nil {
		t.Fatal(err)
	}
	found := commandInDocs.FindAllStringSubmatch(string(text), -1)
	if len(found) < 25 {
		t.Errorf("%d commands", len(found))
	}
	for _, m := range found {
		line, _, _ := strings.Cut(strings.NewReplacer("&&", "#", ">", "#").Replace(m[1]), "#")
		words := strings.Fields(line)
		c, rest, err := (&program{}).command().Find(words)
		if err != nil || !c.Runnable() {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
