package console

import (
	"bytes"
	"crypto/subtle"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// Tool is a tool as its page tells of it.
type Tool struct {
	Action string
	Effect string // and where that is known from, in words
	Writes bool   // its calls make operations
	Owner  string // who is asked when nobody can know; may be ""
	Words  []Word // its policy
}

// Word is one thing that a policy says.
type Word struct{ About, Says string }

// Options of [Handler].
type Options struct {
	Tools   func() []Tool // those that are served now; nil: none
	Observe bool          // nothing is held back
	Log     *slog.Logger  // nil: slog.Default
}

// maxForm is how many bytes a form may have.
const maxForm = 1 << 20

// Handler serves the console at /. It does not check the Host header; who mounts it does.
func Handler(store toolguard.Store, book *people.Book, o *Options) (http.Handler, error) {
	c := &console{store: store, book: book, log: slog.Default(), sessions: newSessions(), tally: newTally(store)}
	if o != nil {
		c.options = *o
	}
	if c.options.Log != nil {
		c.log = c.options.Log
	}
	assets, err := fs.Sub(assetFiles, "assets")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for pattern, show := range map[string]func(*visit) error{
		"GET /{$}":               (*visit).waiting,
		"GET /operations":        (*visit).operations,
		"GET /operations/{key}":  (*visit).operation,
		"GET /activity":          (*visit).activity,
		"GET /tools":             (*visit).tools,
		"POST /approvals/{id}":   (*visit).decide,
		"POST /operations/{key}": (*visit).settle,
		"POST /logout":           (*visit).logout,
	} {
		mux.Handle(pattern, c.page(show, true))
	}
	mux.Handle("GET /login", c.page((*visit).login, false))
	mux.Handle("POST /login", c.page((*visit).enter, false))
	mux.Handle("GET /assets/", secured(http.StripPrefix("/assets/", http.FileServerFS(assets))))
	mux.Handle("/", c.page(func(*visit) error {
		return sentence{http.StatusNotFound, "There is no page at this address."}
	}, true))
	return mux, nil
}

type console struct {
	store    toolguard.Store
	book     *people.Book
	options  Options
	log      *slog.Logger
	sessions *sessions
	tally    *tally
}

// visit is one request for a page.
type visit struct {
	*console
	w       http.ResponseWriter
	r       *http.Request
	desk    *people.Desk
	session *session
	now     time.Time
}

// policy lets nothing in but our own files, and nobody frame us.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func secured(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", policy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Frame-Options", "DENY")
		head.Set("Referrer-Policy", "same-origin") // with no-referrer a form would name no origin
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

// page serves one kind of page. Where a person is needed and nobody is known, they are sent to enter their token.
func (c *console) page(show func(*visit) error, person bool) http.Handler {
	crossing := http.NewCrossOriginProtection()
	return secured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{console: c, w: w, r: r, now: time.Now()}
		err := v.form(crossing)
		if err == nil {
			v.session = c.sessions.find(r, c.book)
			if v.session != nil {
				v.desk = &people.Desk{Store: c.store, Account: v.session.account}
			}
			switch {
			case v.session == nil && person && r.Method == http.MethodGet:
				http.Redirect(w, r, "/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
				return
			case v.session == nil && person:
				err = sentence{http.StatusUnauthorized, "Your session has ended. Enter your token again; nothing was decided."}
			case r.Method == http.MethodPost && person && !v.session.owns(r.PostFormValue("csrf")):
				err = sentence{http.StatusForbidden, "This form is from another session. Open the page again; nothing was decided."}
			default:
				err = show(v)
			}
		}
		if err != nil {
			v.fail(err)
		}
	}))
}

// form reads the form of a POST, which must come from a page of ours.
func (v *visit) form(crossing *http.CrossOriginProtection) error {
	if v.r.Method != http.MethodPost {
		return nil
	}
	if crossing.Check(v.r) != nil {
		return sentence{http.StatusForbidden, "This came from a page of another origin and was not taken."}
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	err := v.r.ParseForm()
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return sentence{http.StatusRequestEntityTooLarge, "That is more than 1 MiB. Nothing was decided."}
	}
	if err != nil {
		return sentence{http.StatusBadRequest, "The form could not be read. Nothing was decided."}
	}
	return nil
}

// sentence is an error that a page shows.
type sentence struct {
	status int
	text   string
}

func (s sentence) Error() string { return s.text }

// fail shows what went wrong.
func (v *visit) fail(err error) {
	s, ok := errors.AsType[sentence](err)
	if !ok {
		s = sentenceOf(err)
	}
	if s.status == http.StatusInternalServerError {
		v.log.Error("a page of the console could not be shown", "path", v.r.URL.Path, "error", err)
	}
	v.show(s.status, "problem", http.StatusText(s.status), s.text)
}

// frame is what every page has around it.
type frame struct {
	Title   string
	Page    string
	Person  string
	Role    people.Role
	Weak    bool // decisions are the local user's
	Session bool // there is something to leave
	CSRF    string
	Observe bool
	Waiting int
	Said    string // what a decision came to
	Now     time.Time
	Body    any
}

// show writes a page.
func (v *visit) show(status int, page, title string, body any) {
	f := frame{Title: title, Page: page, Observe: v.options.Observe, Now: v.now, Body: body}
	if v.session != nil {
		word, seal, _ := strings.Cut(v.r.URL.Query().Get("said"), ".")
		if subtle.ConstantTimeCompare([]byte(seal), []byte(v.session.seal(v.r.URL.EscapedPath()+word))) == 1 {
			f.Said = said[word]
		}
		f.Person, f.Role, f.Weak, f.CSRF, f.Session = v.desk.Name, v.desk.Role(), !v.desk.Proven, v.session.csrf, !v.book.Open()
		for _, queue := range []string{toolguard.QueueApproval, toolguard.QueueOutcome} {
			n, err := v.desk.Waiting(v.r.Context(), queue)
			if err != nil {
				v.log.Error("what waits could not be counted", "error", err)
			}
			f.Waiting += n
		}
	}
	var out bytes.Buffer
	if err := pages[page].ExecuteTemplate(&out, "layout", f); err != nil {
		v.log.Error("a page of the console could not be made", "page", page, "error", err)
		http.Error(v.w, "This page could not be made; the server's log says why.", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes()) // nobody reads if it fails
}

// pages are the templates by the name of their page.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range []string{"waiting", "operations", "operation", "activity", "tools", "login", "problem"} {
		all[name] = template.Must(template.New(name).Funcs(words).ParseFS(pageFiles, "pages/layout.html", "pages/parts.html", "pages/"+name+".html"))
	}
	return all
}()
