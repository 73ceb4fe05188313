package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// approving guards the sample office: payments above 100 take a person's word. Calls are erin's.
const approving = `version: 1
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"], env: {OFFICE_FAULT: "${OFFICE_FAULT:-}"}}
context: {tenant: {value: acme}, actor: {value: erin}}
defaults: {timeout: 30s}
tools:
  office/pay_invoice: {effect: write, once_per: [/invoice_id], approval: {when: args.amount > 100}, owner: accounting}
`

// staff are reviewers with their tokens.
type staff map[string]string

// hire writes a configuration with reviewers: name, role, and tenant if not all.
func (d *desk) hire(config string, who ...[3]string) staff {
	d.Helper()
	s := staff{"": "", "forged": "tg_FORGED"}
	var lines strings.Builder
	for _, w := range who {
		var out struct {
			Token string `json:"token"`
			Sum   string `json:"token_sha256"`
		}
		args := []string{"token", "new", w[0], "--role", w[1], "--json"}
		tenants := ""
		if w[2] != "" {
			args = append(args, "--tenant", w[2])
			tenants = ", tenants: [" + w[2] + "]"
		}
		if err := json.Unmarshal([]byte(d.good(args...)), &out); err != nil {
			d.Fatal(err)
		}
		s[w[0]] = out.Token
		fmt.Fprintf(&lines, "  %s: {token_sha256: %q, roles: [%s]%s}\n", w[0], out.Sum, w[1], tenants)
	}
	d.write("toolguard.yaml", config+"reviewers:\n"+lines.String())
	return s
}

var company = [][3]string{{"vic", "viewer", "acme"}, {"dana", "reviewer", "acme"}, {"olga", "operator", "acme"}, {"omar", "operator", "other"},
	{"erin", "operator", ""}}

func (d *desk) as(token string, args ...string) (out, errs string, code int) {
	d.Helper()
	cmd := d.command(args...)
	cmd.Env = append(cmd.Env, "TOOLGUARD_TOKEN="+token)
	return d.runCommand(cmd)
}

// ask asks the API.
func (d *desk) ask(url, token, method, path, body string) (status int, text string) {
	d.Helper()
	status, text, _ = d.try(url, token, method, path, body)
	return status, text
}

func (d *desk) try(url, token, method, path, body string) (status int, text string, head http.Header) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.soon(), method, strings.TrimSuffix(url, "/mcp")+"/api/v1/"+path, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		d.Fatal(err)
	}
	return answer.StatusCode, string(all), answer.Header
}

// pay calls pay_invoice over HTTP.
func (d *desk) pay(url, invoice string, amount int) answered {
	d.Helper()
	return d.event(url, "", "pay_invoice", fmt.Sprintf(`{"invoice_id":%q,"amount":%d}`, invoice, amount))
}

// result sends a call and reads its result.
func (d *desk) result(r *http.Request) answered {
	d.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		d.Fatal(err)
	}
	text := string(all)
	if i := strings.Index(text, "data: "); i >= 0 {
		text = text[i+6:]
	}
	var m struct{ Result answered }
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		d.Fatalf("%v: %s", err, text)
	}
	return m.Result
}

// becomes waits until an operation has a status.
func (d *desk) becomes(key string, want toolguard.Status) {
	d.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx := d.soon(); ; {
		var op toolguard.Operation
		if err := json.Unmarshal([]byte(d.good("ops", "show", key, "--json", "--data", "ledger")), &op); err != nil {
			d.Fatal(err)
		}
		if op.Status == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			d.Fatalf("%s is %s, not %s", key, op.Status, want)
		}
	}
}

func (d *desk) payments() int {
	d.Helper()
	b, err := readBooks(filepath.Join(d.dir, "office.json"))
	if err != nil {
		return 0 // nothing was written yet
	}
	return len(b.Payments)
}

