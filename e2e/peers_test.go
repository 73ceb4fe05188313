package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// peer is a real server in front of a service, one of its tools that writes, and a count of what the service has done.
type peer struct {
	up             upstream
	tool           string
	args, reworded args
	read           string // a tool that reads
	policy         string // what its annotations do not say
	readArgs       args
	service        *service
	faults         []string // what else than to answer the service can do when it has done a write
	effects        func() int
}

// peers are all of them; the database's is there where it can run.
var peers = map[string]func(testing.TB) peer{"gitlab": openIssue, "notion": comment}

// openIssue is create_issue on a GitLab: each execution opens one more.
func openIssue(t testing.TB) peer {
	issue := func(n int, title any) args {
		return args{
			"id": n, "iid": n, "project_id": 7, "title": title, "description": nil, "state": "opened", "author": args{"id": 1, "username": "e2e"},
			"assignees": []any{}, "labels": []any{}, "milestone": nil, "created_at": "2026-03-04T05:06:07Z", "updated_at": "2026-03-04T05:06:07Z",
			"closed_at": nil, "web_url": fmt.Sprint("http://127.0.0.1/issues/", n),
		}
	}
	s, url := api(t, func(r *http.Request, body map[string]any, n int) any {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/v4/projects/7/issues":
			return issue(n, body["title"])
		case r.URL.Path == "/api/v4/projects/7/issues/1":
			return issue(1, "the first")
		}
		return nil
	})
	return peer{
		up: upstream{name: "gitlab", argv: []string{needNode(t), nodePath(t, "node_modules/@zereight/mcp-gitlab/build/index.js")}, env: map[string]string{
			"GITLAB_API_URL": url + "/api/v4", "GITLAB_PERSONAL_ACCESS_TOKEN": "glpat-e2e", "GITLAB_DISABLE_VERSION_CHECK": "true",
		}},
		tool: "create_issue",
		args: args{"project_id": "7", "title": "Pay invoice 7", "labels": []any{"finance"}}, reworded: args{"project_id": "7", "title": "Please pay invoice 7", "labels": []any{"finance"}},
		read: "get_issue", readArgs: args{"project_id": "7", "issue_iid": "1"},
		service: s, faults: []string{drop, fail, garble}, effects: s.effects,
	}
}

// comment is API-create-a-comment on a Notion: each execution makes one more.
func comment(t testing.TB) peer {
	const page = "5c6a2821-6bb1-4a7e-b6e1-c50111515c3d"
	s, url := api(t, func(r *http.Request, body map[string]any, n int) any {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/v1/comments":
			return args{"object": "comment", "id": fmt.Sprintf("94cc56ab-9f02-409d-9f99-%012d", n), "rich_text": body["rich_text"]}
		case r.Method == http.MethodPost && r.URL.Path == "/v1/search":
			return args{"object": "list", "results": []any{args{"object": "page", "found": n}}}
		case r.URL.Path == "/v1/pages/"+page:
			return args{"object": "page", "id": page}
		}
		return nil
	})
	say := func(words string) args {
		return args{"parent": args{"page_id": page}, "rich_text": []any{args{"text": args{"content": words}}}}
	}
	return peer{
		up: upstream{name: "notion", argv: []string{needNode(t), nodePath(t, "node_modules/@notionhq/notion-mcp-server/bin/cli.mjs")}, env: map[string]string{
			"BASE_URL": url, "NOTION_TOKEN": "ntn_e2e",
		}},
		tool: "API-create-a-comment",
		args: say("Paid."), reworded: say("It is paid."),
		read: "API-retrieve-a-page", readArgs: args{"page_id": page},
		service: s, faults: []string{drop, fail}, effects: s.effects,
	}
}

func (p peer) happened(t testing.TB, n int) {
	t.Helper()
	if got := p.effects(); got != n {
		t.Errorf("%s/%s had %d effects, want %d", p.up.name, p.tool, got, n)
	}
}

func eachPeer(t *testing.T, test func(t *testing.T, p peer, era string)) {
	for name, build := range peers {
		for _, era := range eras {
			t.Run(name+"/"+era, func(t *testing.T) {
				t.Parallel()
				test(t, build(t), era)
			})
		}
	}
}

// TestPeersRepeatWithoutTheGuard is the premise: sent twice, each of these tools acts twice.
func TestPeersRepeatWithoutTheGuard(t *testing.T) {
	t.Parallel()
	for name, build := range peers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := build(t)
			c := direct(t, p.up)
			for range 2 {
				if r := c.call(p.tool, p.args); r.isError {
					t.Errorf("%s", r)
				}
			}
			c.end()
			p.happened(t, 2)
		})
	}
}

