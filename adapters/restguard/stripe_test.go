package restguard_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/adapters/restguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// stripeMock starts Stripe's own stand-in for its API, which checks requests as the real one does and keeps nothing.
// It is a module of its own (testdata/stripe), so that nobody who uses this one has to have it.
func stripeMock(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	binary := filepath.Join(t.TempDir(), "stripe-mock")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/stripe/stripe-mock")
	build.Dir = "testdata/stripe"
	if text, err := build.CombinedOutput(); err != nil {
		missing("stripe-mock cannot be built (it is fetched once): %v\n%s", err, text)
	}
	c := exec.CommandContext(t.Context(), binary, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "Listening for HTTP at address: "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return "http://" + address
		}
	}
	t.Fatal("stripe-mock does not listen")
	return ""
}

// stripe stands in front of stripe-mock and keeps what that does not: the answer to each key, refusals too, and what was
// made. It counts what arrives, and breaks connections as it is told.
type stripe struct {
	*httptest.Server
	t    *testing.T
	mock string

	mu      sync.Mutex
	script  []fault // of the next POSTs
	seen    []string
	made    []refund
	answers map[string]answered
	from    map[string]bool // the connections that carried a request
}

type fault int

const (
	well  fault = iota
	lose        // commit, and drop the answer
	drown       // drop the request before anything is done
	reset       // the same, on a connection that carried a request before
)

type refund struct {
	ID       string
	Metadata map[string]string
}

type answered struct {
	request string
	status  int
	body    []byte
}

