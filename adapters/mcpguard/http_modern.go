package mcpguard

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/registry"
)

// era is what a message over HTTP says about its protocol version, in its header and in its _meta.
type era struct {
	header, meta string
	last         bool // it has a Last-Event-ID
	modern       bool // it is of the stateless protocol: one of the two says so
	first        bool // it begins a handshake, which agrees on a version
}

func eraOf(h http.Header, o object) era {
	params, _ := parseObject(o.get("params"))
	meta, _ := parseObject(params.get("_meta"))
	e := era{
		header: h.Get(mcp.HeaderProtocolVersion), meta: meta.text(mcp.MetaKeyProtocolVersion),
		last: h.Get(mcp.HeaderLastEventID) != "", first: o.text("method") == string(mcp.MethodInitialize),
	}
	e.modern = mcp.IsModernProtocol(e.meta) || mcp.IsModernProtocol(e.header)
	return e
}

// fault says why a message of this era is not taken.
func (e era) fault() (status int, problem *registry.ProtocolError) {
	bad := func(code int, what string) (int, *registry.ProtocolError) {
		return http.StatusBadRequest, &registry.ProtocolError{Code: code, Message: what}
	}
	switch {
	case !e.modern && !e.first && e.header != "" && !mcp.IsValidProtocolVersion(e.header):
		return bad(mcp.INVALID_REQUEST, "unsupported protocol version "+e.header)
	case !e.modern:
		return 0, nil
	case e.last:
		return bad(mcp.HEADER_MISMATCH, "streams cannot be resumed in this protocol version; send the request again under a new id")
	case e.header == "":
		return bad(mcp.HEADER_MISMATCH, "the header "+mcp.HeaderProtocolVersion+" is missing")
	case e.meta == "":
		return bad(mcp.INVALID_PARAMS, "_meta has no "+mcp.MetaKeyProtocolVersion)
	case e.header != e.meta:
		return bad(mcp.HEADER_MISMATCH, "the header "+mcp.HeaderProtocolVersion+" and _meta name different versions")
	case !mcp.IsValidProtocolVersion(e.meta):
		answer := mcp.UnsupportedProtocolVersionError{Version: e.meta, Supported: mcp.ValidProtocolVersions}.JSONRPCError()
		return http.StatusBadRequest, &registry.ProtocolError{Code: answer.Error.Code, Message: answer.Error.Message, Data: errorData(answer.Error.Data)}
	}
	return 0, nil
}

// headerFault checks the headers of a stateless request that say again what is in it.
func (f *front) headerFault(h http.Header, e era, method string, params json.RawMessage) *registry.ProtocolError {
	if !e.modern {
		return nil
	}
	err := mcp.ValidateStandardHeaders(h.Get, e.meta, mcp.MCPMethod(method), params)
	if err == nil && method == string(mcp.MethodToolsCall) {
		o, _ := parseObject(params)
		if tool := f.gateway.server.GetTool(o.text("name")); tool != nil {
			err = mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
				values := h.Values(name)
				if len(values) == 0 {
					return "", false
				}
				return values[0], true
			}, &tool.Tool, params)
		}
	}
	if err == nil {
		return nil
	}
	code := mcp.INVALID_PARAMS
	if errors.As(err, new(mcp.HeaderMismatchError)) {
		code = mcp.HEADER_MISMATCH
	}
	return &registry.ProtocolError{Code: code, Message: err.Error()}
}

// statusOf is the HTTP status that a JSON-RPC error has in an era.
func statusOf(modern bool, code int) int {
	if !modern {
		return http.StatusOK
	}
	switch code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION,
		mcp.INVALID_REQUEST, mcp.INVALID_PARAMS, mcp.PARSE_ERROR:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