// Approved through the API: sent by itself, once, and the next identical call gets the result.
func TestApprovedThroughTheAPI(t *testing.T) {
	d := newDesk(t)
	s := d.hire(approving, company...)
	_, url := d.serveHTTP("--http", "127.0.0.1:0", "--data", "ledger")
	a := d.pay(url, "INV-1001", 120)
	v := a.Meta.Verdict
	if v.Outcome != toolguard.Pending || v.Reason != toolguard.ReasonApprovalRequired || v.Approval == "" {
		t.Fatalf("%+v", a)
	}
	status, text := d.ask(url, s["dana"], "GET", "approvals?state=open", "")
	var list struct {
		Approvals []struct {
			ID, Digest, Key, Tool, State string
			Requesters                   []string
			Arguments                    json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 || len(list.Approvals) != 1 {
		t.Fatalf("%d %s", status, text)
	}
	r := list.Approvals[0]
	if r.ID != v.Approval || string(r.Arguments) != `{"invoice_id":"INV-1001","amount":120}` || r.Tool != "office/pay_invoice" || r.State != "open" || r.Requesters[0] != "erin" {
		t.Errorf("%+v", r)
	}
	decide := func(who, id, verb, body string) int {
		t.Helper()
		status, text, head := d.try(url, s[who], "POST", "approvals/"+id+"/"+verb, body)
		if status >= 400 && (head.Get("Content-Type") != "application/problem+json" || !strings.Contains(text, `"detail":"`)) {
			t.Errorf("%s: %s", head.Get("Content-Type"), text)
		}
		return status
	}
	good := fmt.Sprintf(`{"digest":%q,"note":"fine"}`, r.Digest)
	for _, test := range []struct {
		who, id, verb, body string
		want                int
	}{
		{"", r.ID, "approve", good, 401}, {"forged", r.ID, "approve", good, 401}, {"vic", r.ID, "approve", good, 403},
		{"erin", r.ID, "approve", good, 403}, // who asked
		{"omar", r.ID, "approve", good, 404}, // another tenant's
		{"dana", r.Key + ".2", "approve", good, 404}, {"dana", "nobody.1", "approve", good, 404}, {"dana", r.Key, "approve", good, 404},
		{"dana", r.ID, "approve", `{"digest":"sha256:00"}`, 409}, {"dana", r.ID, "approve", `{"digest"`, 400}, {"dana", r.ID, "approve", `[]`, 400},
		{"dana", r.ID, "approve", `{"digset":""}`, 400}, {"dana", r.ID, "approve", ``, 400},
		{"dana", r.ID, "approve", `{"note":"` + strings.Repeat("x", 2<<20) + `"}`, 413}, {"dana", r.ID, "approve", `{"note":"` + strings.Repeat("x", 5<<10) + `"}`, 413},
		{"dana", r.ID, "bless", good, 404},
		{"dana", r.ID, "approve", good, 200},
		{"dana", r.ID, "approve", good, 409}, {"dana", r.ID, "reject", good, 409},
	} {
		if got := decide(test.who, test.id, test.verb, test.body); got != test.want {
			t.Errorf("%s %s %s %.30s: %d, want %d", test.who, test.verb, test.id, test.body, got, test.want)
		}
	}
	d.becomes(v.Key, toolguard.StatusSucceeded)
	if a := d.pay(url, "INV-1001", 120); a.Meta.Verdict.Outcome != toolguard.Replayed || !strings.Contains(a.text(), "PAY-1") {
		t.Errorf("%+v", a)
	}
	if n := d.payments(); n != 1 {
		t.Errorf("%d payments", n)
	}
	status, text = d.ask(url, s["vic"], "GET", "operations/"+v.Key, "")
	for _, want := range []string{`"reviewer":"dana"`, `"verdict":"approve"`, `"type":"dispatched"`, `"arguments":{"invoice_id"`, `"result":{`, `"attempts":[{`, `"approvals":[{`, `"outcome":"replayed"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%d, no %s in %s", status, want, text)
		}
	}
	if strings.Contains(text, `"weak":true`) {
		t.Errorf("a proven decision is called weak: %s", text)
	}
	for token := range s {
		if s[token] != "" && strings.Contains(d.good("export", "--data", "ledger"), s[token]) {
			t.Errorf("the token of %s is in the audit", token)
		}
	}
}

// What each role may do, and what exists for whom.
func TestRolesAndTenants(t *testing.T) {
	d := newDesk(t)
	s := d.hire(approving, company...)
	cmd := d.command("serve", "--no-stdio", "--http", "127.0.0.1:0", "--data", "ledger")
	cmd.Env = append(cmd.Env, "OFFICE_FAULT=die:pay_invoice", "TOOLGUARD_TOKEN="+s["olga"])
	url := d.announce(cmd)
	key := d.pay(url, "INV-1001", 50).Meta.Verdict.Key // its answer is lost
	open := d.pay(url, "INV-1002", 500).Meta.Verdict.Approval
	done := `{"verdict":"applied","occurrence":1,"attempt":1,"result":{"payment_id":"PAY-1"},"downstream_id":"PAY-1","note":"seen"}`
	large := `{"result":"` + strings.Repeat("x", 2<<20) + `"}`
	stale := []string{strings.Replace(done, `"attempt":1`, `"attempt":2`, 1), strings.Replace(done, `"occurrence":1`, `"occurrence":2`, 1)}
	for _, test := range []struct {
		method, path, body string
		want               map[string]int // by person
	}{
		{"GET", "operations", "", map[string]int{"": 401, "forged": 401, "vic": 200, "dana": 200, "olga": 200, "omar": 200}},
		{"GET", "operations/" + key, "", map[string]int{"": 401, "vic": 200, "omar": 404, "erin": 200}},
		{"GET", "operations/nobody", "", map[string]int{"": 401, "vic": 404}},
		{"GET", "operations?status=nonsense", "", map[string]int{"vic": 400}},
		{"GET", "operations?limit=0", "", map[string]int{"vic": 400}},
		{"GET", "operations?limit=501", "", map[string]int{"vic": 400}},
		{"GET", "operations?cursor=x", "", map[string]int{"vic": 400}},
		{"GET", "operations?colour=red", "", map[string]int{"vic": 400}},
		{"GET", "approvals?state=odd", "", map[string]int{"vic": 400}},
		{"GET", "approvals/" + open, "", map[string]int{"vic": 200, "omar": 404}},
		{"GET", "events?after=-1", "", map[string]int{"": 401, "vic": 400}},
		{"GET", "report", "", map[string]int{"": 401, "vic": 200}},
		{"GET", "report?since=soon", "", map[string]int{"vic": 400}},
		{"GET", "nothing", "", map[string]int{"": 401, "vic": 404}},
		{"DELETE", "operations/" + key, "", map[string]int{"vic": 405}},
		{"POST", "operations/" + key + "/repeat", `{"occurrence":2}`, map[string]int{"": 401, "vic": 403, "dana": 403, "olga": 409, "omar": 404}},
		{"POST", "operations/nobody/repeat", `{"occurrence":1}`, map[string]int{"olga": 404}},
		{"POST", "operations/nobody/resolve", done, map[string]int{"olga": 404}},
		{"POST", "operations/" + key + "/repeat", large, map[string]int{"olga": 413}},
		{"POST", "operations/" + key + "/resolve", large, map[string]int{"olga": 413}},
		{"POST", "operations/" + key + "/resolve", `{"verdict":"maybe"}`, map[string]int{"olga": 400}},
		{"POST", "operations/" + key + "/resolve", `[]`, map[string]int{"olga": 400}},
		{"POST", "operations/" + key + "/resolve", `{"attempt":"1"}`, map[string]int{"olga": 400}},
		{"POST", "operations/" + key + "/resolve", `{"verdict":"abandoned","result":{}}`, map[string]int{"olga": 400}},
		{"POST", "operations/" + key + "/resolve", stale[0], map[string]int{"olga": 409}},
		{"POST", "operations/" + key + "/resolve", stale[1], map[string]int{"olga": 409}},
		{"POST", "operations/" + key + "/resolve", `{"verdict":"not_applied","occurrence":1,"attempt":1}`, map[string]int{"olga": 409}}, // too early
		{"POST", "operations/" + key + "/resolve", done, map[string]int{"": 401, "vic": 403, "dana": 403, "omar": 404}},
		{"POST", "operations/" + key + "/resolve", done, map[string]int{"olga": 200}},
		{"POST", "operations/" + key + "/resolve", done, map[string]int{"olga": 200}}, // the same again changes nothing
		{"POST", "operations/" + key + "/resolve", `{"verdict":"abandoned"}`, map[string]int{"olga": 409}},
		{"POST", "operations/" + key + "/repeat", `{"occurrence":1,"note":"once more"}`, map[string]int{"olga": 200}},
		{"POST", "approvals/" + open + "/reject", `{}`, map[string]int{"erin": 200}}, // who asked may reject
	} {
		for who, want := range test.want {
			status, text, head := d.try(url, s[who], test.method, test.path, test.body)
			if status != want {
				t.Errorf("%s: %s %s %.200s: %d %s, want %d", who, test.method, test.path, test.body, status, text, want)
			}
			if kind := head.Get("Content-Type"); status >= 400 && (kind != "application/problem+json" || !strings.Contains(text, `"detail":"`)) {
				t.Errorf("%s: %s %s is answered with %s: %s", who, test.method, test.path, kind, text)
			}
			if strings.Contains(text, "struct") {
				t.Errorf("%s %s is answered with Go's types: %s", test.path, test.body, text)
			}
			if want == 401 && head.Get("WWW-Authenticate") == "" {
				t.Errorf("401 without WWW-Authenticate")
			}
		}
	}
	if _, text := d.ask(url, s["omar"], "GET", "operations", ""); text != `{"operations":[]}`+"\n" {
		t.Errorf("omar sees %s", text)
	}
	if _, text := d.ask(url, s["omar"], "GET", "events", ""); text != "" {
		t.Errorf("omar sees %s", text)
	}
	_, all := d.ask(url, s["vic"], "GET", "events", "")
	if got := lines(all); len(got) < 8 || all != d.good("export", "--data", "ledger") {
		t.Errorf("the audit is\n%s", all)
	}
	if _, rest := d.ask(url, s["vic"], "GET", "events?after=3", ""); rest != strings.Join(strings.SplitAfter(all, "\n")[3:], "") {
		t.Errorf("after 3:\n%s", rest)
	}
	var page struct {
		Operations []toolguard.Operation
		Next       string
	}
	var keys []string
	for cursor := ""; ; cursor = "&cursor=" + page.Next {
		page.Next = ""
		_, text := d.ask(url, s["vic"], "GET", "operations?limit=1"+cursor, "")
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, op := range page.Operations {
			keys = append(keys, op.Key)
		}
		if page.Next == "" {
			break
		}
	}
	if len(keys) != 2 || keys[1] != key {
		t.Errorf("paged: %v", keys)
	}
}

