package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"toolguard.dev/toolguard"
)

// browser is a tab of a real Chromium, without a window. The test skips where there is none, and fails there in CI.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no Chromium")
		}
		t.Skip("there is no Chromium: install the package chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-dev-shm-usage", true))
	all, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(endAll)
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(stop)
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			t.Errorf("a page threw: %s", e.ExceptionDetails.Text)
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.EntryLevelError && !strings.Contains(e.Entry.Text, "status of 4") { // what the tests bring about
				t.Errorf("the browser complains: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab does things in a browser.
type tab struct {
	*testing.T
	ctx context.Context
	url string
}

type step = chromedp.Action[chromedp.Void]

func (b *tab) do(steps ...step) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		page, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		b.Fatalf("%v; the page says:\n%s", err, page)
	}
}

// open opens a page and waits for its heading.
func (b *tab) open(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.url+path), visible("h1"))
}

func visible(selector string) step { return chromedp.WaitVisible(chromedp.CSS(selector)) }

func typed(selector, text string) step { return chromedp.SendKeys(chromedp.CSS(selector), text) }

func clicked(selector string) step { return chromedp.Click(chromedp.CSS(selector)) }

// js is the value of an expression in the page.
func js[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (b *tab) text(of string) string {
	b.Helper()
	return js[string](b, fmt.Sprintf("document.querySelector(%q).innerText", of))
}

// until waits for an expression to hold.
func (b *tab) until(expression string) {
	b.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression)); err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
}

// shot keeps a picture of the whole page where $SCREENSHOTS names a folder.
func (b *tab) shot(name string, width int64, dark bool) {
	b.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// fits checks that a page is not wider than the screen.
func (b *tab) fits(width int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, 800))
	if js[bool](b, "document.documentElement.scrollWidth > innerWidth") {
		b.Errorf("%s is wider than %d", js[string](b, "location.pathname"), width)
	}
}

const hostile = `<script>window.owned=1</script><img src=x onerror="window.owned=1">"'}{{.}}`

