package e2e_test

import (
	"encoding/json"
	"fmt"
)

// A picture of one pixel, and a sound of none.
const (
	picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	sound   = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
)

// fixtureTool is a tool of the fixture. The suite names it and says what it has to do.
type fixtureTool struct {
	name   string
	schema string // "": takes nothing
	act    func(f *fixture, p *fixtureParams) (object, *fault)
}

var fixtureTools = []fixtureTool{
	{"test_simple_text", "", says(text("This is a simple text response for testing."))},
	{"test_image_content", "", says(object{"type": "image", "data": picture, "mimeType": "image/png"})},
	{"test_audio_content", "", says(object{"type": "audio", "data": sound, "mimeType": "audio/wav"})},
	{"test_embedded_resource", "", says(embedded("test://embedded-resource", "text/plain", "embedded"))},
	{"test_multiple_content_types", "", says(
		text("Multiple content types test:"), object{"type": "image", "data": picture, "mimeType": "image/png"},
		embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
	)},
	{"test_error_handling", "", refuses("This tool intentionally returns an error for testing")},
	{"test_tool_with_logging", "", logs},
	{"test_logging_tool", "", logs},
	{"test_tool_with_progress", "", progresses},
	{"test_reconnection", "", says(text("reconnected"))},
	{"json_schema_2020_12_tool", richSchema, says(text("taken"))},
	{"test_custom_header", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}},"required":["region"]}`, says(text("there"))},
	{"test_trigger_tool_change", "", grows("tools")},
	{"test_trigger_prompt_change", "", grows("prompts")},

	// What a server of the handshake asks of its client, it asks only of one that can: the guard tells it that none can.
	{"test_sampling", `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`, refuses("the client cannot sample")},
	{"test_elicitation", `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`, refuses("the client cannot be asked")},
	{"test_elicitation_sep1034_defaults", "", refuses("the client cannot be asked")},
	{"test_elicitation_sep1330_enums", "", refuses("the client cannot be asked")},

	{"test_missing_capability", "", needs("sampling", says(text("sampled")))},
	{"test_streaming_elicitation", "", asking("", object{"user_name": elicit("What is your name?", "name", "string")})},
	{"test_input_required_result_elicitation", "", asking("", object{"user_name": elicit("What is your name?", "name", "string")})},
	{"test_input_required_result_sampling", "", asking("", object{"capital_question": sample("What is the capital of France?")})},
	{"test_input_required_result_list_roots", "", asking("", object{"client_roots": object{"method": "roots/list", "params": object{}}})},
	{"test_input_required_result_request_state", "", asking("opened", object{"confirm": elicit("Please confirm", "ok", "boolean")})},
	{"test_input_required_result_tampered_state", "", asking("signed", object{"confirm": elicit("Please confirm", "ok", "boolean")})},
	{"test_input_required_result_multiple_inputs", "", asking("three", object{
		"user_name":    elicit("What is your name?", "name", "string"),
		"greeting":     sample("Generate a greeting"),
		"client_roots": object{"method": "roots/list", "params": object{}},
	})},
	{"test_input_required_result_multi_round", "", func(f *fixture, p *fixtureParams) (object, *fault) {
		switch {
		case given(p, "step2") != nil && p.State == "second":
			return says(text("both steps done"))(f, p)
		case given(p, "step1") != nil && p.State == "first":
			return asks("second", object{"step2": elicit("Step 2: What is your favorite color?", "color", "string")})
		}
		return asks("first", object{"step1": elicit("Step 1: What is your name?", "name", "string")})
	}},
	{"test_input_required_result_capabilities", "", func(_ *fixture, p *fixtureParams) (object, *fault) {
		requests := object{}
		if p.Meta.Capabilities["sampling"] != nil {
			requests["greeting"] = sample("Generate a greeting")
		}
		if p.Meta.Capabilities["elicitation"] != nil {
			requests["user_name"] = elicit("What is your name?", "name", "string")
		}
		return asks("", requests)
	}},
}

const richSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
"additionalProperties":false}`

