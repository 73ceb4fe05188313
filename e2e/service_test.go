package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What a service does with the answer to a write that it has done, besides what a tap does.
const (
	fail   = "fail"   // say 500
	garble = "garble" // say 201, and nothing that its client can read
)

// service is a system that a real server writes to. It counts what it has done.
type service struct {
	t testing.TB
	watch
	done  int
	holds []*hold
}

// holdAnswer holds the answer to the next write: it has been done.
func (s *service) holdAnswer() *hold {
	h := &hold{t: s.t, stage: "answer", name: "a write", reached: make(chan *tapCall, 1), word: make(chan string, 1)}
	s.update(func() { s.holds = append(s.holds, h) })
	return h
}

// effects is how often it has been written to.
func (s *service) effects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// api is a service with an HTTP API on this machine. answer gives what it says to a request with a body, the nth, and
// to one without (n is 0); nil is what it does not have.
func api(t testing.TB, answer func(r *http.Request, body map[string]any, n int) any) (*service, string) {
	s := &service{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]any{}
		_ = json.NewDecoder(r.Body).Decode(&body)
		say := func(status int, v any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(encode(t, v))
		}
		missing := map[string]any{"object": "error", "status": 404, "code": "object_not_found", "message": "404 Not Found"}
		var held *hold
		n := 0
		if r.Method != http.MethodGet {
			if answer(r, body, 1) == nil {
				say(http.StatusNotFound, missing)
				return
			}
			s.update(func() {
				s.done++
				n = s.done
				if len(s.holds) > 0 {
					held, s.holds = s.holds[0], s.holds[1:]
				}
			})
		}
		word := pass
		if held != nil {
			held.reached <- nil
			select {
			case word = <-held.word:
			case <-r.Context().Done():
				return
			}
		}
		switch a := answer(r, body, n); {
		case word == drop:
			panic(http.ErrAbortHandler)
		case word == fail:
			say(http.StatusInternalServerError, map[string]any{"object": "error", "status": 500, "code": "internal_server_error", "message": "Unexpected error occurred."})
		case word == garble:
			say(http.StatusCreated, map[string]any{})
		case a == nil:
			say(http.StatusNotFound, missing)
		case n == 0:
			say(http.StatusOK, a)
		default:
			say(http.StatusCreated, a)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s, server.URL
}
