package mcpguard_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"toolguard.dev/adapters/mcpguard"
)

func TestTraceContextOfHeaders(t *testing.T) {
	const parent, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"
	for _, test := range []struct {
		meta    string
		headers http.Header
		want    string
	}{
		{``, nil, ``},
		{``, http.Header{"Traceparent": {parent}}, `{"traceparent":"` + parent + `"}`},
		{`null`, http.Header{"Traceparent": {parent}}, `{"traceparent":"` + parent + `"}`},
		{`{"a":1}`, http.Header{"Traceparent": {parent}, "Tracestate": {"v=1"}}, `{"a":1,"traceparent":"` + parent + `","tracestate":"v=1"}`},
		{`{"traceparent":"` + other + `"}`, http.Header{"Traceparent": {parent}}, `{"traceparent":"` + other + `"}`},
		{`{}`, http.Header{"Traceparent": {parent, other}}, `{}`},
		{`{}`, http.Header{"Traceparent": {"\"},{"}}, `{}`},
		{`{}`, http.Header{"Traceparent": {parent}, "Tracestate": {"\n"}}, `{"traceparent":"` + parent + `"}`},
	} {
		if got := string(mcpguard.Traced(json.RawMessage(test.meta), test.headers)); got != test.want {
			t.Errorf("%s with %v: %s, want %s", test.meta, test.headers, got, test.want)
		}
	}
}
