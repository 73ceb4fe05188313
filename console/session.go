package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"toolguard.dev/people"
)

const (
	sessionTime = 12 * time.Hour
	maxSessions = 256
)

// session is a person who has entered their token; without reviewers, the local user.
type session struct {
	account people.Account
	csrf    string // comes with each form
	ends    time.Time
}

// owns reports whether a form is of this session.
func (s *session) owns(csrf string) bool {
	return subtle.ConstantTimeCompare([]byte(csrf), []byte(s.csrf)) == 1
}

// seal is proof that a page's address was made for this session: nobody else can have it say that something was decided.
func (s *session) seal(text string) string {
	mac := hmac.New(sha256.New, []byte(s.csrf))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// sessions are kept in memory: a new server asks for the token again.
type sessions struct {
	local string // the csrf of the local user

	mu sync.Mutex
	by map[string]*session
}

func newSessions() *sessions { return &sessions{local: rand.Text(), by: map[string]*session{}} }

// cookieName has the port in it: a browser sends cookies to every port of a host.
func cookieName(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(local.String()); err == nil {
			return "toolguard_" + port
		}
	}
	return "toolguard"
}

// find is the session of a request; nil where there is none.
func (s *sessions) find(r *http.Request, book *people.Book) *session {
	if book.Open() {
		account, _ := book.Identify("")
		return &session{account: account, csrf: s.local}
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.by[cookie.Value]
	if found == nil || time.Now().After(found.ends) {
		delete(s.by, cookie.Value)
		return nil
	}
	return found
}

// begin begins a session and sets its cookie. Beyond maxSessions the one that ends first is ended.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, account people.Account) {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.by) >= maxSessions {
		first := ""
		for id, other := range s.by {
			if first == "" || other.ends.Before(s.by[first].ends) {
				first = id
			}
		}
		delete(s.by, first)
	}
	s.by[id] = &session{account: account, csrf: rand.Text(), ends: time.Now().Add(sessionTime)}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: id, Path: "/", MaxAge: int(sessionTime.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName(r)); err == nil {
		s.mu.Lock()
		delete(s.by, cookie.Value)
		s.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// entrance is what the page that asks for a token shows.
type entrance struct{ To, Wrong string }

// destination is the page of ours that somebody wanted to see; anything else is the first one.
func destination(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return to
}

// login asks for a token. A session that exists shows only after a step within our own pages, as its cookie is strict.
func (v *visit) login() error {
	to := destination(v.r.URL.Query().Get("to"))
	if v.session != nil {
		http.Redirect(v.w, v.r, to, http.StatusSeeOther)
		return nil
	}
	v.show(http.StatusOK, "login", "Who are you?", entrance{To: to})
	return nil
}

// enter takes a token.
func (v *visit) enter() error {
	to := destination(v.r.PostFormValue("to"))
	account, err := v.book.Identify(v.r.PostFormValue("token"))
	if err != nil {
		v.log.Warn("a token was given that is nobody's", "at", "console", "from", v.r.RemoteAddr)
		v.show(http.StatusUnauthorized, "login", "Who are you?", entrance{to, "That is nobody's token."})
		return nil
	}
	v.sessions.begin(v.w, v.r, account)
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

func (v *visit) logout() error {
	v.sessions.end(v.w, v.r)
	http.Redirect(v.w, v.r, "/login", http.StatusSeeOther)
	return nil
}
