package mcpguard_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

// TestMain: with MCP_TEST_SERVER set this binary is an MCP server instead, written by hand so that it can misbehave.
func TestMain(m *testing.M) {
	if mode := os.Getenv("MCP_TEST_SERVER"); mode != "" {
		serveTools(mode)
		return
	}
	os.Exit(m.Run())
}

// toolServer is a small MCP server. Every tool misbehaves in its own way; mode says how the server as a whole does.
type toolServer struct {
	mode  string
	extra []string             // tools added later
	held  map[string][]rpcCall // calls that wait for release
}

type rpcCall struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Cursor    string          `json:"cursor"`
		RequestID json.RawMessage `json:"requestId"`
		Level     string          `json:"level"`
		Input     json.RawMessage `json:"inputResponses"`
		State     string          `json:"requestState"`
		Meta      struct {
			Progress json.RawMessage `json:"progressToken"`
			Key      string          `json:"dev.toolguard/key"`
			Version  string          `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
		MetaRaw json.RawMessage `json:"-"`
	} `json:"params"`
	raw []byte
}

func serveTools(mode string) {
	if mode == "exit" {
		fmt.Fprintln(os.Stderr, "cannot find my configuration")
		os.Exit(3)
	}
	if mode == "host" {
		host()
		return
	}
	if mode == "stubborn" { // does not end by itself, nor what it starts
		signal.Ignore(syscall.SIGTERM)
		sleeper := exec.Command("/bin/sleep", "1000")
		if sleeper.Start() == nil {
			note("pids", fmt.Sprint(sleeper.Process.Pid))
		}
		note("pids", fmt.Sprint(os.Getpid()))
	}
	s := &toolServer{mode: mode, held: map[string][]rpcCall{}}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if mode == "stubborn" {
				select {}
			}
			return
		}
		var c rpcCall
		if json.Unmarshal(line, &c) != nil {
			continue
		}
		c.raw = line
		note("wire", string(line))
		s.handle(c)
		if mode == "deaf" && c.Method == "tools/list" {
			note("held", "deaf")
			select {}
		}
	}
}

// host is a process with an upstream, to be killed.
func host() {
	exe, _ := os.Executable()
	u, err := mcpguard.StartUpstream(mcpguard.Server{
		Name: "books", Command: exe, Env: []string{"MCP_TEST_SERVER=stubborn", "MCP_TEST_FOLDER=" + os.Getenv("MCP_TEST_FOLDER")},
	}, nil)
	if err == nil && u.Ready(context.Background()) == nil {
		note("held", "up")
		select {}
	}
}

// note appends a line to the file that the test reads.
func note(what, line string) {
	f, err := os.OpenFile(os.Getenv("MCP_TEST_FOLDER")+"/"+what, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, strings.TrimSpace(line))
}

func say(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

func (s *toolServer) result(c rpcCall, result string) {
	say(`{"result":%s,"jsonrpc":"2.0","id":%s}`, result, c.ID)
}

func (s *toolServer) handle(c rpcCall) {
	if strings.HasPrefix(s.mode, "library") {
		switch c.Method {
		case "initialize":
			s.result(c, `{"protocolVersion":"2025-11-25",`+libraryOffers+`,"serverInfo":{"name":"library","version":"1"}}`)
		default:
			s.library(c)
		}
		return
	}
	switch c.Method {
	case "initialize":
		if s.mode == "modern" {
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no handshake here"}}`, c.ID)
			return
		}
		if s.mode == "early" { // has news before it has answered the handshake
			say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			<-time.After(300 * time.Millisecond)
		}
		say("starting up, please wait") // no message: must be skipped
		s.result(c, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"books","title":"Books","version":"1.2"},"instructions":"Pay with care."}`)
	case "server/discover":
		s.result(c, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"Stateless.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"books","version":"2"}}}`)
	case "tools/list":
		s.list(c)
	case "tools/call":
		s.call(c)
	case "logging/setLevel":
		s.result(c, `{}`)
	case "subscriptions/listen":
		say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, c.ID)
	}
}

const plainSchema = `{"type":"object","properties":{"x":{}}}`