func newStripe(t *testing.T, mock string, script ...fault) *stripe {
	s := &stripe{t: t, mock: mock, script: script, answers: map[string]answered{}, from: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *stripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == "GET" {
		s.search(w, r)
		return
	}
	next := well
	if len(s.script) > 0 {
		next, s.script = s.script[0], s.script[1:]
	}
	s.seen = append(s.seen, r.Header.Get("Idempotency-Key")+" "+string(body))
	if next == reset && !s.from[r.RemoteAddr] {
		s.t.Error("the connection is a new one")
	}
	s.from[r.RemoteAddr] = true
	if next == drown || next == reset {
		panic(http.ErrAbortHandler) // the connection is cut
	}
	a := s.answer(r, body)
	if next == lose {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// search finds refunds by metadata, as Stripe's search and lists do.
func (s *stripe) search(w http.ResponseWriter, r *http.Request) {
	found := []refund{}
	for _, m := range s.made {
		if m.Metadata["key"] == r.URL.Query().Get("key") {
			found = append(found, m)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": found})
}

// answer answers one request: from memory where the key is known, as Stripe does, whatever the answer was.
func (s *stripe) answer(r *http.Request, body []byte) answered {
	key := r.Header.Get("Idempotency-Key")
	if old, ok := s.answers[key]; ok && key != "" {
		if old.request != string(body) {
			return answered{status: 400, body: []byte(`{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`)}
		}
		return old
	}
	form, _ := url.ParseQuery(string(body))
	a := answered{request: string(body)}
	if form.Get("amount") == "4002" {
		a.status, a.body = 402, []byte(`{"error":{"type":"card_error","code":"charge_declined","message":"The refund was declined."}}`)
		s.answers[key] = a
		return a
	}
	forward, err := http.NewRequest(r.Method, s.mock+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	forward.Header = r.Header.Clone()
	response, err := http.DefaultClient.Do(forward)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	a.status = response.StatusCode
	if a.body, err = io.ReadAll(response.Body); err != nil {
		panic(err)
	}
	if a.status == 200 {
		var made refund
		_ = json.Unmarshal(a.body, &made)
		made.Metadata = map[string]string{"key": form.Get("metadata[key]")}
		s.made = append(s.made, made)
		s.answers[key] = a // what fails validation did not begin, and is not kept
	}
	return a
}

const refundSchema = `{"type":"object","required":["charge"],"properties":{"charge":{"type":"string"},"amount":{"type":"integer"},"reason":{}}}`

// refunds is the tool, on a guard of its own.
func (s *stripe) refunds(t *testing.T, policy registry.Policy) (*toolguard.Guard, *toolguard.Tool) {
	t.Helper()
	policy.OncePer = []string{"source_event", "/charge"}
	policy.Timeout, policy.AnswerWithin = time.Second, 30*time.Second
	policy.DownstreamID = condition(t, `result.json.?id.orValue(result.json.?data[?0].?ID.orValue(""))`)
	g := newGuard(t)
	tool, err := restguard.New(g, registry.Tool{Server: "stripe", Name: "create_refund", Effect: registry.Write, InputSchema: json.RawMessage(refundSchema), Policy: policy},
		restguard.Request{
			Method: "POST", URL: s.URL + "/v1/refunds", Header: map[string]string{"Authorization": "Bearer sk_test_123"},
			Form: map[string]string{"charge": "{{args.charge}}", "amount": "{{args.amount}}", "reason": "{{args.reason}}", "metadata[key]": "{{key}}"},
		})
	if err != nil {
		t.Fatal(err)
	}
	return g, tool
}

var byKey = registry.Policy{DownstreamKey: registry.DownstreamKey{Header: "Idempotency-Key", Window: 24 * time.Hour}}

// byLookup asks, in the place of a key that is honoured, what became of a request.
func (s *stripe) byLookup(t *testing.T) registry.Policy {
	t.Helper()
	l, err := restguard.LookUp(restguard.Request{Method: "GET", URL: s.URL + "/v1/refunds", Query: map[string]string{"key": "{{key}}"}})
	if err != nil {
		t.Fatal(err)
	}
	l.Applied, l.Absent, l.Settle = condition(t, `size(result.json.data) == 1`), condition(t, `result.status == 200 && size(result.json.data) == 0`), 100*time.Millisecond
	return registry.Policy{Lookups: []registry.Lookup{l}}
}

// sent checks what arrived: how many requests, with how many keys, and that one refund was made.
func (s *stripe) sent(t *testing.T, requests, keys int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	different := map[string]bool{}
	for _, line := range s.seen {
		different[line] = true
	}
	if len(s.seen) != requests || len(different) != keys {
		t.Errorf("%d requests, %d different ones; want %d and %d: %q", len(s.seen), len(different), requests, keys, s.seen)
	}
	if len(s.made) != 1 || !strings.HasPrefix(s.made[0].ID, "re_") {
		t.Errorf("made %+v", s.made)
	}
}

func TestStripe(t *testing.T) {
	mock := stripeMock(t)
	is := func(t *testing.T, r *toolguard.Result, want string) {
		t.Helper()
		if got := fmt.Sprint(r.Verdict.Outcome, " ", r.Verdict.Status); got != want {
			t.Fatalf("%s, want %s: %s %s", got, want, r.Text, r.Answer.Text())
		}
	}
	t.Run("once", func(t *testing.T) {
		s := newStripe(t, mock)
		g, tool := s.refunds(t, byKey)
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`), "fresh succeeded")
		again := do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`)
		is(t, again, "replayed succeeded")
		if !strings.Contains(string(again.Answer.Structured()), `"amount":100`) {
			t.Errorf("%s", again.Answer.Result)
		}
		s.sent(t, 1, 1)
	})
	t.Run("refused by its checks, and corrected", func(t *testing.T) {
		s := newStripe(t, mock)
		g, tool := s.refunds(t, byKey)
		refused := do(t, g, tool, "evt-1", `{"charge":"ch_1","reason":{"no":"text"}}`)
		is(t, refused, "blocked failed") // it cannot be a field of a form
		refused = do(t, g, tool, "evt-1", `{"charge":"ch_1","reason":"mood"}`)
		is(t, refused, "fresh failed")
		if !strings.Contains(refused.Answer.Text(), "HTTP 400 Bad Request") {
			t.Errorf("%s", refused.Answer.Text())
		}
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","reason":"duplicate"}`), "fresh succeeded")
		s.sent(t, 2, 2)
	})
	t.Run("a refusal that is replayed by its key", func(t *testing.T) {
		s := newStripe(t, mock)
		g, tool := s.refunds(t, byKey)
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":4002}`), "fresh failed")
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`), "fresh succeeded") // under another key, or it would meet the old answer
		s.sent(t, 2, 2)
	})
	t.Run("done, and the answer lost", func(t *testing.T) {
		s := newStripe(t, mock, lose)
		g, tool := s.refunds(t, byKey)
		r := do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`)
		is(t, r, "fresh succeeded")
		if r.Verdict.Attempt != 2 {
			t.Errorf("attempt %d", r.Verdict.Attempt)
		}
		s.sent(t, 2, 1) // the same bytes under the same key
	})
	t.Run("the request lost", func(t *testing.T) {
		s := newStripe(t, mock, drown)
		g, tool := s.refunds(t, byKey)
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`), "fresh succeeded")
		s.sent(t, 2, 1)
	})
	t.Run("a kept connection reset", func(t *testing.T) {
		s := newStripe(t, mock, well, reset)
		g, tool := s.refunds(t, byKey)
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":4002}`), "fresh failed") // it opens the connection
		is(t, do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`), "fresh succeeded")
		s.sent(t, 3, 2) // one more than was answered: nothing was sent that no attempt stands for
	})
	t.Run("done, the answer lost, and looked up", func(t *testing.T) {
		s := newStripe(t, mock, lose)
		g, tool := s.refunds(t, s.byLookup(t))
		r := do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`)
		if r.Verdict.Status != toolguard.StatusSucceeded {
			t.Fatalf("%+v %s", r.Verdict, r.Text)
		}
		s.sent(t, 1, 1)
		again := do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`)
		is(t, again, "replayed succeeded")
		if !strings.Contains(again.Text, s.made[0].ID) {
			t.Error(again.Text)
		}
	})
	t.Run("the request lost, and looked up", func(t *testing.T) {
		s := newStripe(t, mock, drown)
		g, tool := s.refunds(t, s.byLookup(t))
		r := do(t, g, tool, "evt-1", `{"charge":"ch_1","amount":100}`)
		if r.Verdict.Status != toolguard.StatusSucceeded || r.Verdict.Attempt != 2 {
			t.Fatalf("%+v %s", r.Verdict, r.Text)
		}
		s.sent(t, 2, 1)
	})
}
