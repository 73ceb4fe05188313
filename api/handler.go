package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// Prefix is where the handler expects to be.
const Prefix = "/api/v1"

// maxBody is how many bytes a request may have: a result that a person gives is recorded with the operation.
const maxBody = 1 << 20

// Handler answers the requests under [Prefix]. It does not check the Host header; who mounts it does.
func Handler(store toolguard.Store, book *people.Book, log *slog.Logger) http.Handler {
	h := &handler{store, book, log}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(*exchange) error{
		"GET /operations":                (*exchange).operations,
		"GET /operations/{key}":          (*exchange).operation,
		"POST /operations/{key}/resolve": (*exchange).resolve,
		"POST /operations/{key}/repeat":  (*exchange).repeat,
		"GET /approvals":                 (*exchange).approvals,
		"GET /approvals/{id}":            (*exchange).approval,
		"POST /approvals/{id}/approve":   func(x *exchange) error { return x.decide(true) },
		"POST /approvals/{id}/reject":    func(x *exchange) error { return x.decide(false) },
		"GET /events":                    (*exchange).events,
		"GET /report":                    (*exchange).report,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+Prefix+path, h.route(serve))
		mux.Handle(Prefix+path, h.route(func(x *exchange) error {
			x.w.Header().Set("Allow", method)
			return problem{http.StatusMethodNotAllowed, "method", "This is only for " + method + "."}
		}))
	}
	mux.Handle("/", h.route(func(*exchange) error {
		return problem{http.StatusNotFound, "not_found", "There is nothing at this address."}
	}))
	return mux
}

type handler struct {
	store toolguard.Store
	book  *people.Book
	log   *slog.Logger
}

// exchange is one request and its answer.
type exchange struct {
	*handler
	w    http.ResponseWriter
	r    *http.Request
	desk *people.Desk
}

// route serves one kind of request, once it is known who asks.
func (h *handler) route(serve func(*exchange) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{handler: h, w: w, r: r}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		err := sameOrigin(r)
		if err == nil {
			err = x.identify()
		}
		if err == nil {
			err = serve(x)
		}
		if err != nil {
			x.fail(err)
		}
	})
}

// sameOrigin refuses what a web page of another origin sends, also one on this machine: without reviewers nothing but
// this tells it from the local user.
func sameOrigin(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Get("Origin")
	if origin != "" && !strings.EqualFold(origin, "http://"+r.Host) || site != "" && site != "same-origin" && site != "none" {
		return problem{http.StatusForbidden, "origin", "Requests of web pages of another origin are not taken."}
	}
	return nil
}

// identify finds out who asks.
func (x *exchange) identify() error {
	scheme, token, _ := strings.Cut(x.r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	account, err := x.book.Identify(strings.TrimSpace(token))
	if err != nil {
		if token != "" {
			x.log.Warn("a token was given that is nobody's", "at", "api", "from", x.r.RemoteAddr)
		}
		x.w.Header().Set("WWW-Authenticate", `Bearer realm="toolguard"`)
		return problem{http.StatusUnauthorized, "token", "This takes a reviewer's token, as a bearer token in the Authorization header."}
	}
	x.desk = &people.Desk{Store: x.store, Account: account}
	return nil
}

// read reads the request's body, one JSON object, into v.
func (x *exchange) read(v any) error {
	if kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem{http.StatusUnsupportedMediaType, "media_type", "The Content-Type must be application/json."}
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return problem{http.StatusRequestEntityTooLarge, "too_large", "The request has more than 1 MiB."}
	}
	if err != nil {
		return problem{http.StatusBadRequest, "json", "The request did not come in whole."}
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	err = d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("more follows the object")
	}
	if err != nil || len(body) == 0 || strings.TrimSpace(string(body))[0] != '{' {
		what := "it must be one object"
		if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
			what = fmt.Sprintf("%.80s must not be %s", kind.Field, kind.Value)
		} else if !ok && err != nil {
			what = err.Error()
		}
		return problem{http.StatusBadRequest, "json", "The request is not the JSON that belongs here: " + what + "."}
	}
	return nil
}

// answer writes v as JSON, with its times in UTC.
func (x *exchange) answer(v any) error {
	x.w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(x.w)
	e.SetEscapeHTML(false)
	if err := e.Encode(inUTC(v)); err != nil {
		x.log.Debug("an answer of the API was not written", "error", err)
	}
	return nil
}
