package e2e_test

import (
	"maps"
	"testing"
)

// passedRequests are what is passed on to the server as it is.
var passedRequests = []struct {
	method string
	params args
}{
	{"resources/list", args{}},
	{"resources/templates/list", args{}},
	{"resources/read", args{"uri": "demo://resource/static/document/features.md"}},
	{"prompts/list", args{}},
	{"prompts/get", args{"name": "args-prompt", "arguments": args{"city": "Oslo", "state": "<&>"}}},
	{"completion/complete", args{"ref": args{"type": "ref/prompt", "name": "completable-prompt"}, "argument": args{"name": "department", "value": "S"}}},
	{"completion/complete", args{"ref": args{"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "argument": args{"name": "resourceId", "value": "7"}}},
}

// TestPassedOn: resources, prompts and completions are the server's own, member for member, also where it is reached by
// url; and its news of a subscribed resource arrives.
func TestPassedOn(t *testing.T) {
	t.Parallel()
	own := direct(t, everything(t))
	var want []any
	for _, q := range passedRequests {
		want = append(want, decode(t, own.request(q.method, maps.Clone(q.params))))
	}
	own.end()
	for _, era := range eras {
		for how, start := range map[string]func(t *testing.T) *client{
			"stdio": func(t *testing.T) *client { return wrap(t, everything(t)).start(t, era) },
			"url":   func(t *testing.T) *client { return everythingByURL(t).guarded("").start(t, era) },
		} {
			t.Run(how+"/"+era, func(t *testing.T) {
				t.Parallel()
				c := start(t)
				for i, q := range passedRequests {
					raw := c.request(q.method, maps.Clone(q.params))
					got := decode(t, raw).(map[string]any)
					if era == modern {
						for _, member := range []string{"resultType", "_meta"} {
							if got[member] == nil {
								t.Errorf("%s: no %s in %.200s", q.method, member, raw)
							}
							delete(got, member)
						}
						delete(got, "ttlMs")
						delete(got, "cacheScope")
					}
					sameJSON(t, q.method, got, want[i])
				}
				if era == legacy {
					c.request("resources/subscribe", args{"uri": "demo://resource/dynamic/text/1"})
					c.call("toggle-subscriber-updates", args{})
					c.waitNote("the change of a subscribed resource is told", func(n note) bool {
						return n.Method == "notifications/resources/updated" && n.Params["uri"] == "demo://resource/dynamic/text/1"
					})
				}
				if a := c.answer(c.send("prompts/get", args{"name": "none"})); a.Error == nil {
					t.Error("a prompt that there is not:", string(a.Result))
				}
				c.end()
			})
		}
	}
}
