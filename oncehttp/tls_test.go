package oncehttp_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"toolguard.dev/oncehttp"
	"toolguard.dev/registry"
)

// TestUnderTLS: what is counted is what leaves for the server, not the handshake: until then nothing was sent, and
// after that nothing is sent again.
func TestUnderTLS(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SSL_CERT_FILE is for Linux")
	}
	var requests atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		if r.URL.Path == "/reset" {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
					_ = c.NetConn().(*net.TCPConn).SetLinger(0)
				}
				_ = conn.Close()
			}
			return
		}
		fmt.Fprint(w, "done")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	post := func(path string, sending func() error) (string, error) {
		return send(t, oncehttp.NewClient(maxHeader), &oncehttp.Request{Method: "POST", URL: s.URL + path, Body: []byte("x"), Sending: sending})
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file) // read once, at the first certificate that is checked

	no := fmt.Errorf("too late: %w", registry.ErrNotSent)
	if _, err := post("/", func() error { return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	if got, err := post("/", nil); err != nil || got != "200 OK done" {
		t.Error(got, err)
	}
	if _, err := post("/reset", nil); err == nil || errors.Is(err, registry.ErrNotSent) {
		t.Error(err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests arrived", n)
	}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	_, err := send(t, oncehttp.NewClient(maxHeader), &oncehttp.Request{Method: "POST", URL: "https://localhost:" + port, Body: []byte("x")})
	if !errors.Is(err, registry.ErrNotSent) || !strings.Contains(err.Error(), "certificate") { // of another name
		t.Error(err)
	}
}
