package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/notify"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

const secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func secret(t *testing.T) notify.Secret {
	t.Helper()
	s, err := notify.ParseSecret(secretText)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The example of the Standard Webhooks specification.
func TestSignature(t *testing.T) {
	got := secret(t).Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSecret(t *testing.T) {
	for _, text := range []string{"", "whsec_", "whsec_!", "whsec_c2hvcnQ=", "whsec_" + strings.Repeat("YWFh", 30)} {
		if _, err := notify.ParseSecret(text); err == nil || text != "" && len(text) > 8 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// received is what came to a receiver.
type received struct {
	id, body string
	at       time.Time
}

// receiver is an endpoint that checks signatures. status says what it answers to request n, from 1 on.
func receiver(t *testing.T, status func(n int64, w http.ResponseWriter)) (*httptest.Server, chan received) {
	t.Helper()
	got := make(chan received, 100)
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, stamp := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
		sec, err := strconv.ParseInt(stamp, 10, 64)
		if want := secret(t).Sign(id, time.Unix(sec, 0), body); err != nil || r.Header.Get("webhook-signature") != want || r.Method != "POST" {
			t.Errorf("%s %s: signature %q, want %q", r.Method, id, r.Header.Get("webhook-signature"), want)
		}
		if r.URL.Path != "/" {
			t.Errorf("a redirect was followed to %s", r.URL.Path)
		}
		got <- received{id, string(body), time.Now()}
		if status != nil {
			status(n.Add(1), w)
		}
	}))
	t.Cleanup(s.Close)
	return s, got
}

func (r received) data(t *testing.T) map[string]any {
	t.Helper()
	var m struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}

// next is what came next; it fails when nothing does.
func next(t *testing.T, got chan received) received {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		return received{}
	}
}

// nothing checks that nothing came so far.
func nothing(t *testing.T, got chan received) {
	t.Helper()
	select {
	case r := <-got:
		t.Errorf("came: %s", r.body)
	default:
	}
}

var options = notify.Options{Process: "one", Poll: 2 * time.Millisecond, Backoff: 2 * time.Millisecond, Timeout: 200 * time.Millisecond}

