package evals

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// What conditions over an answer name.
var (
	jsonPath   = regexp.MustCompile(`result\.json((?:\.\??[A-Za-z_]\w*|\[\??(?:"[^"]*"|'[^']*'|\d+)\])*)(\s*\()?`)
	pathToken  = regexp.MustCompile(`\.\??([A-Za-z_]\w*)|\[\??(?:"([^"]*)"|'([^']*)'|(\d+))\]`)
	eachElem   = regexp.MustCompile(`\.(?:exists|exists_one|all|filter|map)\(\s*([A-Za-z_]\w*)\s*,`)
	textLit    = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'`)
	numberLit  = regexp.MustCompile(`\b\d+(?:\.\d+)?\b`)
	maxForms   = 4000
	maxChoices = 12
)

// formsOf makes up answers in the words of a lookup's conditions: every member of the answer that they name, with what they
// compare it to, what is among the arguments, and what else may be there. The guard's own reading of the conditions then tells which of them says what.
func formsOf(args map[string]any, conditions ...*registry.Expression) []registry.Answer {
	var source strings.Builder
	for _, x := range conditions {
		if x != nil {
			source.WriteString(x.String() + "\n")
		}
	}
	text := source.String()
	leaves := []any{json.Number("1"), json.Number("0"), true, false, "", "x", nil}
	texts := []string{"{}", ""}
	statuses := []int{0}
	for _, name := range sortedKeys(args) {
		if len(leaves) < maxChoices {
			leaves = append(leaves, args[name])
		}
	}
	for _, m := range textLit.FindAllStringSubmatch(text, maxChoices) {
		leaves, texts = append(leaves, m[1]+m[2]), append(texts, m[1]+m[2])
	}
	for _, n := range numberLit.FindAllString(text, maxChoices) {
		leaves = append(leaves, json.Number(n))
		if code, err := strconv.Atoi(n); err == nil && strings.Contains(text, "result.status") && code >= 100 && code < 600 {
			statuses = append(statuses, code)
		}
	}
	members := map[string]bool{}
	for _, m := range eachElem.FindAllStringSubmatch(text, maxChoices) {
		for _, member := range regexp.MustCompile(`\b`+m[1]+`\.\??([A-Za-z_]\w*)`).FindAllStringSubmatch(text, maxChoices) {
			members[member[1]] = true
		}
	}
	lists := elements(sortedKeys(members), leaves)
	leaves = append(append([]any{[]any{}}, lists...), append(leaves, map[string]any{})...)
	bodies := []any{nil, map[string]any{}}
	for _, path := range pathsOf(text) {
		var more []any
		for _, body := range bodies {
			for _, leaf := range leaves {
				more = append(more, put(body, path, leaf))
			}
			if len(more) > maxForms {
				break
			}
		}
		bodies = append(bodies, more...)
	}
	var forms []registry.Answer
	for _, isError := range []bool{false, true} {
		for _, status := range statuses {
			for _, body := range bodies {
				forms = append(forms, form(body, isError, status))
			}
			for _, words := range texts {
				a := Text(words, isError)
				a.Status = status
				forms = append(forms, a)
			}
			if len(forms) > maxForms {
				return forms
			}
		}
	}
	return forms
}

// elements are lists of one object that has some members, each of which is one of the leaves.
func elements(members []string, leaves []any) []any {
	const most = 400
	objects := []any{map[string]any{}}
	for _, name := range members {
		var more []any
		for _, object := range objects {
			for _, leaf := range leaves {
				if len(more) < most {
					more = append(more, put(object, []string{name}, leaf))
				}
			}
		}
		objects = more
	}
	lists := make([]any, len(objects))
	for i, object := range objects {
		lists[i] = []any{object}
	}
	return lists
}

func form(body any, isError bool, status int) registry.Answer {
	text := string(keyderive.AppendCanonical(nil, body))
	a := Text(text, isError)
	if _, ok := body.(map[string]any); ok {
		a, _ = registry.NewAnswer(json.RawMessage(text), isError, text)
	}
	a.Status = status
	return a
}

// pathsOf lists the ways into result.json that a text names, the shortest first.
func pathsOf(text string) [][]string {
	var paths [][]string
	for _, m := range jsonPath.FindAllStringSubmatch(text, maxChoices) {
		var path []string
		for _, token := range pathToken.FindAllStringSubmatch(m[1], -1) {
			path = append(path, strings.Join(token[1:], ""))
		}
		if m[2] != "" && len(path) > 0 { // the last is a method: size(), exists()
			path = path[:len(path)-1]
		}
		if !slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, path) }) {
			paths = append(paths, path)
		}
	}
	slices.SortStableFunc(paths, func(a, b []string) int { return len(a) - len(b) })
	return paths
}

// put returns a value with another at a path in it. Numbers lead into lists.
func put(v any, path []string, x any) any {
	if len(path) == 0 {
		return x
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := v.([]any)
		list = slices.Clone(list)
		for len(list) <= i && i < maxChoices {
			list = append(list, map[string]any{})
		}
		if i < len(list) {
			list[i] = put(list[i], path[1:], x)
		}
		return list
	}
	object := map[string]any{}
	if old, ok := v.(map[string]any); ok {
		maps.Copy(object, old)
	}
	object[path[0]] = put(object[path[0]], path[1:], x)
	return object
}