// Web pages of other origins are refused, even on this machine, and a browser's form cannot be a request.
func TestAPIForBrowsers(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", approving)
	_, url := d.serveHTTP("--http", "127.0.0.1:0", "--data", "ledger")
	id := d.pay(url, "INV-1001", 120).Meta.Verdict.Approval
	for _, test := range []struct {
		header [2]string
		want   int
	}{
		{[2]string{"Origin", "http://localhost:1"}, 403}, {[2]string{"Origin", "https://evil.example"}, 403}, {[2]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[2]string{"Sec-Fetch-Site", "cross-site"}, 403}, {[2]string{"Host", "evil.example"}, 403}, {[2]string{"Content-Type", "text/plain"}, 415},
		{[2]string{"Content-Type", "application/x-www-form-urlencoded"}, 415}, {[2]string{"Sec-Fetch-Site", "same-origin"}, 200},
	} {
		r, err := http.NewRequest("POST", strings.TrimSuffix(url, "/mcp")+"/api/v1/approvals/"+id+"/reject", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(test.header[0], test.header[1])
		if test.header[0] == "Host" {
			r.Host = test.header[1]
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != test.want {
			t.Errorf("%v: %d, want %d", test.header, answer.StatusCode, test.want)
		}
	}
	if out := d.good("export", "--data", "ledger"); !strings.Contains(out, `"verdict":"reject","weak":true`) || !strings.Contains(out, `"reviewer":"local`) {
		t.Errorf("the local user's decision is not called weak: %s", out)
	}
}

// On the command line, with and without a server.
func TestApprovalsCommands(t *testing.T) {
	d := newDesk(t)
	s := d.hire(approving, company...)
	c := d.serve("serve", "--data", "ledger")
	pay := map[string]any{"invoice_id": "INV-1001", "amount": 120, "memo": "\u202egnp"}
	v := d.call(c, "pay_invoice", pay).Meta.Verdict
	out := d.good("approvals", "list", "--data", "ledger")
	for _, want := range []string{"id         " + v.Approval, "office/pay_invoice", "by erin; until", "acme", `"amount":120`, `\u202egnp`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := d.good("ops", "list", "--data", "ledger"); !strings.HasSuffix(out, "\n1 of them wait for an approval: approvals list, then approvals approve ID or reject ID\n") {
		t.Errorf("ops list:\n%s", out)
	}
	var list []shownRequest
	if err := json.Unmarshal([]byte(d.good("approvals", "list", "--json", "--data", "ledger")), &list); err != nil || len(list) != 1 || list[0].ID != v.Approval || list[0].Arguments == nil {
		t.Fatalf("%v %+v", err, list)
	}
	if _, out, _ := d.as(s["omar"], "approvals", "list", "--data", "ledger"); strings.Contains(out, v.Approval) {
		t.Errorf("omar sees %s", out)
	}
	for _, test := range []struct {
		who, args string
		code      int
		says      string
	}{
		{"", "approvals approve " + v.Approval, 1, "put your token into $TOOLGUARD_TOKEN"},
		{"", "approvals approve " + v.Approval + " --config /nowhere/toolguard.yaml", 2, "no such file"},
		{"forged", "approvals approve " + v.Approval, 1, "is no reviewer's"},
		{"vic", "approvals approve " + v.Approval, 1, "takes the role reviewer"},
		{"omar", "approvals approve " + v.Approval, 1, "not found"},
		{"erin", "approvals approve " + v.Approval, 1, "may reject it but not approve it"},
		{"dana", "approvals approve " + v.Key[:8] + ".2", 1, "not found"},
		{"dana", "approvals approve " + v.Approval + " --digest sha256:00", 1, "other arguments"},
		{"dana", "approvals approve", 2, "which one?"},
		{"dana", "ops repeat " + v.Key, 1, "takes the role operator"},
		{"olga", "ops repeat " + v.Key, 1, "is awaiting_approval: approve or reject the request for it"},
		{"olga", "ops resolve " + v.Key + " --verdict applied", 1, "is awaiting_approval: approve or reject the request for it"},
		{"dana", "approvals approve nobody", 1, "approvals list shows the IDs"},
		{"", "ops repeat " + v.Key, 1, "put your token"},
		{"dana", "approvals approve " + v.Key[:8] + ".1 --note ok", 0, ""},
		{"dana", "approvals approve " + v.Approval, 1, "decided already"},
	} {
		_, errs, code := d.as(s[test.who], append(strings.Fields(test.args), "--data", "ledger")...)
		if code != test.code || !strings.Contains(errs, test.says) {
			t.Errorf("%s: %s: exit %d, %s", test.who, test.args, code, errs)
		}
		if token := s[test.who]; token != "" && strings.Contains(errs, token) {
			t.Errorf("the token is shown: %s", errs)
		}
	}
	d.becomes(v.Key, toolguard.StatusSucceeded)
	if out := d.good("ops", "show", v.Key, "--data", "ledger"); !strings.Contains(out, " approve by dana ok\n") {
		t.Errorf("who approved it, and why, is not shown:\n%s", out)
	}
	if a := d.call(c, "pay_invoice", pay); a.Meta.Verdict.Outcome != toolguard.Replayed {
		t.Errorf("%+v", a)
	}
	// A ledger remembers that it has reviewers, also where only its folder is named.
	d.end(c)
	alone := newDesk(t)
	if _, errs, code := alone.as("", "ops", "repeat", v.Key, "--data", filepath.Join(d.dir, "ledger")); code != 1 || !strings.Contains(errs, "put your token") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, errs, code := alone.as(s["olga"], "ops", "repeat", v.Key, "--data", filepath.Join(d.dir, "ledger")); code != 0 {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// Killed after the approval and before the dispatch: the next server sends it, once.
func TestKilledBetweenApprovalAndDispatch(t *testing.T) {
	d := newDesk(t)
	s := d.hire(approving, company...)
	c := d.serve("serve", "--data", "ledger")
	v := d.call(c, "pay_invoice", map[string]any{"invoice_id": "INV-1001", "amount": 120}).Meta.Verdict
	c.kill()
	if _, errs, code := d.as(s["dana"], "approvals", "approve", v.Approval, "--data", "ledger"); code != 0 {
		t.Fatalf("exit %d, %s", code, errs)
	}
	if n := d.payments(); n != 0 {
		t.Errorf("%d payments", n)
	}
	d.serve("serve", "--data", "ledger")
	d.becomes(v.Key, toolguard.StatusSucceeded)
	if n := d.payments(); n != 1 {
		t.Errorf("%d payments", n)
	}
}

// Two reviewers at once: one decision, one dispatch.
func TestTwoReviewersAtOnce(t *testing.T) {
	d := newDesk(t)
	s := d.hire(approving, [3]string{"dana", "reviewer", ""}, [3]string{"olga", "operator", ""})
	_, url := d.serveHTTP("--http", "127.0.0.1:0", "--data", "ledger")
	v := d.pay(url, "INV-1001", 120).Meta.Verdict
	var mu sync.Mutex
	got := map[int]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			who, verb := []string{"dana", "olga"}[i%2], []string{"approve", "reject"}[i/2%2]
			status, _ := d.ask(url, s[who], "POST", "approvals/"+v.Approval+"/"+verb, `{}`)
			mu.Lock()
			defer mu.Unlock()
			got[status]++
		})
	}
	all.Wait()
	if got[200] != 1 || got[409] != 7 {
		t.Errorf("%v", got)
	}
	if n := strings.Count(d.good("export", "--data", "ledger"), `"type":"approval_decided"`); n != 1 {
		t.Errorf("%d decisions", n)
	}
}

// No child of ours has the token of whoever started the server.
func TestTokenIsNotInherited(t *testing.T) {
	ours := []string{"PATH=/bin", "TOOLGUARD_TOKEN=tg_SECRET", "TOOLGUARD_CONFIG=x"}
	for name, env := range map[string][]string{"entry": entryEnvironment(ours, nil), "wrap": wrappedEnvironment(ours, nil)} {
		if strings.Contains(strings.Join(env, "\n"), "tg_SECRET") {
			t.Errorf("%s: %v", name, env)
		}
	}
}

func TestTokenNew(t *testing.T) {
	d := newDesk(t)
	out := d.good("token", "new", "Max Power", "--role", "operator", "--tenant", "acme")
	token, _, _ := strings.Cut(out, "\n")
	_, config, _ := strings.Cut(out, "reviewers:\n")
	d.write("toolguard.yaml", approving+"reviewers:\n"+config)
	if strings.Contains(config, token) || !strings.HasPrefix(token, "tg_") || len(token) < 24 {
		t.Error(out)
	}
	if _, errs, code := d.as(token, "ops", "repeat", "abcdefgh", "--data", "ledger"); code != 1 || strings.Contains(errs, "token") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, errs, _ := d.run("token", "new", "a", "--role", "boss"); errs != "mcp-server: --role boss: there is viewer, reviewer and operator\n" {
		t.Error(errs)
	}
	for _, args := range []string{"token", "token new", "token new a b --role viewer", "token new a", "token new a --role boss", "token new local:me --role viewer", "token old"} {
		if out, errs, code := d.run(strings.Fields(args)...); code != 2 || out != "" || len(lines(errs)) != 1 {
			t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
		}
	}
}

func TestBook(t *testing.T) {
	token, sum := people.NewToken()
	book, err := people.NewBook([]people.Member{{Name: "dana", Token: sum, Roles: []people.Role{people.Reviewer, people.Viewer}}}, "local:me")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"", " ", token + "x", token[:len(token)-1], sum, strings.ToLower(token)} {
		if _, err := book.Identify(wrong); !errors.Is(err, people.ErrUnknown) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	a, err := book.Identify(token)
	if err != nil || a.Name != "dana" || !a.Proven || !a.May(people.Reviewer) || !a.May(people.Viewer) || a.May(people.Operator) {
		t.Errorf("%+v, %v", a, err)
	}
	open, err := people.NewBook(nil, "local:me")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := open.Identify("anything"); err != nil || a.Proven || a.Name != "local:me" || !a.May(people.Operator) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := people.NewBook([]people.Member{{Name: "x", Token: "00"}}, ""); err == nil {
		t.Error("a bad sum was taken")
	}
}
