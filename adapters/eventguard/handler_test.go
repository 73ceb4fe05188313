package eventguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"toolguard.dev/adapters/eventguard"
	"toolguard.dev/adapters/goguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// pointers is a sender whose identity is at pointers.
func pointers(t *testing.T, list ...string) eventguard.Sender {
	t.Helper()
	s, err := eventguard.At(list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestIdentities(t *testing.T) {
	const structured = "Content-Type: application/cloudevents+json; charset=utf-8"
	long := strings.Repeat("x", keyderive.MaxFact+1)
	for name, c := range map[string]struct {
		sender  eventguard.Sender
		headers []string
		body    string
		want    string // "": refused
	}{
		"Stripe":                       {eventguard.Stripe, nil, `{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","data":{"object":{"id":"pi_1"}}}`, "evt_1NG8Du2eZvKYlo2CUI79vXWy"},
		"Stripe without an id":         {eventguard.Stripe, nil, `{"object":"event","data":{"id":"pi_1"}}`, ""},
		"an id twice":                  {eventguard.Stripe, nil, `{"id":"evt_1","id":"evt_2"}`, ""},
		"an empty id":                  {eventguard.Stripe, nil, `{"id":""}`, ""},
		"no id":                        {eventguard.Stripe, nil, `{"id":null}`, ""},
		"an object as id":              {eventguard.Stripe, nil, `{"id":{}}`, ""},
		"a long id":                    {eventguard.Stripe, nil, `{"id":"` + long + `"}`, ""},
		"an id with a control sign":    {eventguard.Stripe, nil, `{"id":"a\u0000"}`, ""},
		"half an emoji elsewhere":      {eventguard.Stripe, nil, `{"note":"cut \ud83d","id":"evt_1"}`, "evt_1"},
		"half an emoji in it":          {eventguard.Stripe, nil, `{"id":"\ud83d"}`, ""},
		"no JSON":                      {eventguard.Stripe, nil, `id=evt_1`, ""},
		"more behind it":               {eventguard.Stripe, nil, `{"id":"evt_1"}{}`, ""},
		"GitHub":                       {eventguard.GitHub, []string{"X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958"}, `not read`, "72d3162e-cc78-11e3-81ab-4c9367dc0958"},
		"GitHub without a header":      {eventguard.GitHub, nil, `{"id":"x"}`, ""},
		"a header twice, equal":        {eventguard.GitHub, []string{"X-GitHub-Delivery: a", "X-GitHub-Delivery: a"}, "", "a"},
		"a header twice, other":        {eventguard.GitHub, []string{"X-GitHub-Delivery: a", "X-GitHub-Delivery: b"}, "", ""},
		"Slack":                        {eventguard.Slack, []string{"X-Slack-Retry-Num: 1"}, `{"type":"event_callback","event_id":"Ev08MFMKH6","event":{"type":"message"}}`, "Ev08MFMKH6"},
		"a Slack command":              {eventguard.Slack, nil, `token=x&trigger_id=1`, ""},
		"Standard Webhooks":            {eventguard.StandardWebhooks, []string{"webhook-id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"}, "", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"},
		"Svix":                         {eventguard.StandardWebhooks, []string{"svix-id: msg_1"}, "", "msg_1"},
		"both, other":                  {eventguard.StandardWebhooks, []string{"webhook-id: msg_1", "svix-id: msg_2"}, "", ""},
		"CloudEvents in headers":       {eventguard.CloudEvents, []string{"ce-specversion: 1.0", "ce-id: A 234", "ce-source: /mycontext%20%C3%A9"}, `{"id":"no"}`, ""},
		"CloudEvents, percent":         {eventguard.CloudEvents, []string{"ce-id: A%20234", "ce-source: /my%C3%A9"}, `{"id":"no"}`, "/myé A 234"},
		"CloudEvents in the body":      {eventguard.CloudEvents, []string{structured, "ce-id: no"}, `{"specversion":"1.0","source":"/myé","id":"A 234"}`, "/myé A 234"},
		"CloudEvents without a source": {eventguard.CloudEvents, []string{structured}, `{"specversion":"1.0","id":"A"}`, ""},
		"a batch of CloudEvents":       {eventguard.CloudEvents, []string{"Content-Type: application/cloudevents-batch+json", "ce-id: a", "ce-source: b"}, `[]`, ""},
		"a place of one's own":         {pointers(t, "/events/0/a~1b"), nil, `{"events":[{"a/b":12.0}]}`, "12"},
		"two places":                   {pointers(t, "/source", "/id"), nil, `{"id":7,"source":"crm"}`, "crm 7"},
		"two places, with a space":     {pointers(t, "/source", "/id"), nil, `{"id":7,"source":"crm 1"}`, ""},
		"a place out of range":         {pointers(t, "/0"), nil, `[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, body, called := "", "", false
			server := httptest.NewServer(eventguard.Handler(c.sender, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				raw, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got, body, called = toolguard.FactsFrom(r.Context()).SourceEvent, string(raw), true
			})))
			defer server.Close()
			status := post(t, server.URL, c.body, c.headers...)
			if got != c.want || called != (c.want != "") || (status == http.StatusOK) != called {
				t.Errorf("identity %q, status %d", got, status)
			}
			if called && body != c.body {
				t.Errorf("the handler read %q", body)
			}
		})
	}
}

func post(t testing.TB, url, body string, headers ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestRequestsThatAreNoEvents(t *testing.T) {
	facts := keyderive.Facts{}
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { facts = toolguard.FactsFrom(r.Context()) })
	server := httptest.NewServer(eventguard.Handler(eventguard.Slack, next))
	defer server.Close()
	if status := post(t, server.URL, `{"type":"url_verification","challenge":"x","event_id":"no"}`); status != http.StatusOK || facts.SourceEvent != "" {
		t.Errorf("status %d, %+v", status, facts)
	}
	if status := post(t, server.URL, `{"event_id":"`+strings.Repeat("x", eventguard.MaxBody)+`"}`); status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: status %d", status)
	}
}

func TestFactsOfTheRequestStay(t *testing.T) {
	facts := keyderive.Facts{}
	inner := eventguard.Handler(eventguard.GitHub, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { facts = toolguard.FactsFrom(r.Context()) }))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r.WithContext(toolguard.WithFacts(r.Context(), keyderive.Facts{Tenant: "acme", SourceEvent: r.Header.Get("Other")})))
	}))
	defer server.Close()
	if status := post(t, server.URL, "", "X-GitHub-Delivery: a"); status != http.StatusOK || facts.Tenant != "acme" || facts.SourceEvent != "a" {
		t.Errorf("status %d, %+v", status, facts)
	}
	if status := post(t, server.URL, "", "X-GitHub-Delivery: a", "Other: b"); status != http.StatusBadRequest {
		t.Errorf("two source events: status %d", status)
	}
}

func TestMessages(t *testing.T) {
	ctx, err := eventguard.WithMessage(t.Context(), "orders/3/1042")
	if err != nil || toolguard.FactsFrom(ctx).SourceEvent != "orders/3/1042" {
		t.Error(err)
	}
	if _, err := eventguard.WithMessage(ctx, "orders/3/1042"); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for _, id := range []string{"", "a\n", "\xff", strings.Repeat("x", keyderive.MaxFact+1), "another"} {
		if _, err := eventguard.WithMessage(ctx, id); !errors.Is(err, eventguard.ErrIdentity) {
			t.Errorf("%.10q: %v", id, err)
		}
	}
	if _, err := eventguard.At("id"); !errors.Is(err, keyderive.ErrPointer) {
		t.Errorf("no pointer: %v", err)
	}
	if _, err := eventguard.At(); !errors.Is(err, keyderive.ErrPointer) {
		t.Errorf("no pointers: %v", err)
	}
}

// TestRedeliveryFindsTheFirst delivers one event often, and at once, and another one.
func TestRedeliveryFindsTheFirst(t *testing.T) {
	guard, err := toolguard.Open(t.Context(), storetest.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	shipped := map[string]int{}
	ship, err := goguard.New(guard, registry.Tool{Server: "shop", Name: "ship"}, func(ctx context.Context, in struct{ Order string }) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		shipped[toolguard.FactsFrom(ctx).SourceEvent]++
		return fmt.Sprintf("parcel %d", len(shipped)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(eventguard.Handler(eventguard.Stripe, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, _, err := ship.Call(r.Context(), struct{ Order string }{"A-1"})
		if err != nil || out != "parcel 1" && out != "parcel 2" {
			http.Error(w, fmt.Sprint(out, err), http.StatusInternalServerError)
		}
	})))
	defer server.Close()
	var deliveries sync.WaitGroup
	for i := range 20 {
		deliveries.Go(func() {
			if status := post(t, server.URL, fmt.Sprintf(`{"id":"evt_%d"}`, i%2)); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		})
	}
	deliveries.Wait()
	if len(shipped) != 2 || shipped["evt_0"] != 1 || shipped["evt_1"] != 1 {
		t.Errorf("shipped: %v", shipped)
	}
}
