package oncehttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"toolguard.dev/oncehttp"
	"toolguard.dev/registry"
)

const maxHeader = 64 << 10

func send(t testing.TB, c *http.Client, r *oncehttp.Request) (string, error) {
	t.Helper()
	response, err := oncehttp.Send(t.Context(), t.Context(), c, r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.Status + " " + string(body), nil
}

// resets is a server that answers the first request on each connection and breaks the connection after it has read the
// second. It counts them.
func resets(t *testing.T) (url string, seen *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	seen = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for n := 0; n < 2; n++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					seen.Add(1)
					if n == 0 {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), seen
}

// TestOnceOnABrokenConnection sends what net/http would send a second time by itself.
func TestOnceOnABrokenConnection(t *testing.T) {
	key := http.Header{"Idempotency-Key": {"k"}}
	for name, r := range map[string]oncehttp.Request{
		"POST with a body":     {Method: "POST", Header: key, Body: []byte("{}")},
		"POST without a body":  {Method: "POST", Header: key},
		"DELETE with a key":    {Method: "DELETE", Header: key},
		"DELETE without a key": {Method: "DELETE"},
		"GET":                  {Method: "GET"},
	} {
		t.Run(name, func(t *testing.T) {
			url, seen := resets(t)
			c := oncehttp.NewClient(maxHeader)
			defer c.CloseIdleConnections()
			r.URL = url + "/first"
			if got, err := send(t, c, &r); err != nil || got != "200 OK ok" {
				t.Fatal(got, err)
			}
			left := false
			r.Sent = func() { left = true }
			_, err := send(t, c, &r)
			if err == nil || errors.Is(err, registry.ErrNotSent) || strings.Contains(err.Error(), "/first") {
				t.Errorf("a broken connection: %v", err)
			}
			if n := seen.Load(); n != 2 || !left {
				t.Errorf("the server has seen %d requests; the last byte left: %v", n, left)
			}
		})
	}
}

func TestNothingLeft(t *testing.T) {
	var seen atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	c := oncehttp.NewClient(maxHeader)

	no := errors.New("no longer")
	if _, err := send(t, c, &oncehttp.Request{Method: "POST", URL: server.URL, Sending: func() error { return no }}); !errors.Is(err, no) || errors.Is(err, registry.ErrNotSent) {
		t.Errorf("kept from leaving: %v", err)
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	if _, err := oncehttp.Send(t.Context(), over, c, &oncehttp.Request{Method: "POST", URL: server.URL}); !errors.Is(err, registry.ErrNotSent) || !strings.Contains(err.Error(), "too late") {
		t.Errorf("too late to leave: %v", err)
	}
	if _, err := send(t, c, &oncehttp.Request{Method: "POST", URL: "http://\x7f"}); !errors.Is(err, registry.ErrNotSent) || strings.Contains(err.Error(), "\x7f") {
		t.Errorf("no address: %v", err)
	}
	server.Close()
	_, err := send(t, c, &oncehttp.Request{Method: "POST", URL: server.URL})
	if e, ok := errors.AsType[*oncehttp.NotSentError](err); !ok || !e.Unreachable || !errors.Is(err, registry.ErrNotSent) {
		t.Errorf("nobody there: %v", err)
	}
	if n := seen.Load(); n != 0 {
		t.Errorf("the server has seen %d requests", n)
	}
}

func TestRedirectsAreReturned(t *testing.T) {
	var seen atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	got, err := send(t, oncehttp.NewClient(maxHeader), &oncehttp.Request{Method: "POST", URL: server.URL, Body: []byte("x")})
	if err != nil || !strings.HasPrefix(got, "307") || seen.Load() != 1 {
		t.Errorf("%s, %v, %d requests", got, err, seen.Load())
	}
}