// A person lets themselves in, sees what waits exactly as it would be sent, decides, and sees what became of it.
func TestConsole(t *testing.T) {
	ctx := browser(t)
	d := newDesk(t)
	s := d.hire(strings.Replace(approving, "actor: {value: erin}", "actor: {value: '"+strings.ReplaceAll(hostile, "'", "''")+"'}, source_event: {http: {header: Toolguard-Source-Event}}", 1), company...)
	cmd := d.command("serve", "--no-stdio", "--http", "127.0.0.1:0", "--data", "ledger")
	cmd.Env = append(cmd.Env, "OFFICE_FAULT=die:create_ticket")
	at := d.announce(cmd)
	b := &tab{t, ctx, strings.TrimSuffix(at, "/mcp")}
	d.event(at, "evt-2", "send_mail", `{"to":"a@b.c","subject":"hello"}`)
	lost := d.event(at, hostile, "create_ticket", `{"title":"printer on fire"}`).Meta.Verdict
	if lost.Outcome != toolguard.Escalated {
		t.Fatalf("%+v", lost)
	}
	first := d.event(at, "evt-1", "pay_invoice", `{"invoice_id":"INV-1001","amount":9007199254740993,"memo":"`+strings.ReplaceAll(hostile, `"`, `\"`)+` \u202egnp"}`).Meta.Verdict

	b.open("/operations")
	b.shot("login", 1200, false)
	b.do(typed("input[name=token]", "tg_WRONG"+kb.Enter), visible("[role=alert]"))
	if text := b.text("[role=alert]"); !strings.Contains(text, "nobody's token") {
		t.Error(text)
	}
	b.do(typed("input[name=token]", s["olga"]+kb.Enter), visible("table.list"))
	if path := js[string](b, "location.pathname"); path != "/operations" {
		t.Errorf("after the token: %s", path)
	}
	b.open("/")
	for _, want := range []string{"9007199254740993", `\u202egnp`, "<script>window.owned=1</script>", "office/pay_invoice", "accounting"} {
		if text := b.text("article.wait"); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for _, path := range []string{"/", "/operations", "/operations/" + lost.Key, "/activity", "/activity?days=7", "/tools"} {
		b.open(path)
		if js[bool](b, `!!window.owned || document.querySelectorAll("main img, main script").length > 0`) {
			t.Errorf("%s: hostile text became markup", path)
		}
		name := regexp.MustCompile(`\W+`).ReplaceAllString(strings.ReplaceAll(path, lost.Key, "lost"), "-")
		for _, width := range []int64{1200, 390} {
			b.shot("page"+name, width, false)
			b.shot("page"+name, width, true)
		}
		b.fits(360)
		b.fits(1200)
	}

	// Approved by the keyboard alone.
	b.open("/")
	b.do(chromedp.Focus(chromedp.CSS("article.wait input[name=note]")), chromedp.KeyEvent("looks right"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), visible("[role=status]"))
	if text := b.text("[role=status]"); !strings.Contains(text, "Approved.") {
		t.Error(text)
	}
	d.becomes(first.Key, toolguard.StatusSucceeded)
	b.do(visible("#state .badge.good")) // by itself: the page is live
	if text := b.text("#course"); !strings.Contains(text, "Approved") || !strings.Contains(text, "looks right") || !strings.Contains(text, "Attempt 1 was sent") {
		t.Errorf("%s", text)
	}
	b.shot("done", 1200, false)
	b.shot("done", 390, true)

	// No address that somebody else made has the console say that something was decided.
	b.open(js[string](b, `location.pathname + location.search.replace("approved", "rejected")`))
	if text := b.text("main"); strings.Contains(text, "stay blocked") {
		t.Error(text)
	}

	// What became of the lost one.
	b.open("/operations/" + lost.Key)
	b.do(typed("input[name=downstream_id]", "T-1"), typed("textarea[name=result]", `{"id":"T-1"}`), clicked("button[value=applied]"), visible("[role=status]"))
	if text := b.text("main"); !strings.Contains(text, "Recorded: it happened") || !strings.Contains(text, "A person found that it happened") || !strings.Contains(text, "olga") {
		t.Error(text)
	}
	if a := d.event(at, hostile, "create_ticket", `{"title":"printer on fire"}`); a.Meta.Verdict.Outcome != toolguard.Replayed || !strings.Contains(a.text(), "T-1") {
		t.Errorf("%+v", a)
	}

	// What comes while somebody looks is there without a reload, and what they are typing stays.
	b.open("/")
	b.do(visible(".empty"))
	d.event(at, "evt-9", "pay_invoice", `{"invoice_id":"INV-1002","amount":500}`)
	b.do(visible("article.wait"), typed("article.wait input[name=note]", "half a "))
	d.event(at, "evt-10", "pay_invoice", `{"invoice_id":"INV-1003","amount":600}`)
	b.until(`document.title.startsWith("(2)")`)
	if note := js[string](b, `document.querySelector("article.wait input[name=note]").value`); note != "half a " {
		t.Errorf("what was typed became %q", note)
	}

	// Decided meanwhile by another: a sentence, and nothing changed.
	id := js[string](b, `document.querySelector("article.wait form").getAttribute("action")`)
	if status, text := d.ask(at, s["dana"], "POST", strings.TrimPrefix(id, "/")+"/reject", "{}"); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	b.do(clicked("article.wait button[value=approve]"), visible("[role=alert]"))
	if text := b.text("[role=alert]"); !strings.Contains(text, "Nothing was changed. Approval") || !strings.Contains(text, "decided already") {
		t.Error(text)
	}
	b.shot("problem", 390, false)
	b.do(clicked("form[action='/logout'] button"), visible("input[name=token]"))
}

// event calls a tool for a source event.
func (d *desk) event(url, event, tool, arguments string) answered {
	d.Helper()
	return d.result(d.calling(url, event, tool, arguments))
}

// calling is the request that calls a tool for a source event.
func (d *desk) calling(url, event, tool, arguments string) *http.Request {
	d.Helper()
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, arguments)
	r, err := http.NewRequestWithContext(d.soon(), http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		d.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool}, "Toolguard-Source-Event": {event}}
	return r
}

