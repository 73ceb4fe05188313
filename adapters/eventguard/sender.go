package eventguard

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"toolguard.dev/keyderive"
)

// Sender knows where the events of one kind of sender have their identity.
type Sender struct {
	body     func(*http.Request) bool // whether the identity is in the body
	identify func(r *http.Request, body []byte) (string, error)
}

// errNoEvent: a request is no event, and is passed on without an identity.
var errNoEvent = errors.New("no event")

var (
	// Stripe: the id of the event ("evt_…"), in the body.
	Stripe = at("/id")
	// GitHub: X-GitHub-Delivery. A redelivery has the same.
	GitHub = Header("X-GitHub-Delivery")
	// Slack: the Events API's event_id, in the body. The request that verifies a URL is no event and is passed on
	// without one; slash commands and interactive payloads have no identity and are refused.
	Slack = Sender{always, slackIdentity}
	// StandardWebhooks: Webhook-Id, or Svix-Id as its forerunner has it.
	StandardWebhooks = Header("Webhook-Id", "Svix-Id")
	// CloudEvents: source and id together, with a space between, from the Ce- headers or a structured JSON body. A
	// batch has many identities and is refused.
	CloudEvents = Sender{structured, cloudIdentity}
)

// At is a sender whose events have their identity in a JSON body, at JSON Pointers. Name all that it takes to be unique
// among everything that sets off work in a tenant and workflow, such as /source and /id: several are put together with
// a space between. Values are texts without a space, but for the last, or numbers. The error wraps [keyderive.ErrPointer].
func At(pointers ...string) (Sender, error) {
	for _, p := range pointers {
		if _, err := keyderive.ParsePointer(p); err != nil {
			return Sender{}, err
		}
	}
	if len(pointers) == 0 {
		return Sender{}, fmt.Errorf("%w: none is named", keyderive.ErrPointer)
	}
	return at(pointers...), nil
}

func at(pointers ...string) Sender {
	return Sender{always, func(_ *http.Request, body []byte) (string, error) { return lookup(body, pointers...) }}
}

// Header is a sender whose events have their identity in a header, under one of several names. Two that are not equal
// are none.
func Header(names ...string) Sender {
	return Sender{nil, func(r *http.Request, _ []byte) (string, error) { return header(r.Header, names...) }}
}

func always(*http.Request) bool { return true }

func header(h http.Header, names ...string) (string, error) {
	id := ""
	for _, name := range names {
		for _, value := range h.Values(name) {
			if id != "" && value != id {
				return "", fmt.Errorf("%w: %s has two values", ErrIdentity, name)
			}
			id = value
		}
	}
	if id == "" {
		return "", fmt.Errorf("%w: there is no header %s", ErrIdentity, names[0])
	}
	return id, nil
}

func slackIdentity(_ *http.Request, body []byte) (string, error) {
	if kind, err := lookup(body, "/type"); err == nil && kind == "url_verification" {
		return "", errNoEvent
	}
	return lookup(body, "/event_id")
}

// structured tells whether a CloudEvent has its attributes in the body.
func structured(r *http.Request) bool { return mediaType(r) == "application/cloudevents+json" }

func mediaType(r *http.Request) string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind
}

func cloudIdentity(r *http.Request, body []byte) (string, error) {
	kind := mediaType(r)
	switch {
	case structured(r):
		return lookup(body, "/source", "/id")
	case strings.HasPrefix(kind, "application/cloudevents"):
		return "", fmt.Errorf("%w: %s is not read; send one event at a time, as application/cloudevents+json or with Ce- headers", ErrIdentity, kind)
	}
	var parts []string
	for _, name := range []string{"Ce-Source", "Ce-Id"} {
		value, err := header(r.Header, name)
		if err != nil {
			return "", err
		}
		if value, err = url.PathUnescape(value); err != nil { // so are they written in headers
			return "", fmt.Errorf("%w: the header %s: %w", ErrIdentity, name, err)
		}
		parts = append(parts, value)
	}
	return together(parts)
}

// together makes one identity of several values, in a way that no others give the same.
func together(parts []string) (string, error) {
	for _, p := range parts[:len(parts)-1] {
		if strings.Contains(p, " ") {
			return "", fmt.Errorf("%w: a part of it has a space", ErrIdentity)
		}
	}
	return strings.Join(parts, " "), nil
}