func tool(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"description":"does %s","inputSchema":%s%s}`, name, name, plainSchema, more)
}

func (s *toolServer) list(c rpcCall) {
	var tools []string
	next := ""
	switch {
	case s.mode == "many":
		from := 0
		fmt.Sscan(c.Params.Cursor, &from)
		for i := from; i < from+250; i++ {
			tools = append(tools, tool(fmt.Sprintf("tool_%04d", i), ""))
		}
		if from < 750 {
			next = fmt.Sprintf(`,"nextCursor":"%d"`, from+250)
		}
	case s.mode == "circle":
		next = `,"nextCursor":"again"`
	case s.mode == "right":
		tools = []string{tool("y", ""), tool("z", "")}
	case s.mode == "left":
		tools = []string{tool("x__y", ""), tool("w", "")}
	case s.mode == "hostile":
		tools = []string{
			tool("fine", ""), `{"name":"any","inputSchema":true}`, `{"name":"broken","inputSchema":{"type":"object","properties":{"x":{"$ref":"file:///etc/passwd"}}}}`,
			`{"description":"nameless","inputSchema":{"type":"object"}}`, tool("fine", ""), `"no tool at all"`,
			`{"name":"headers","inputSchema":{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"X"},"b":{"type":"string","x-mcp-header":"bad name\n"},"c":{"type":"string","x-mcp-header":7}}}}`,
			`{"name":"hints","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes","title":7}}`,
		}
	default:
		tools = []string{
			`{"name":"pay_invoice","title":"Pay","x-unknown":{"n":9007199254740993},"description":"pays","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"invoice_id":{"type":"string"},"amount":{"type":"number"}},"required":["invoice_id"]},"outputSchema":{"type":"object","properties":{"payment_id":{"type":"string"}},"required":["payment_id"],"additionalProperties":false},"execution":{"taskSupport":"required"},"annotations":{"readOnlyHint":false}}`,
			tool("get_balance", `,"annotations":{"readOnlyHint":true}`), tool("get_slow", `,"annotations":{"readOnlyHint":true}`), tool("get_release", `,"annotations":{"readOnlyHint":true}`),
			tool("set_mood", `,"annotations":{"readOnlyHint":false,"idempotentHint":true}`),
		}
		for _, name := range []string{"die", "hang", "garbage", "wrong_id", "duplicate", "exotic", "rpc_error", "huge", "noisy", "empty", "steps", "tell", "grow", "shrink", "error", "ask", "task", "large", "vast"} {
			tools = append(tools, tool(name, ""))
		}
		tools = append(tools, s.extra...)
	}
	s.result(c, fmt.Sprintf(`{"tools":[%s]%s}`, strings.Join(tools, ","), next))
}

func (s *toolServer) call(c rpcCall) {
	name := c.Params.Name
	if !strings.HasPrefix(name, "get_") {
		note("effects", name+" "+string(c.Params.Arguments))
	}
	text := func(t string) string { return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, t) }
	switch name {
	case "pay_invoice":
		s.result(c, `{"content":[{"type":"text","text":"paid"}],"structuredContent":{"payment_id":"P-1"}}`)
	case "hang", "get_slow":
		s.held[name] = append(s.held[name], c)
		note("held", name)
	case "get_release":
		for _, list := range s.held {
			for _, h := range list {
				s.result(h, text("late"))
			}
		}
		s.held = map[string][]rpcCall{}
		s.result(c, text("released"))
	case "die":
		os.Exit(9)
	case "garbage":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[`, c.ID)
	case "wrong_id":
		say(`{"jsonrpc":"2.0","id":987654,"result":%s}`, text("for nobody"))
		say(`{"jsonrpc":"2.0","id":"%s","result":%s}`, c.ID, text("for nobody either"))
		s.result(c, text("right"))
	case "duplicate":
		s.result(c, text("first"))
		s.result(c, text("second"))
	case "exotic":
		s.result(c, `{"content":[{"type":"hologram","beams":18446744073709551617},{"type":"text","text":"a<b\u00e9","annotations":{"n":1.10}}],"structuredContent":{"n":9007199254740993,"e":1e400},"_meta":{"trace":{"id":12345678901234567890}},"futureMember":[1,2,{"x":null}]}`)
	case "rpc_error":
		var a struct{ X int }
		_ = json.Unmarshal(c.Params.Arguments, &a)
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"as you wish"}}`, c.ID, a.X)
	case "huge":
		say(`{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"%s"}]},"id":%s}`, strings.Repeat("x", 33<<20), c.ID)
	case "vast":
		s.result(c, text(strings.Repeat("x", 6<<20)))
	case "noisy":
		say("about to work")
		say(`{"level":"info","id":%s,"msg":"structured logs are no messages"}`, c.ID)
		say("")
		s.result(c, text("worked"))
	case "empty":
		s.result(c, `{"content":[]}`)
	case "steps":
		for i := range 2 {
			say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":9007199254740993}}`, c.Params.Meta.Progress, i+1)
		}
		s.result(c, text("all steps done"))
	case "tell":
		for _, level := range []string{"debug", "error"} {
			say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"logger":"books","data":{"n":9007199254740993}}}`, level)
		}
		s.result(c, text("told"))
	case "grow", "shrink":
		var a struct{ X string }
		_ = json.Unmarshal(c.Params.Arguments, &a)
		s.extra = append(s.extra, tool(cmp.Or(a.X, "get_grown"), ""))
		if name == "shrink" {
			s.extra = nil
		}
		say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.result(c, text(name))
	case "error":
		s.result(c, `{"content":[{"type":"text","text":"Error: invoice not found"}],"isError":true}`)
	case "ask":
		if c.Params.Input == nil {
			s.result(c, `{"resultType":"input_required","inputRequests":{"sure":{"method":"elicitation/create","params":{"message":"sure?","requestedSchema":{"type":"object"}}}},"requestState":"s1"}`)
			return
		}
		s.result(c, text("answered "+c.Params.State))
	case "large":
		s.result(c, text(strings.Repeat("x", 1<<20)))
	case "task":
		s.result(c, `{"task":{"taskId":"t1","status":"working"}}`)
	case "get_env":
		s.result(c, text(strings.Join(os.Environ(), " ")))
	default:
		s.result(c, text("done "+name))
	}
}
