package api

import (
	"encoding/json"
	"errors"
	"net/http"

	"toolguard.dev/toolguard"
)

// problem is an error as RFC 9457 has it.
type problem struct {
	status int
	code   string // what it is, for programs
	what   string // one sentence or two
}

func (p problem) Error() string { return p.what }

// fail answers with a problem.
func (x *exchange) fail(err error) {
	p, ok := errors.AsType[problem](err)
	if !ok {
		p = problemOf(err)
	}
	if p.status == http.StatusInternalServerError {
		x.log.Error("a request to the API failed", "path", x.r.URL.Path, "error", err)
	}
	x.w.Header().Set("Content-Type", "application/problem+json")
	x.w.WriteHeader(p.status)
	e := json.NewEncoder(x.w)
	e.SetEscapeHTML(false)
	_ = e.Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}{http.StatusText(p.status), p.status, p.code, p.what}) // nobody reads if it fails
}

// problemOf says what an error of the ledger comes to.
func problemOf(err error) problem {
	switch {
	case errors.Is(err, toolguard.ErrNotFound):
		return problem{http.StatusNotFound, "not_found", err.Error()}
	case errors.Is(err, toolguard.ErrForbidden):
		return problem{http.StatusForbidden, "forbidden", err.Error()}
	case errors.Is(err, toolguard.ErrTooEarly):
		return problem{http.StatusConflict, "too_early", err.Error()}
	case errors.Is(err, toolguard.ErrTransition):
		return problem{http.StatusConflict, "stale", err.Error()}
	case errors.Is(err, toolguard.ErrTooLarge):
		return problem{http.StatusRequestEntityTooLarge, "too_large", err.Error()}
	case errors.Is(err, toolguard.ErrStoreFull), errors.Is(err, toolguard.ErrStoreAway), errors.Is(err, toolguard.ErrStoreBroken), errors.Is(err, toolguard.ErrStoreClosed):
		return problem{http.StatusServiceUnavailable, "ledger", "The ledger takes no request now; nothing is known to have been recorded."}
	}
	return problem{http.StatusInternalServerError, "internal", "This could not be answered; the server's log says why."}
}
