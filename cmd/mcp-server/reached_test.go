package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server that is reached by url: drafted from a client's file, checked, and served, with its header, which nothing shows.
func TestReachedByURL(t *testing.T) {
	office := newDesk(t)
	_, at := office.serveHTTP("--sample", "--http", "127.0.0.1:0", "--data", "ledger")
	target, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cr3t" {
			http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)

	d := newDesk(t)
	entry := map[string]any{"mcpServers": map[string]any{"office": map[string]any{
		"type": "http", "url": front.URL + target.Path, "headers": map[string]string{"Authorization": "Bearer ${OFFICE_TOKEN}"}}}}
	text, _ := json.Marshal(entry)
	d.write("mcp.json", string(text))
	d.env = append(d.env, "OFFICE_TOKEN=s3cr3t")
	d.good("init", "--from", "mcp.json")
	draft, err := os.ReadFile(filepath.Join(d.dir, "toolguard.yaml"))
	if err != nil || !strings.Contains(string(draft), "Authorization: \"Bearer ${OFFICE_TOKEN}\"") || !strings.Contains(string(draft), "office/create_ticket:") {
		t.Fatalf("%v\n%s", err, draft)
	}
	out := d.good("check")
	if !strings.Contains(out, "office/create_ticket") || strings.Contains(out, "s3cr3t") {
		t.Error(out)
	}
	_, served := d.serveHTTP("--http", "127.0.0.1:0", "--data", "mine")
	for _, want := range []string{`"outcome":"fresh"`, `"outcome":"replayed"`} {
		if text := d.post(served, "tools/call", "create_ticket", `"name":"create_ticket","arguments":{"title":"x"},`); !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}

	d.env = append(d.env, "OFFICE_TOKEN=wr0ng")
	out, errs, code := d.run("check")
	if code != 1 || !strings.Contains(out+errs, "HTTP 401 Unauthorized: it wants to know who calls; put what it wants under headers: you said …") || strings.Contains(out+errs, "wr0ng") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
