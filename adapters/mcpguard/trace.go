package mcpguard

import (
	"encoding/json"
	"net/http"
	"regexp"
)

// The members of _meta in which trace context is handed on, named as the HTTP headers are (W3C Trace Context).
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

var (
	traceParentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	traceStateForm  = regexp.MustCompile(`^[ -~]{1,512}$`)
)

// traced returns a request's _meta with the trace context of its HTTP headers, unless it has one of its own.
func traced(meta json.RawMessage, headers http.Header) json.RawMessage {
	parent := headers.Values(traceParent)
	if len(parent) != 1 || !traceParentForm.MatchString(parent[0]) {
		return meta
	}
	o, err := parseObject(meta)
	if err != nil && len(meta) > 0 && string(meta) != "null" || o.get(traceParent) != nil {
		return meta
	}
	o = o.with(traceParent, quote(parent[0]))
	if state := headers.Values(traceState); len(state) == 1 && traceStateForm.MatchString(state[0]) {
		o = o.with(traceState, quote(state[0]))
	}
	return o.raw()
}
