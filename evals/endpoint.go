package evals

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"toolguard.dev/registry"
)

// endpoint is a downstream as an MCP server over HTTP, as far as it takes to list and call tools, and to fail at it.
type endpoint struct {
	world *World
	name  string
	tools []json.RawMessage
	// queries are the lookups that ask a tool, by its name
	queries map[string][]*query
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string                     `json:"name"`
			Arguments json.RawMessage            `json:"arguments"`
			Meta      map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	if err != nil || json.Unmarshal(text, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	reply := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	switch m.Method {
	case "initialize":
		reply["result"] = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": struct{}{}},
			"serverInfo": map[string]string{"name": e.name, "version": "1"}}
	case "ping":
		reply["result"] = struct{}{}
	case "tools/list":
		reply["result"] = map[string]any{"tools": e.tools}
	case "tools/call":
		meta, _ := json.Marshal(m.Params.Meta)
		d := &registry.Dispatch{Arguments: m.Params.Arguments, Meta: meta, Sending: func() error { return nil }, Sent: func() {}}
		_ = json.Unmarshal(m.Params.Meta["dev.toolguard/key"], &d.Key)
		var answer registry.Answer
		switch queries := e.queries[m.Params.Name]; {
		case queries == nil:
			answer, err = e.world.Handle(r.Context(), m.Params.Name, d)
		case e.world.Real != nil:
			answer, err = e.world.ask(m.Params.Name, d)
		default:
			answer, err = e.world.Find(queries, d.Arguments)
		}
		if err != nil {
			hangUp(w)
			return
		}
		reply["result"] = answer.Result
	default:
		reply["error"] = map[string]any{"code": -32601, "message": "there is no such method"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply)
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			_ = conn.SetDeadline(time.Now())
			_ = conn.Close()
		}
	}
}
