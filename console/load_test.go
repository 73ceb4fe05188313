package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/api"
	"toolguard.dev/badgerstore"
	"toolguard.dev/console"
	"toolguard.dev/keyderive"
	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

const limit = 200 * time.Millisecond

// full is a ledger with many operations, the newest of which are open, and one that was replayed often.
func full(t *testing.T) (store *badgerstore.Store, replayed string) {
	t.Helper()
	store, err := badgerstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	began := time.Now().Add(-6 * 24 * time.Hour)
	const writers = 128
	var all sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		all.Go(func() {
			for i := w; i < many; i += writers {
				if err := store.Commit(context.Background(), written(i, began)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	replayed = keyOf(many / 2)
	for i := range 500 {
		e := toolguard.Event{Time: time.Now().UTC(), Type: toolguard.EventCall, Key: replayed, Tenant: tenantOf(many / 2), Outcome: toolguard.Replayed, Reason: toolguard.ReasonDone}
		if err := store.Commit(context.Background(), &toolguard.Write{Token: fmt.Sprint("r", i), Events: []toolguard.Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	return store, replayed
}

func keyOf(i int) string    { return fmt.Sprintf("%08x-0000-8000-8000-%012x", i*2654435761%(1<<32), i) }
func tenantOf(i int) string { return fmt.Sprint("tenant-", i%5) }

// written is the last write of an operation, with the events of all.
func written(i int, began time.Time) *toolguard.Write {
	at := began.Add(time.Duration(i) * 6 * 24 * time.Hour / many).UTC()
	op := &toolguard.Operation{
		Key: keyOf(i), Intent: fmt.Sprint("intent", i), Occurrence: 1, Action: "books/pay_invoice", Effect: "write", Status: toolguard.StatusSucceeded,
		Facts: keyderive.Facts{Tenant: tenantOf(i), Workflow: "monthly", SourceEvent: fmt.Sprint("evt-", i), Run: fmt.Sprint("run-", i/10)},
		Sent:  1, Created: at, Settled: at, Delivered: at, Budget: 2,
		Attempts: []toolguard.Attempt{{N: 1, Owner: "p", Started: at, Deadline: at.Add(time.Minute), State: toolguard.AttemptSucceeded, Finished: true, Ended: at}},
	}
	w := &toolguard.Write{Token: fmt.Sprint("w", i), Operation: op}
	w.Body = &toolguard.Body{Arguments: json.RawMessage(fmt.Sprintf(`{"invoice_id":"INV-%d","amount":%d,"memo":"for the office"}`, i, i)), Result: json.RawMessage(`{"content":[{"type":"text","text":"PAY-1"}]}`)}
	outcome := toolguard.Fresh
	if i >= many-manyOpen {
		w.Open, op.Settled, op.Delivered = true, time.Time{}, time.Time{}
		switch i % 4 {
		case 0:
			op.Status, op.Attempts, op.Sent, outcome = toolguard.StatusAwaitingApproval, nil, 0, toolguard.Pending
			op.Approval = &toolguard.Approval{ID: op.Key + ".1", State: toolguard.ApprovalOpen, Digest: "sha256:d", Requesters: []string{"agent"}, Requested: at, Expires: time.Now().Add(time.Hour)}
			w.Queue = toolguard.QueueApproval
		case 1, 2:
			op.Status, outcome = toolguard.StatusEscalated, toolguard.Escalated
			op.Attempts[0].State, op.Attempts[0].Says = toolguard.AttemptUnknown, "connection reset by peer"
			w.Queue = toolguard.QueueOutcome
		case 3:
			op.Status = toolguard.StatusFailed
		}
	}
	event := toolguard.Event{Time: at, Key: op.Key, Tool: op.Action, Tenant: op.Facts.Tenant, Workflow: "monthly", SourceEvent: op.Facts.SourceEvent, Status: op.Status, Occurrence: 1, Attempt: 1}
	for _, typ := range []toolguard.EventType{toolguard.EventDispatched, toolguard.EventSettled, toolguard.EventCall} {
		e := event
		if e.Type = typ; typ == toolguard.EventCall {
			e.Outcome = outcome
		}
		w.Events = append(w.Events, e)
	}
	return w
}

var further = regexp.MustCompile(`href="([^"]*(?:cursor|approvals|outcomes|after)=[^"]*)"`)

// Every page, and every read of the API but the audit itself, in under 200 ms.
func TestManyOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a ledger")
	}
	store, replayed := full(t)
	token, sum := people.NewToken()
	two, sumOfTwo := people.NewToken()
	book, err := people.NewBook([]people.Member{{Name: "olga", Token: sum, Roles: []people.Role{people.Operator}},
		{Name: "vic", Token: sumOfTwo, Roles: []people.Role{people.Viewer}, Tenants: []string{tenantOf(0), tenantOf(3)}}}, "local")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := console.Handler(store, book, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.Handle(api.Prefix+"/", api.Handler(store, book, slog.New(slog.DiscardHandler)))
	server := httptest.NewServer(mux)
	defer server.Close()
	for name, token := range map[string]string{"olga": token, "vic": two} {
		v := &viewer{T: t, name: name, token: token, url: server.URL}
		v.enter()
		v.look("/activity", "")
		v.waits("/activity", "Still counting")
		first := v.look("/", "Approvals")
		if got := strings.Count(first, "<article"); got != 40 {
			t.Errorf("%d cards on the first page", got)
		}
		for i, more := range further.FindAllStringSubmatch(first, -1) {
			if v.look(strings.ReplaceAll(more[1], "&amp;", "&"), "Back to the latest"); i == 0 && name == "olga" && !strings.Contains(first, fmt.Sprintf(`<span class="count">%d</span>`, manyOpen/2)) {
				t.Error("what waits is not counted")
			}
		}
		list := v.look("/operations", "books/pay_invoice")
		for range 5 {
			m := further.FindStringSubmatch(list)
			if m == nil {
				t.Fatal("the list ends")
			}
			list = v.look(strings.ReplaceAll(m[1], "&amp;", "&"), "Earlier ones")
		}
		v.look("/operations?status=escalated", "a person must find out")
		v.look("/operations?status=abandoned", "Search further back")
		v.look("/operations?q=no-such-thing", "None in this part")
		v.look("/operations?q=evt-99", "evt-99")
		v.look("/operations?event=evt-5&tool=pay_invoice", "")
		v.look("/operations/"+keyOf(many-15), "")
		v.look("/activity", "fresh")
		v.look("/activity?days=7", "fresh")
		v.look("/tools", "")
		v.look(api.Prefix+"/operations?limit=100", `"next":"`)
		v.look(api.Prefix+"/operations?status=abandoned", `"next":"`)
		v.look(api.Prefix+"/approvals?state=open", `"arguments":`)
		v.look(api.Prefix+"/events?limit=1000", `"seq"`)
		if name == "olga" {
			v.look("/operations/"+replayed, "What happened after that")
			v.look(api.Prefix+"/operations/"+replayed, `"replayed"`)
		}
	}
}

// viewer is a person at a browser.
type viewer struct {
	*testing.T
	name, token, url string
	client           *http.Client
}

func (v *viewer) enter() {
	v.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		v.Fatal(err)
	}
	v.client = &http.Client{Jar: jar}
	r, err := v.client.PostForm(v.url+"/login", url.Values{"token": {v.token}})
	if err != nil {
		v.Fatal(err)
	}
	r.Body.Close()
}

// get gets a page and says how long that took.
func (v *viewer) get(path string) (page string, took time.Duration) {
	v.Helper()
	r, err := http.NewRequest(http.MethodGet, v.url+path, nil)
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+v.token)
	began := time.Now()
	answer, err := v.client.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer answer.Body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, answer.Body); err != nil {
		v.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		v.Errorf("%s: %d", path, answer.StatusCode)
	}
	return b.String(), time.Since(began)
}

// look measures a page: the middle of five times must be within the limit.
func (v *viewer) look(path, says string) string {
	v.Helper()
	var times []time.Duration
	page := ""
	for range 5 {
		var took time.Duration
		page, took = v.get(path)
		times = append(times, took)
	}
	slices.Sort(times)
	v.Logf("%s %-70.70s %8s (first %s)", v.name, path, times[2].Round(100*time.Microsecond), times[4].Round(100*time.Microsecond))
	if times[2] > limit*slower {
		v.Errorf("%s takes %s", path, times[2])
	}
	if !strings.Contains(page, says) {
		v.Errorf("%s: no %q in %.3000s", path, says, page)
	}
	return page
}

// waits looks until a page says something no more.
func (v *viewer) waits(path, says string) {
	v.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-tick.C {
		if page, _ := v.get(path); !strings.Contains(page, says) {
			return
		}
		if time.Now().After(deadline) {
			v.Fatalf("%s still says %q", path, says)
		}
	}
}
