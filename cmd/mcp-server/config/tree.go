package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a configuration file may be at most: far above any real one, far below what would stall or blow up a reader.
const (
	maxBytes   = 1 << 20
	maxTokens  = 60_000
	maxDepth   = 32
	maxAnchors = 64
	maxAliases = 256
	maxNodes   = 100_000 // with every alias written out
)

type kind int

const (
	null kind = iota
	text
	number
	boolean
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a mapping"}[k]
}

// node is a YAML value with the line where it stands.
type node struct {
	kind    kind
	line    int
	text    string // of scalars: the string, or how the value is spelled
	items   []*node
	members []member // in the order of the file, each name once
	size    int      // nodes in it, aliases written out
}

type member struct {
	name  string
	line  int
	value *node
}

// json writes a value as JSON.
func (n *node) json() json.RawMessage {
	switch n.kind {
	case null:
		return json.RawMessage("null")
	case number:
		if json.Valid([]byte(n.text)) {
			return json.RawMessage(n.text)
		}
	case boolean:
		return json.RawMessage(strings.ToLower(n.text))
	case list:
		b := []byte{'['}
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, item.json()...)
		}
		return append(b, ']')
	case mapping:
		b := []byte{'{'}
		for i, m := range n.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, quoted(m.name)...), ':'), m.value.json()...)
		}
		return append(b, '}')
	}
	return quoted(n.text)
}

func quoted(s string) json.RawMessage {
	text, _ := json.Marshal(s) // a string: cannot fail
	return text
}

func (n *node) scalar() bool { return n.kind == text || n.kind == number || n.kind == boolean }

func (n *node) member(name string) *member {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// parseTree reads one YAML document. Faults in its form go to report; nil means that nothing can be read.
func parseTree(data []byte, report func(line int, path, what string)) (root *node) {
	if len(data) > maxBytes {
		report(1, "", fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), maxBytes))
		return nil
	}
	if !utf8.Valid(data) {
		report(1, "", "the file is not UTF-8")
		return nil
	}
	defer func() {
		if p := recover(); p != nil { // the parser is another's: its slips must not end the program
			report(1, "", oneLine(fmt.Sprintf("cannot be read as YAML: %v", p)))
			root = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if line, what := excess(tokens); what != "" {
		report(line, "", what)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, what := 1, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok {
			what = e.GetMessage()
			if t := e.GetToken(); t != nil && t.Position != nil {
				line = max(1, t.Position.Line)
			}
		}
		if at, tab := indentingTab(data, line); tab {
			line, what = at, "a tab: indent with spaces"
		}
		report(line, "", "no YAML: "+oneLine(what))
		return nil
	}
	t := tree{report: report, anchors: map[string]*node{}}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentGroupType {
			continue
		}
		if root != nil {
			report(lineOf(doc.Body), "", "a second document; only one is read")
			break
		}
		root = t.node(doc.Body, "", 0)
	}
	if t.failed {
		return nil
	}
	return root
}

// indentingTab tells whether a tab indents the line, or the one behind it; parsers differ in which of them they name.
func indentingTab(data []byte, line int) (int, bool) {
	lines := strings.Split(string(data), "\n")
	for n := line; n <= min(line+1, len(lines)); n++ {
		text := lines[n-1]
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if strings.Contains(indent, "\t") {
			return n, true
		}
	}
	return 0, false
}

// excess tells, before anything is parsed, whether the text is more than a configuration can be.
func excess(tokens token.Tokens) (line int, what string) {
	if len(tokens) > maxTokens {
		return tokens[maxTokens].Position.Line, fmt.Sprintf("more than %d words and signs; that is no configuration", maxTokens)
	}
	flow, block, blockLine, anchors, aliases := 0, 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != blockLine {
			block, blockLine = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType:
			block++
		case token.AnchorType:
			anchors++
		case token.AliasType:
			aliases++
		}
		switch {
		case flow > maxDepth || block > maxDepth:
			return t.Position.Line, fmt.Sprintf("nested deeper than %d levels", maxDepth)
		case anchors > maxAnchors:
			return t.Position.Line, fmt.Sprintf("more than %d anchors", maxAnchors)
		case aliases > maxAliases:
			return t.Position.Line, fmt.Sprintf("more than %d aliases", maxAliases)
		}
	}
	return 0, ""
}

