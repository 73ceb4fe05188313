package eventguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"toolguard.dev/keyderive"
	"toolguard.dev/toolguard"
)

// ErrIdentity: an event or a message has no identity that can be used, or more than one.
var ErrIdentity = errors.New("no identity")

// MaxBody is how many bytes of a body are read to find an identity in it; more is refused with 413.
const MaxBody = 4 << 20

// Handler calls next with the event's identity in the request's context, as the source event; see
// [toolguard.FactsFrom]. An event without an identity that can be used, or whose context has another source event
// already, is refused with 400: handled without one, it would be done again with each delivery. next gets the body
// whole. It is called for every delivery, also while an earlier one is still being handled.
func Handler(s Sender, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := s.read(w, r)
		if err != nil {
			status := http.StatusBadRequest
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the event cannot be read: "+err.Error(), status)
			return
		}
		ctx := r.Context()
		id, err := s.identify(r, body)
		if err == nil {
			ctx, err = WithMessage(ctx, id)
		}
		if err != nil && !errors.Is(err, errNoEvent) {
			http.Error(w, "the event is not taken: "+err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// read reads the body if the sender's identity is in it, and leaves it to be read again.
func (s Sender) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if s.body == nil || !s.body(r) {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// WithMessage returns a context whose calls are done for the message of that id, once, however often a queue delivers
// it. The id is the one that stays the same in every delivery (a message id, or topic, partition and offset together;
// never a receipt handle), and must be unique among all that sets off work in a tenant and workflow. The error wraps
// [ErrIdentity] if the id is empty, longer than [keyderive.MaxFact] bytes or no plain text, or if ctx has another
// source event already.
func WithMessage(ctx context.Context, id string) (context.Context, error) {
	if id == "" || !keyderive.UsableFact(id) {
		return ctx, fmt.Errorf("%w: the id is empty, too long or no plain text", ErrIdentity)
	}
	if already := toolguard.FactsFrom(ctx).SourceEvent; already != "" && already != id {
		return ctx, fmt.Errorf("%w: the context has another source event already", ErrIdentity)
	}
	return toolguard.WithFacts(ctx, keyderive.Facts{SourceEvent: id}), nil
}
