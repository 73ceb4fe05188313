package openaiguard

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sashabaranov/go-openai"

	"toolguard.dev/keyderive"
	"toolguard.dev/toolguard"
)

// Options are the options of [New]. The zero value is good.
type Options struct {
	// Needs names facts that must come with every call, in its context: tenant, workflow, source_event, request, run
	// or step. A call without one is not sent.
	Needs []string
}

// Tools are registered tools as a model sees them. They are safe for concurrent use.
type Tools struct {
	guard  *toolguard.Guard
	needs  []string
	list   []openai.Tool
	byName map[string]*toolguard.Tool
}

// unfit are the characters that a function's name may not have.
var unfit = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// maxName is how long a function's name may be.
const maxName = 64

// New offers tools that are registered with g. Tools of one server keep their names, those of several are called
// server__tool; characters that the API does not take become _. Two tools of one name are an error, and so is a name
// that is too long.
func New(g *toolguard.Guard, o *Options, tools ...*toolguard.Tool) (*Tools, error) {
	t := &Tools{guard: g, byName: map[string]*toolguard.Tool{}}
	if o != nil {
		t.needs = slices.Clone(o.Needs)
	}
	for _, fact := range t.needs {
		if _, ok := (keyderive.Facts{}).Get(fact); !ok {
			return nil, fmt.Errorf("openaiguard: there is no fact %q that calls could need", fact)
		}
	}
	servers := map[string]bool{}
	for _, tool := range tools {
		if tool == nil {
			return nil, errors.New("openaiguard: a tool is nil")
		}
		servers[tool.Server] = true
	}
	for _, tool := range tools {
		name := tool.Name
		if len(servers) > 1 {
			name = tool.Server + "__" + name
		}
		name = unfit.ReplaceAllString(name, "_")
		if other := t.byName[name]; other != nil {
			return nil, fmt.Errorf("openaiguard: %s and %s would both be called %s", other.Action(), tool.Action(), name)
		}
		if len(name) > maxName {
			return nil, fmt.Errorf("openaiguard: the name %s is longer than %d characters", name, maxName)
		}
		t.byName[name] = tool
		t.list = append(t.list, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: name, Description: tool.Description, Parameters: tool.ListedInput(),
		}})
	}
	return t, nil
}

// List is what goes into a request's Tools. Each call returns a new slice.
func (t *Tools) List() []openai.Tool { return slices.Clone(t.list) }

// unknown says that there is no tool of a name, and which there are.
func (t *Tools) unknown(name string) string {
	const shown = 40
	names := slices.Sorted(maps.Keys(t.byName))
	if len(names) > shown {
		names = append(names[:shown], "…")
	}
	if len(names) == 0 {
		return fmt.Sprintf("NOT SENT. There is no tool %.*q, nor any other.", maxName, name)
	}
	return fmt.Sprintf("NOT SENT. There is no tool %.*q. These are the tools: %s.", maxName, name, strings.Join(names, ", "))
}