// tree makes nodes of the parser's.
type tree struct {
	report  func(line int, path, what string)
	anchors map[string]*node
	failed  bool
}

// fail reports what makes the whole tree unusable.
func (t *tree) fail(n ast.Node, path, what string) *node {
	if !t.failed {
		t.report(lineOf(n), path, what)
	}
	t.failed = true
	return &node{line: lineOf(n), size: 1}
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 1
	}
	return max(1, n.GetToken().Position.Line)
}

func (t *tree) node(n ast.Node, path string, depth int) *node {
	if depth > maxDepth {
		return t.fail(n, path, fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	out := &node{line: lineOf(n), size: 1}
	switch n := n.(type) {
	case nil, *ast.NullNode:
	case *ast.StringNode:
		out.kind, out.text = text, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = text, n.Value.Value
	case *ast.BoolNode:
		out.kind, out.text = boolean, n.GetToken().Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = number, n.GetToken().Value
	case *ast.SequenceNode:
		out.kind = list
		for i, item := range n.Values {
			v := t.node(item, index(path, i), depth+1)
			out.items = append(out.items, v)
			out.size += v.size
		}
	case *ast.MappingNode:
		t.mapping(out, n.Values, path, depth)
	case *ast.MappingValueNode:
		t.mapping(out, []*ast.MappingValueNode{n}, path, depth)
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		out = t.node(n.Value, path, depth)
		t.anchors[name] = out
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := t.anchors[name]
		if !ok {
			return t.fail(n, path, fmt.Sprintf("alias *%s: no anchor &%s stands before it", name, name))
		}
		out = target
	case *ast.TagNode:
		return t.fail(n, path, fmt.Sprintf("the tag %s is not understood; leave tags out", n.GetToken().Value))
	default:
		return t.fail(n, path, "not understood here")
	}
	if out.size > maxNodes {
		return t.fail(n, path, fmt.Sprintf("more than %d values once the aliases are written out", maxNodes))
	}
	return out
}

func (t *tree) mapping(out *node, values []*ast.MappingValueNode, path string, depth int) {
	out.kind = mapping
	if len(values) > 0 {
		out.line = lineOf(values[0].Key)
	}
	var merged []*node
	for _, v := range values {
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			merged = append(merged, t.node(v.Value, join(path, "<<"), depth+1))
			continue
		}
		key := t.node(v.Key, path, depth+1)
		if !key.scalar() && key.kind != null {
			t.fail(v.Key, path, "a key must be plain text")
			return
		}
		name := key.text
		if key.kind == null {
			name = v.Key.GetToken().Value
		}
		value := t.node(v.Value, join(path, name), depth+1)
		out.size += value.size + 1
		if first := out.member(name); first != nil {
			t.report(key.line, join(path, name), fmt.Sprintf("given twice, first in line %d", first.line))
			continue
		}
		out.members = append(out.members, member{name, key.line, value})
	}
	for _, m := range merged {
		t.merge(out, m, path)
	}
}

// merge adds the members of from, a mapping or a list of mappings, that n does not have (YAML's "<<").
func (t *tree) merge(n, from *node, path string) {
	switch from.kind {
	case mapping:
		for _, m := range from.members {
			if n.member(m.name) == nil {
				n.members = append(n.members, m)
				n.size += m.value.size + 1
			}
		}
	case list:
		for _, item := range from.items {
			t.merge(n, item, path)
		}
	default:
		t.report(from.line, join(path, "<<"), "must be a mapping, or a list of mappings")
	}
}
