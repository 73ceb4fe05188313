package recorded_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"toolguard.dev/evals/recorded"
)

// Each reader has a target of its own, so that what is found for one form is kept for it.
func FuzzOpenAI(f *testing.F)       { fuzz(f, "openai") }
func FuzzAnthropic(f *testing.F)    { fuzz(f, "anthropic") }
func FuzzClaudeCode(f *testing.F)   { fuzz(f, "claude-code") }
func FuzzTauBench(f *testing.F)     { fuzz(f, "tau-bench") }
func FuzzTau2Bench(f *testing.F)    { fuzz(f, "tau2-bench") }
func FuzzAgentDojo(f *testing.F)    { fuzz(f, "agentdojo") }
func FuzzLiveMCPBench(f *testing.F) { fuzz(f, "livemcpbench") }

// fuzz reads what has become of a file of a form: it ends, and what comes out keeps the limits.
func fuzz(f *testing.F, form string) {
	f.Add(forms[form])
	f.Add(strings.ReplaceAll(forms[form], `"c2"`, `"c1"`))
	f.Add(forms[form] + forms[form])
	f.Fuzz(func(t *testing.T, text string) {
		for r, err := range recorded.Read("f.json", strings.NewReader(text)) {
			if err != nil {
				continue
			}
			if r.Form == "" || r.Name == "" || len(r.Calls) > recorded.MaxCalls || r.Made < len(r.Calls) {
				t.Fatalf("%+v", r)
			}
			for i, c := range r.Calls {
				if c.Tool == "" || len(c.Arguments) > recorded.MaxArguments || len(c.Answer) > recorded.MaxAnswer || c.Index < i {
					t.Fatalf("call %d: %+v", i, c)
				}
				var o map[string]json.RawMessage
				if err := json.Unmarshal(c.Arguments, &o); err != nil {
					t.Fatalf("call %d: arguments %q: %v", i, c.Arguments, err)
				}
				if utf8.ValidString(text) && !utf8.ValidString(c.Answer) {
					t.Fatalf("call %d: the answer was cut within a character", i)
				}
			}
		}
	})
}