func (f *fixture) tools() []object {
	var all []object
	for _, t := range fixtureTools {
		if t.schema == "" {
			t.schema = `{"type":"object"}`
		}
		all = append(all, object{"name": t.name, "description": "A tool of the fixture.", "inputSchema": json.RawMessage(t.schema)})
	}
	if f.grown["tools"] {
		all = append(all, object{"name": "grown", "description": "A tool that came later.", "inputSchema": json.RawMessage(`{"type":"object"}`)})
	}
	return all
}

func (f *fixture) call(p *fixtureParams) (object, *fault) {
	for _, t := range fixtureTools {
		if t.name == p.Name {
			return t.act(f, p)
		}
	}
	return nil, &fault{Code: -32602, Message: "no such tool: " + p.Name}
}

func text(s string) object { return object{"type": "text", "text": s} }

func embedded(uri, kind, s string) object {
	return object{"type": "resource", "resource": object{"uri": uri, "mimeType": kind, "text": s}}
}

func says(content ...object) func(*fixture, *fixtureParams) (object, *fault) {
	return func(*fixture, *fixtureParams) (object, *fault) { return object{"content": content}, nil }
}

func refuses(words string) func(*fixture, *fixtureParams) (object, *fault) {
	return func(*fixture, *fixtureParams) (object, *fault) {
		return object{"content": []object{text(words)}, "isError": true}, nil
	}
}

func logs(f *fixture, p *fixtureParams) (object, *fault) {
	if !f.modern || p.Meta.Level != "" {
		for _, words := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			f.tell("notifications/message", object{"level": "info", "data": words})
		}
	}
	return says(text("logged"))(f, p)
}

func progresses(f *fixture, p *fixtureParams) (object, *fault) {
	for _, done := range []int{0, 50, 100} {
		if p.Meta.Progress != nil {
			f.tell("notifications/progress", object{"progressToken": p.Meta.Progress, "progress": done, "total": 100})
		}
	}
	return says(text("progressed"))(f, p)
}

// grows adds to a list, or takes it away again, and tells so.
func grows(list string) func(*fixture, *fixtureParams) (object, *fault) {
	return func(f *fixture, p *fixtureParams) (object, *fault) {
		f.grown[list] = !f.grown[list]
		f.tell("notifications/"+list+"/list_changed", object{})
		return says(text("grown"))(f, p)
	}
}

// needs refuses a client that has not said that it can do something.
func needs(capability string, act func(*fixture, *fixtureParams) (object, *fault)) func(*fixture, *fixtureParams) (object, *fault) {
	return func(f *fixture, p *fixtureParams) (object, *fault) {
		if p.Meta.Capabilities[capability] == nil {
			return nil, &fault{Code: -32021, Message: "the client lacks " + capability, Data: object{"requiredCapabilities": object{capability: object{}}}}
		}
		return act(f, p)
	}
}

// asking asks its client until everything that was asked for is there, with the state that went along.
func asking(state string, requests object) func(*fixture, *fixtureParams) (object, *fault) {
	return func(f *fixture, p *fixtureParams) (object, *fault) {
		if p.State != "" && p.State != state {
			return nil, &fault{Code: -32602, Message: "this state is not mine"}
		}
		for name := range requests {
			if given(p, name) == nil {
				return asks(state, requests)
			}
		}
		return says(text(fmt.Sprintf("Hello! state-ok, answered: %d", len(requests))))(f, p)
	}
}

func asks(state string, requests object) (object, *fault) {
	result := object{"resultType": "input_required", "inputRequests": requests}
	if state != "" {
		result["requestState"] = state
	}
	return result, nil
}

// given is the client's answer to a request, if it is one.
func given(p *fixtureParams, name string) object {
	var answer object
	_ = json.Unmarshal(p.Input[name], &answer)
	return answer
}

func elicit(message, field, kind string) object {
	return object{"method": "elicitation/create", "params": object{"mode": "form", "message": message, "requestedSchema": object{
		"type": "object", "properties": object{field: object{"type": kind}}, "required": []string{field},
	}}}
}

func sample(words string) object {
	return object{"method": "sampling/createMessage", "params": object{
		"messages": []object{{"role": "user", "content": text(words)}}, "maxTokens": 50,
	}}
}
