package mcpguard

import (
	"encoding/json"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Members that this package adds to what goes over the wire.
const (
	keyMember     = "dev.toolguard/key"     // in the _meta of requests to upstreams
	verdictMember = "dev.toolguard/verdict" // in the _meta of results, or in the data of a JSON-RPC error
	replayMember  = "_toolguard"            // in the structuredContent of replays
)

// reply is what goes back for one request: a result or a JSON-RPC error.
type reply struct {
	result  json.RawMessage
	problem *registry.ProtocolError
}

// shape is what rendering needs to know of a tool.
type shape struct {
	output  bool // it declared an output schema
	widened bool // and the listed one has room for replayMember
}

func shapeOf(t *toolguard.Tool) shape {
	_, widened := t.ListedOutput()
	return shape{output: t.HasOutput, widened: widened}
}

// render turns what the guard answered into what goes over the wire.
func render(r *toolguard.Result, s shape) reply {
	if !r.Guarded {
		if r.Answer.Result == nil && r.Answer.Error == nil {
			return reply{result: textResult(r.Text, true).raw()}
		}
		return reply{r.Answer.Result, r.Answer.Error}
	}
	verdict := encode(r.Verdict)
	o, problem := guarded(r, s, verdict)
	if problem != nil {
		return reply{problem: problem}
	}
	return reply{result: o.withVerdict(verdict).raw()}
}

// guarded is what a guarded call gets: a result, without the verdict in its _meta yet, or a JSON-RPC error.
func guarded(r *toolguard.Result, s shape, verdict json.RawMessage) (object, *registry.ProtocolError) {
	var own object // the tool's result
	if r.Answer.Result != nil {
		var err error
		if own, err = parseObject(r.Answer.Result); err != nil { // handlers give none such, and the ledger keeps none
			own = object{{"content", array(textBlock(string(r.Answer.Result)))}}
		}
	}
	switch {
	case r.Verdict.Outcome == toolguard.Pending && own != nil && r.Text == "":
		return own, nil // a question to the caller, or a task that goes on: the tool's own words, which settle nothing
	case r.Verdict.Outcome == toolguard.Fresh && r.Answer.Error != nil:
		e := *r.Answer.Error
		if len(e.Data) == 0 {
			e.Data = object{{verdictMember, verdict}}.raw()
		}
		return nil, &e
	case r.Verdict.Outcome == toolguard.Fresh && own != nil:
		return own.withText(r.Text), nil
	case r.Verdict.Outcome == toolguard.Fresh:
		return textResult(r.Text, r.Verdict.Status == toolguard.StatusFailed), nil
	case r.Verdict.Outcome == toolguard.Replayed && own != nil:
		own = own.withText(r.Text)
		if s.output && own.get("structuredContent") == nil {
			own = own.with("isError", json.RawMessage("true")) // or its client would throw
		}
		if s.widened {
			own = own.withMark(verdict)
		}
		return own, nil
	case r.Verdict.Outcome == toolguard.Replayed:
		// A client that knows the output schema takes a result without structuredContent only as an error.
		return textResult(r.Text, s.output), nil
	}
	return textResult(r.Text, true), nil
}

// textResult is a result of ours: one text, nothing else. Without a text it has no block, for hosts refuse empty ones.
func textResult(text string, isError bool) object {
	o := object{{"content", array()}}.withText(text)
	if isError {
		o = append(o, member{"isError", json.RawMessage("true")})
	}
	return o
}

func textBlock(text string) json.RawMessage {
	return object{{"type", json.RawMessage(`"text"`)}, {"text", quote(text)}}.raw()
}

// withVerdict adds the verdict to a result's _meta and leaves everything else as it is.
func (o object) withVerdict(verdict json.RawMessage) object {
	meta, _ := parseObject(o.get("_meta")) // anything else than an object has no meaning there
	return o.with("_meta", meta.with(verdictMember, verdict).raw())
}

// withText puts a text block in front of a result's content, if there is a text. Blocks that say nothing go: a model
// that is told "the result below" should not be shown an empty one.
func (o object) withText(text string) object {
	if text == "" {
		return o
	}
	blocks := []json.RawMessage{textBlock(text)}
	for _, raw := range parseArray(o.get("content")) {
		b, err := parseObject(raw)
		if err == nil && len(b) == 2 && b.text("type") == "text" && string(b.get("text")) == `""` {
			continue
		}
		blocks = append(blocks, raw)
	}
	return o.with("content", array(blocks...))
}

// withMark adds the verdict to a result's structuredContent, for clients that show the model nothing else.
func (o object) withMark(verdict json.RawMessage) object {
	content, err := parseObject(o.get("structuredContent"))
	if err != nil {
		return o
	}
	return o.with("structuredContent", content.with(replayMember, verdict).raw())
}

// modernResult adds what protocol version 2026-07-28 wants in every result.
func modernResult(result, server json.RawMessage) json.RawMessage {
	o, err := parseObject(result)
	if err != nil {
		return result
	}
	if o.get("resultType") == nil {
		o = o.with("resultType", quote(resultType(o)))
	}
	meta, _ := parseObject(o.get("_meta"))
	if meta.get(eraPrefix+"serverInfo") == nil {
		o = o.with("_meta", meta.with(eraPrefix+"serverInfo", server).raw())
	}
	return o.raw()
}

// resultType is what a result is that does not say so, as servers of earlier versions do not.
func resultType(o object) string {
	if task, err := parseObject(o.get("task")); err == nil && task.text("taskId") != "" {
		return "task"
	}
	if ask := o.get("inputRequests"); ask != nil && string(ask) != "null" {
		return "input_required"
	}
	return "complete"
}

// array is values as a JSON array.
func array(values ...json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
