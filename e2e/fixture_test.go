package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// fixture is the server that the conformance suite wants to find, with its tools, resources and prompts, on stdio. It
// speaks one era only, so that the guard meets a server of the era that it shows to its clients.
type fixture struct {
	modern bool
	out    *bufio.Writer
	grown  map[string]bool // lists that were changed: tools, prompts
}

// fixtureRequest is a message to the fixture.
type fixtureRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params fixtureParams   `json:"params"`
}

type fixtureParams struct {
	Name      string                     `json:"name"`
	URI       string                     `json:"uri"`
	Arguments map[string]any             `json:"arguments"`
	Input     map[string]json.RawMessage `json:"inputResponses"`
	State     string                     `json:"requestState"`
	Filter    map[string]any             `json:"notifications"`
	Meta      struct {
		Progress     json.RawMessage            `json:"progressToken"`
		Level        string                     `json:"io.modelcontextprotocol/logLevel"`
		Capabilities map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
	} `json:"_meta"`
}

// fault is a JSON-RPC error.
type fault struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
}

type object = map[string]any

// fixtureMain serves until its input ends.
func fixtureMain(era string) int {
	f := &fixture{modern: era == modern, out: bufio.NewWriter(os.Stdout), grown: map[string]bool{}}
	lines := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var r fixtureRequest
		if err := json.Unmarshal(line, &r); err != nil {
			if r.ID != nil {
				f.send(object{"id": r.ID, "error": fault{Code: -32602, Message: err.Error()}})
			}
			continue
		}
		if r.ID == nil || r.Method == "subscriptions/listen" && f.listen(&r) {
			continue
		}
		result, problem := f.answer(&r)
		if problem != nil {
			f.send(object{"id": r.ID, "error": problem})
			continue
		}
		if f.modern {
			if result["resultType"] == nil {
				result["resultType"] = "complete"
			}
			if strings.HasSuffix(r.Method, "/list") || strings.HasSuffix(r.Method, "/read") {
				result["ttlMs"], result["cacheScope"] = 0, "private"
			}
		}
		f.send(object{"id": r.ID, "result": result})
	}
}

func (f *fixture) send(message object) {
	message["jsonrpc"] = "2.0"
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(f.out, "%s\n", line)
	_ = f.out.Flush()
}

func (f *fixture) tell(method string, params object) {
	f.send(object{"method": method, "params": params})
}

// listen acknowledges a subscription, which ends with the process.
func (f *fixture) listen(r *fixtureRequest) bool {
	if f.modern {
		f.tell("notifications/subscriptions/acknowledged", object{
			"notifications": r.Params.Filter, "_meta": object{"io.modelcontextprotocol/subscriptionId": r.ID},
		})
	}
	return f.modern
}

func (f *fixture) answer(r *fixtureRequest) (object, *fault) {
	info := object{"name": "fixture", "version": "1"}
	capabilities := object{
		"tools": object{"listChanged": true}, "resources": object{"subscribe": true, "listChanged": true},
		"prompts": object{"listChanged": true}, "completions": object{}, "logging": object{},
	}
	switch {
	case r.Method == "initialize" && !f.modern:
		return object{"protocolVersion": legacy, "capabilities": capabilities, "serverInfo": info}, nil
	case r.Method == "server/discover" && f.modern:
		return object{"supportedVersions": []string{modern}, "capabilities": capabilities, "_meta": object{"io.modelcontextprotocol/serverInfo": info}}, nil
	case slices.Contains([]string{"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}, r.Method) && !f.modern:
		return object{}, nil
	}
	switch r.Method {
	case "tools/list":
		return object{"tools": f.tools()}, nil
	case "tools/call":
		return f.call(&r.Params)
	case "resources/list":
		return object{"resources": []object{
			{"uri": "test://static-text", "name": "text", "mimeType": "text/plain"},
			{"uri": "test://static-binary", "name": "binary", "mimeType": "image/png"},
			{"uri": "test://watched-resource", "name": "watched", "mimeType": "text/plain"},
		}}, nil
	case "resources/templates/list":
		return object{"resourceTemplates": []object{{"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}}}, nil
	case "resources/read":
		return f.read(r.Params.URI)
	case "prompts/list":
		return object{"prompts": f.prompts()}, nil
	case "prompts/get":
		return f.prompt(&r.Params)
	case "completion/complete":
		return object{"completion": object{"values": []string{"test", "testing"}, "total": 2, "hasMore": false}}, nil
	}
	return nil, &fault{Code: -32601, Message: "no such method: " + r.Method}
}

func (f *fixture) read(uri string) (object, *fault) {
	content := object{"uri": uri, "mimeType": "text/plain"}
	id, isTemplate := strings.CutPrefix(uri, "test://template/")
	switch {
	case uri == "test://static-text":
		content["text"] = "This is the content of the static text resource."
	case uri == "test://static-binary":
		content["mimeType"], content["blob"] = "image/png", picture
	case uri == "test://watched-resource":
		content["text"] = "watched"
	case isTemplate && strings.HasSuffix(id, "/data"):
		text, _ := json.Marshal(object{"id": strings.TrimSuffix(id, "/data"), "templateTest": true})
		content["mimeType"], content["text"] = "application/json", string(text)
	default:
		return nil, &fault{Code: -32602, Message: "no such resource", Data: object{"uri": uri}}
	}
	return object{"contents": []object{content}}, nil
}

func (f *fixture) prompts() []object {
	argument := func(names ...string) []object {
		all := []object{}
		for _, name := range names {
			all = append(all, object{"name": name, "required": true})
		}
		return all
	}
	all := []object{
		{"name": "test_simple_prompt", "description": "A prompt without arguments."},
		{"name": "test_prompt_with_arguments", "description": "A prompt with two.", "arguments": argument("arg1", "arg2")},
		{"name": "test_prompt_with_embedded_resource", "description": "A prompt with a resource in it.", "arguments": argument("resourceUri")},
		{"name": "test_prompt_with_image", "description": "A prompt with an image in it."},
		{"name": "test_input_required_result_prompt", "description": "A prompt that asks back."},
	}
	if f.grown["prompts"] {
		all = append(all, object{"name": "grown", "description": "A prompt that came later."})
	}
	return all
}

func (f *fixture) prompt(p *fixtureParams) (object, *fault) {
	says := func(contents ...object) (object, *fault) {
		var all []object
		for _, c := range contents {
			all = append(all, object{"role": "user", "content": c})
		}
		return object{"messages": all}, nil
	}
	switch p.Name {
	case "test_simple_prompt":
		return says(text("This is a simple prompt for testing."))
	case "test_prompt_with_arguments":
		return says(text(fmt.Sprintf("Prompt with arguments: arg1='%v', arg2='%v'", p.Arguments["arg1"], p.Arguments["arg2"])))
	case "test_prompt_with_embedded_resource":
		return says(embedded(fmt.Sprint(p.Arguments["resourceUri"]), "text/plain", "embedded"), text("Read it."))
	case "test_prompt_with_image":
		return says(object{"type": "image", "data": picture, "mimeType": "image/png"}, text("Look at it."))
	case "test_input_required_result_prompt":
		if given(p, "user_context") == nil {
			return asks("", object{"user_context": elicit("What is it about?", "context", "string")})
		}
		return says(text("It is about that."))
	}
	return nil, &fault{Code: -32602, Message: "no such prompt: " + p.Name}
}