// form sends a form to the console, as a browser without script does.
func (d *desk) form(at, path string, cookie *http.Cookie, values url.Values, head http.Header) (status int, body string, set []*http.Cookie) {
	d.Helper()
	method, in := http.MethodGet, io.Reader(nil)
	if values != nil {
		method, in = http.MethodPost, strings.NewReader(values.Encode())
	}
	r, err := http.NewRequestWithContext(d.soon(), method, strings.TrimSuffix(at, "/mcp")+path, in)
	if err != nil {
		d.Fatal(err)
	}
	for name, of := range head {
		r.Header[name] = of
	}
	if values != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != nil {
		r.AddCookie(cookie)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.Fatal(err)
	}
	for name, want := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := answer.Header.Get(name); answer.StatusCode != http.StatusForbidden && !strings.HasPrefix(got, want) {
			d.Errorf("%s: %s is %q", path, name, got)
		}
	}
	if csp := answer.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") {
		d.Errorf("%s: %s", path, csp)
	}
	return answer.StatusCode, string(text), answer.Cookies()
}

var csrf = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// Without script: who gets in, what a form of another page is worth, and what each error says.
func TestConsoleForms(t *testing.T) {
	d := newDesk(t)
	s := d.hire(approving, company...)
	_, at := d.serveHTTP("--http", "127.0.0.1:0", "--data", "ledger")
	v := d.pay(at, "INV-1001", 120).Meta.Verdict
	enter := func(who string) *http.Cookie {
		t.Helper()
		status, _, set := d.form(at, "/login", nil, url.Values{"token": {s[who]}}, nil)
		if status != http.StatusSeeOther || len(set) != 1 || !set[0].HttpOnly || set[0].SameSite != http.SameSiteStrictMode || strings.Contains(set[0].Value, s[who]) {
			t.Fatalf("%s: %d %+v", who, status, set)
		}
		return set[0]
	}
	for to, want := range map[string]string{"/operations?q=x": "/operations?q=x", "//evil.example": "/", "https://evil.example/": "/", "/\\evil.example": "/", "": "/", "javascript:alert(1)": "/"} {
		if _, page, _ := d.form(at, "/login?to="+url.QueryEscape(to), nil, nil, nil); !strings.Contains(page, `name="to" value="`+want+`"`) {
			t.Errorf("%s: %s", to, page)
		}
	}
	dana, vic, omar, erin := enter("dana"), enter("vic"), enter("omar"), enter("erin")
	token := func(c *http.Cookie) string {
		t.Helper()
		_, page, _ := d.form(at, "/", c, nil, nil)
		return csrf.FindStringSubmatch(page)[1]
	}
	digest := func() string {
		_, page, _ := d.form(at, "/", dana, nil, nil)
		return regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(page)[1]
	}()
	approve := func(c *http.Cookie, csrf string) url.Values {
		return url.Values{"csrf": {csrf}, "digest": {digest}, "verdict": {"approve"}, "note": {"ok"}}
	}
	path := "/approvals/" + v.Approval
	for _, test := range []struct {
		name   string
		path   string
		who    *http.Cookie
		values url.Values
		head   http.Header
		want   int
		says   string
	}{
		{"nobody reads", "/", nil, nil, nil, 303, ""},
		{"nobody decides", path, nil, approve(nil, "x"), nil, 401, "session has ended"},
		{"a forged session", path, &http.Cookie{Name: dana.Name, Value: "FORGED"}, approve(dana, token(dana)), nil, 401, "session has ended"},
		{"no form token", path, dana, approve(dana, ""), nil, 403, "from another session"},
		{"another's form token", path, dana, approve(dana, token(vic)), nil, 403, "from another session"},
		{"another origin on this machine", path, dana, approve(dana, token(dana)), http.Header{"Origin": {"http://localhost:1"}}, 403, "another origin"},
		{"another site", path, dana, approve(dana, token(dana)), http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403, "another origin"},
		{"a viewer", path, vic, approve(vic, token(vic)), nil, 403, "takes the role reviewer"},
		{"another tenant", path, omar, approve(omar, token(omar)), nil, 404, "not yours to see"},
		{"who asked", path, erin, approve(erin, token(erin)), nil, 403, "may reject it but not approve it"},
		{"another digest", path, dana, url.Values{"csrf": {token(dana)}, "digest": {"sha256:00"}, "verdict": {"approve"}}, nil, 409, "for other arguments"},
		{"no digest", path, dana, url.Values{"csrf": {token(dana)}, "verdict": {"approve"}}, nil, 400, "could not be read"},
		{"no such request", "/approvals/" + v.Key + ".9", dana, approve(dana, token(dana)), nil, 404, "nothing of that name"},
		{"too large", path, dana, url.Values{"csrf": {token(dana)}, "note": {strings.Repeat("x", 2<<20)}}, nil, 413, "more than 1 MiB"},
		{"a role too low", "/operations/" + v.Key, dana, url.Values{"csrf": {token(dana)}, "verdict": {"repeat"}, "occurrence": {"1"}}, nil, 403, "takes the role operator"},
		{"no such page", "/nothing", dana, nil, nil, 404, "no page at this address"},
		{"no such operation", "/operations/nobody", dana, nil, nil, 404, "nothing of that name"},
		{"not theirs to see", "/operations/" + v.Key, omar, nil, nil, 404, "not yours to see"},
		{"no such status", "/operations?status=odd", dana, nil, nil, 400, "no such status"},
		{"good", path, dana, approve(dana, token(dana)), http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {strings.TrimSuffix(at, "/mcp")}}, 303, ""},
		{"decided already", path, dana, approve(dana, token(dana)), nil, 409, "decided already"},
	} {
		status, page, _ := d.form(at, test.path, test.who, test.values, test.head)
		if status != test.want || !strings.Contains(page, test.says) {
			t.Errorf("%s: %d %s, want %d %q", test.name, status, page, test.want, test.says)
		}
		for _, secret := range s {
			if secret != "" && strings.Contains(page, secret) {
				t.Errorf("%s: the page has a token in it", test.name)
			}
		}
	}
	d.becomes(v.Key, toolguard.StatusSucceeded)
	if _, page, _ := d.form(at, "/operations", omar, nil, nil); strings.Contains(page, "pay_invoice") {
		t.Error("omar sees another tenant's operations")
	}
	if status, _, _ := d.form(at, "/logout", dana, url.Values{"csrf": {token(dana)}}, nil); status != 303 {
		t.Errorf("leaving: %d", status)
	}
	if status, _, _ := d.form(at, "/operations", dana, nil, nil); status != 303 {
		t.Errorf("after leaving: %d", status)
	}
}

// Without reviewers the local user decides, and is told that it is weak.
func TestConsoleWithoutReviewers(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", approving)
	_, at := d.serveHTTP("--http", "127.0.0.1:0", "--data", "ledger")
	v := d.pay(at, "INV-1001", 120).Meta.Verdict
	_, page, _ := d.form(at, "/", nil, nil, nil)
	if !strings.Contains(page, "every record says that it is <b>weak</b>") || !strings.Contains(page, "local:") {
		t.Error(page)
	}
	digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(page)[1]
	status, text, _ := d.form(at, "/approvals/"+v.Approval, nil, url.Values{"csrf": {csrf.FindStringSubmatch(page)[1]}, "digest": {digest}, "verdict": {"approve"}}, nil)
	if status != 303 {
		t.Errorf("%d %s", status, text)
	}
	d.becomes(v.Key, toolguard.StatusSucceeded)
	if _, page, _ := d.form(at, "/operations/"+v.Key, nil, nil, nil); !strings.Contains(page, "weak: not proven by a token") {
		t.Error(page)
	}
}