// TestPeerHasOneEffect: the same call again, in the session and in the next, gets the first answer.
func TestPeerHasOneEffect(t *testing.T) {
	t.Parallel()
	eachPeer(t, func(t *testing.T, p peer, era string) {
		g := wrap(t, p.up)
		if p.policy != "" {
			g = serve(t, p.up, "tools: {"+p.policy+"}")
		}
		c := g.start(t, era)
		first := c.call(p.tool, p.args).is("fresh", "")
		if first.says("status") != "succeeded" {
			t.Errorf("the first call: %s", first)
		}
		c.call(p.tool, p.args).repeats(first)
		if r := c.call(p.read, p.readArgs); r.isError || r.verdict != nil {
			t.Errorf("a read: %s", r)
		}
		c.end()
		c = g.start(t, era)
		c.call(p.tool, p.args).repeats(first)
		c.end()
		p.happened(t, 1)
	})
}

// TestPeerAnswerIsLost: the service does it and then breaks the connection, says 500, or says what nobody can read. What
// became of it is not known, and stays so; the same in other words does not go out.
func TestPeerAnswerIsLost(t *testing.T) {
	t.Parallel()
	eachPeer(t, func(t *testing.T, p peer, era string) {
		for _, fault := range p.faults {
			t.Run(fault, func(t *testing.T) {
				p := peers[p.up.name](t)
				g := wrap(t, p.up)
				c := g.start(t, era)
				h := p.service.holdAnswer()
				id := c.sendCall(p.tool, p.args)
				h.at()
				p.happened(t, 1)
				h.let(fault)
				unknown := c.result(id).is("escalated", "outcome_unknown")
				c.call(p.tool, p.args).is("escalated", "outcome_unknown")
				c.call(p.tool, p.reworded).is("blocked", "earlier_unknown")
				c.end()
				c = g.start(t, era)
				c.call(p.tool, p.args).is("escalated", "outcome_unknown")
				c.call(p.tool, p.reworded).is("blocked", "earlier_unknown")
				c.end()
				p.happened(t, 1)
				if out := g.cli(t, "ops", "list", "--queue", "--json"); !strings.Contains(out, unknown.says("key")) {
					t.Errorf("not in the human queue: %s", out)
				}
			})
		}
	})
}

// TestPeerIsSlow: the answer takes longer than the tool has, as 70 s would against a timeout of one minute. The caller
// is told that it runs, then that the outcome is not known, and from the answer on that it is done.
func TestPeerIsSlow(t *testing.T) {
	t.Parallel()
	eachPeer(t, func(t *testing.T, p peer, era string) {
		g := serve(t, p.up, "defaults: {answer_within: 500ms, timeout: 1500ms}")
		c := g.start(t, era)
		c.list()
		h := p.service.holdAnswer()
		c.call(p.tool, p.args).is("pending", "in_progress")
		h.at()
		p.happened(t, 1)
		c.callUntilSettled(p.tool, p.args).is("escalated", "outcome_unknown")
		h.let(pass)
		var r *result
		poll(t, "the late answer is in", func() bool {
			r = c.call(p.tool, p.args)
			return r.says("outcome") != "escalated"
		})
		r.is("replayed", "done")
		c.end()
		p.happened(t, 1)
	})
}

// TestPeerRefusals: neither GitLab's server nor Notion's marks a refusal as one, so the policy has to know it. Then the
// corrected call goes through.
func TestPeerRefusals(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		policy string
		wrong  func(args)
	}{
		"gitlab": {`gitlab/create_issue: {classify: {not_applied: ['result.text.contains("GitLab API error: 404")']}}`, func(a args) { a["project_id"] = "8" }},
		"notion": {`notion/API-*: {classify: {not_applied: ['result.json.?status == optional.of(404)']}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := peers[name](t)
			tool, wrong := p.tool, args{}
			for k, v := range p.args {
				wrong[k] = v
			}
			if of.wrong != nil {
				of.wrong(wrong)
			} else {
				tool, wrong = "API-update-a-block", args{"block_id": "5c6a2821-6bb1-4a7e-b6e1-c50111515c3d", "archived": true}
			}
			c := serve(t, p.up, "tools:\n  "+of.policy).start(t, legacy)
			if r := c.attempt(tool, wrong); r.says("outcome") != "fresh" || r.says("status") != "failed" {
				t.Errorf("the refusal: %s", r)
			}
			c.call(p.tool, p.args).is("fresh", "")
			c.end()
			p.happened(t, 1)
		})
	}
}

// TestReadThatSaysItWrites: Notion's search says that it destroys. It is guarded until the policy says what it is.
func TestReadThatSaysItWrites(t *testing.T) {
	t.Parallel()
	p := comment(t)
	query := args{"query": "invoice"}
	c := wrap(t, p.up).start(t, legacy)
	first := c.call("API-post-search", query).is("fresh", "")
	c.call("API-post-search", query).repeats(first)
	c.end()
	c = serve(t, p.up, "tools: {notion/API-post-search: {effect: read}}").start(t, legacy)
	for n := 2; n < 4; n++ {
		if r := c.call("API-post-search", query); r.verdict != nil || !contains(r, fmt.Sprintf(`\"found\":%d`, n)) {
			t.Errorf("search %d: %s", n, r)
		}
	}
	c.end()
}
