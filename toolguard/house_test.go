package toolguard_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// house says what each package of the module may import of the module. A new arrow is a decision, not an accident.
var house = map[string][]string{
	"keyderive":             nil,
	"registry":              {"keyderive"},
	"toolguard":             {"keyderive", "registry"},
	"toolguard/storetest":   {"keyderive", "registry", "toolguard"},
	"people":                {"toolguard"},
	"api":                   {"keyderive", "people", "toolguard"},
	"console":               {"keyderive", "people", "toolguard"},
	"codec":                 nil,
	"badgerstore":           {"codec", "toolguard"},
	"sharedstore":           {"codec", "toolguard"},
	"notify":                {"toolguard"},
	"telemetry":             {"registry", "toolguard"},
	"oncehttp":              {"registry"},
	"adapters/eventguard":   {"keyderive", "toolguard"},
	"adapters/goguard":      {"keyderive", "registry", "toolguard"},
	"adapters/mcpguard":     {"keyderive", "oncehttp", "registry", "toolguard"},
	"adapters/openaiguard":  {"keyderive", "registry", "toolguard"},
	"adapters/restguard":    {"keyderive", "oncehttp", "registry", "toolguard"},
	"cmd/mcp-server/config": {"adapters/mcpguard", "adapters/restguard", "keyderive", "notify", "registry"},
	"cmd/mcp-server/drill":  {"badgerstore", "keyderive", "registry", "toolguard"},
	"cmd/mcp-server":        {"adapters/mcpguard", "api", "badgerstore", "cmd/mcp-server/config", "cmd/mcp-server/drill", "console", "keyderive", "notify", "people", "registry", "sharedstore", "telemetry", "toolguard"},
	"evals":                 {"evals/recorded", "keyderive", "registry", "toolguard", "toolguard/storetest"},
	"evals/cmd/chaos":       {"cmd/mcp-server/config", "evals", "evals/recorded", "keyderive"},
	"evals/recorded":        nil,
	"e2e":                   nil,
}

func TestHouse(t *testing.T) {
	const module = "toolguard.dev/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		name := strings.TrimPrefix(words[0], module)
		seen[name] = true
		allowed, known := house[name]
		if !known {
			t.Errorf("%s is in no place of the house", name)
			continue
		}
		for _, imported := range words[1:] {
			if inner, ours := strings.CutPrefix(imported, module); ours && !slices.Contains(allowed, inner) {
				t.Errorf("%s imports %s, which the house does not allow", name, inner)
			}
		}
	}
	for name := range house {
		if !seen[name] {
			t.Errorf("%s is in the table and not in the module", name)
		}
	}
}