func start(t *testing.T, store toolguard.Store, o notify.Options, endpoints ...notify.Endpoint) *notify.Notifier {
	t.Helper()
	n, err := notify.Start(context.Background(), store, endpoints, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func to(t *testing.T, s *httptest.Server, on ...string) notify.Endpoint {
	if len(on) == 0 {
		on = notify.Topics
	}
	return notify.Endpoint{URL: s.URL, Secret: secret(t), On: on}
}

// happen records an event.
func happen(t *testing.T, store toolguard.Store, typ toolguard.EventType, key string) {
	t.Helper()
	happened(t, store, toolguard.Event{Type: typ, Key: key, Tool: "books/pay", Tenant: "acme", Time: time.Now()})
}

var writes atomic.Int64

func happened(t *testing.T, store toolguard.Store, e toolguard.Event) {
	t.Helper()
	w := &toolguard.Write{Token: fmt.Sprint("test-", writes.Add(1)), Events: []toolguard.Event{e}}
	if err := store.Commit(context.Background(), w); err != nil {
		t.Fatal(err)
	}
}

func TestDelivers(t *testing.T) {
	store := storetest.NewMemory()
	happen(t, store, toolguard.EventEscalated, "before it was configured")
	s, got := receiver(t, nil)
	approvals, gotApprovals := receiver(t, nil)
	o := options
	o.Owner = func(tool string) string { return "owner of " + tool }
	o.Link = func(key string) string { return "http://127.0.0.1:7420/operations/" + key }
	start(t, store, o, to(t, s), to(t, approvals, notify.Approval))
	happen(t, store, toolguard.EventCall, "k0")
	happen(t, store, toolguard.EventEscalated, "k1")
	happened(t, store, toolguard.Event{Type: toolguard.EventApprovalRequested, Key: "k2", Tool: "books/pay", Time: time.Now(), Approval: "k2.1", Detail: map[string]any{"expires": "2030-01-01T00:00:00Z"}})
	first, second := next(t, got), next(t, got)
	d := first.data(t)
	if !strings.Contains(first.body, `"type":"operation.escalated"`) || d["key"] != "k1" || d["tenant"] != "acme" || d["owner"] != "owner of books/pay" || d["link"] != "http://127.0.0.1:7420/operations/k1" {
		t.Errorf("%s", first.body)
	}
	if d := second.data(t); !strings.Contains(second.body, `"type":"approval.requested"`) || d["approval"] != "k2.1" || d["expires"] != "2030-01-01T00:00:00Z" {
		t.Errorf("%s", second.body)
	}
	if only := next(t, gotApprovals); only.data(t)["key"] != "k2" || only.id != second.id || first.id == second.id {
		t.Errorf("%s %s", only.id, only.body)
	}
	nothing(t, got)
	nothing(t, gotApprovals)
}

// What is not taken is sent again under the same id, and nothing after it goes ahead.
func TestDownThenUp(t *testing.T) {
	store := storetest.NewMemory()
	s, got := receiver(t, func(n int64, w http.ResponseWriter) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	start(t, store, options, to(t, s))
	happen(t, store, toolguard.EventEscalated, "k1")
	happen(t, store, toolguard.EventConflict, "k2")
	a, b, c, d := next(t, got), next(t, got), next(t, got), next(t, got)
	if a.id != b.id || b.id != c.id || c.id == d.id || d.data(t)["key"] != "k2" {
		t.Errorf("%v %v %v %v", a, b, c, d)
	}
	nothing(t, got)
}

// An endpoint that never answers holds back no other one.
func TestSlow(t *testing.T) {
	store := storetest.NewMemory()
	release := make(chan struct{})
	slow, gotSlow := receiver(t, func(n int64, _ http.ResponseWriter) {
		if n == 1 {
			<-release
		}
	})
	defer close(release)
	s, got := receiver(t, nil)
	start(t, store, options, to(t, slow), to(t, s))
	for i := range 3 {
		happen(t, store, toolguard.EventEscalated, fmt.Sprint("k", i))
	}
	first := next(t, gotSlow)
	for i := range 3 {
		if r := next(t, got); r.data(t)["key"] != fmt.Sprint("k", i) {
			t.Errorf("%s", r.body)
		}
	}
	if again := next(t, gotSlow); again.id != first.id || again.at.Sub(first.at) < options.Timeout/2 {
		t.Errorf("%v after %v", again, first)
	}
}

// An endpoint that says it is gone is left alone.
func TestGone(t *testing.T) {
	store := storetest.NewMemory()
	s, got := receiver(t, func(_ int64, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	other, gotOther := receiver(t, nil)
	start(t, store, options, to(t, s), to(t, other))
	happen(t, store, toolguard.EventEscalated, "k1")
	next(t, got)
	for i := range 5 {
		happen(t, store, toolguard.EventEscalated, fmt.Sprint("later", i))
	}
	for range 6 {
		next(t, gotOther)
	}
	nothing(t, got)
}

// Of several processes one delivers; when it ends, another one goes on.
func TestProcesses(t *testing.T) {
	store := storetest.NewMemory()
	s, got := receiver(t, nil)
	alive := func(process string) bool { return process == "one" || process == "two" }
	one := options
	one.Alive = alive
	first := start(t, store, one, to(t, s))
	happen(t, store, toolguard.EventEscalated, "k1")
	next(t, got)
	two := one
	two.Process = "two"
	start(t, store, two, to(t, s))
	for i := range 20 {
		happen(t, store, toolguard.EventEscalated, fmt.Sprint("shared", i))
	}
	for i := range 20 {
		if r := next(t, got); r.data(t)["key"] != fmt.Sprint("shared", i) {
			t.Fatalf("%d: %s", i, r.body)
		}
	}
	nothing(t, got)
	first.Close()
	happen(t, store, toolguard.EventEscalated, "k2")
	if r := next(t, got); r.data(t)["key"] != "k2" {
		t.Errorf("%s", r.body)
	}
}

// A process that was killed leaves its cursor with its name on it; the next one takes it over and delivers.
func TestTakesOver(t *testing.T) {
	store := storetest.NewMemory()
	s, got := receiver(t, nil)
	hang, gotHang := receiver(t, func(n int64, w http.ResponseWriter) { w.WriteHeader(500) })
	slow := options
	slow.Backoff = time.Hour
	start(t, store, slow, to(t, s), to(t, hang))
	happen(t, store, toolguard.EventEscalated, "k1")
	taken := next(t, got)
	failed := next(t, gotHang)
	store = store.Reopen() // the process is killed: between the event and its delivery to hang
	happen(t, store, toolguard.EventEscalated, "k2")
	two := options
	two.Process = "two"
	start(t, store, two, to(t, s), to(t, hang))
	r := next(t, got)
	if r.id == taken.id { // it had arrived, and that was not on record yet
		r = next(t, got)
	}
	if r.data(t)["key"] != "k2" {
		t.Errorf("%s", r.body)
	}
	if r := next(t, gotHang); r.id != failed.id {
		t.Errorf("%s, %s", r.id, failed.id)
	}
}

// What nobody takes is given up in time, on record, and what comes later is delivered.
func TestGivesUp(t *testing.T) {
	store := storetest.NewMemory()
	s, got := receiver(t, func(n int64, w http.ResponseWriter) {
		if n <= 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	o := options
	o.GiveUp = time.Minute
	start(t, store, o, to(t, s))
	old := time.Now().Add(-time.Hour)
	happened(t, store, toolguard.Event{Type: toolguard.EventEscalated, Key: "old1", Tool: "books/pay", Time: old})
	happened(t, store, toolguard.Event{Type: toolguard.EventEscalated, Key: "old2", Tool: "books/pay", Time: old})
	happen(t, store, toolguard.EventEscalated, "new")
	if r := next(t, got); r.data(t)["key"] != "old1" {
		t.Errorf("%s", r.body)
	}
	if r := next(t, got); r.data(t)["key"] != "new" {
		t.Errorf("%s", r.body)
	}
	events, err := store.Events(context.Background(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, e := range events {
		if e.Type == toolguard.EventNotifyFailed {
			failed = append(failed, e.Key)
			if text := fmt.Sprint(e.Detail); strings.Contains(text, s.URL) {
				t.Errorf("the address is told: %s", text)
			}
		}
	}
	if fmt.Sprint(failed) != "[old1 old2]" {
		t.Errorf("%v", failed)
	}
}
