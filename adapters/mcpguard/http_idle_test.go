package mcpguard_test

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

// A thousand clients that only wait for news cost little, keep nobody from calling, get the news, and leave nothing
// behind; one more is refused.
func TestHTTPThousandIdleStreams(t *testing.T) {
	const streams = 1000
	s := newWorld(t, nil, "normal").site(&mcpguard.HTTPOptions{Streams: streams, Sessions: streams, Connections: 3 * streams})
	b := s.browser(true)
	b.tool("noisy", `{}`).is(t, "fresh")
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before, used := runtime.NumGoroutine(), memory()
	listen := b.request("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	head := "Host: " + s.address + "\r\nAccept: application/json, text/event-stream\r\n"
	modern := fmt.Sprintf("POST /mcp HTTP/1.1\r\n%sContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%s", head, len(listen), listen)
	var open []net.Conn
	for i := range streams {
		request := modern
		if i%2 == 0 {
			legacy := s.browser(false)
			request = fmt.Sprintf("GET /mcp HTTP/1.1\r\n%sMcp-Session-Id: %s\r\n\r\n", head, legacy.session)
			legacy.http.CloseIdleConnections()
		}
		c := s.raw(request)
		until(t, c, "text/event-stream")
		open = append(open, c)
	}
	if each := (memory() - used) / streams; each > 100<<10 {
		t.Errorf("%d KB for each stream, on both sides", each>>10)
	}
	r, err := b.send(t.Context(), listen, "subscriptions/listen", "")
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, r); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "busy") {
		t.Errorf("one more: %d %s", r.StatusCode, text)
	}
	b.tool("grow", `{}`).is(t, "fresh")
	for _, c := range open {
		until(t, c, "notifications/tools/list_changed")
		_ = c.Close()
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before+10; {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
		<-time.After(10 * time.Millisecond)
	}
	b.tool("exotic", `{}`).is(t, "fresh")
}
