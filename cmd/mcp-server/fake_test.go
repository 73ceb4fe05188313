package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// fakeServer is an MCP server that lists the tools it is given, as JSON, and answers each call with its environment.
// "" makes it one that cannot start, "!TEXT" one that says why, "-" one that never answers.
func fakeServer(tools string) int {
	if tools == "" {
		tools = "!no licence found"
	}
	if why, ok := strings.CutPrefix(tools, "!"); ok {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // so that it ends in the handshake, whichever process is quicker
		fmt.Fprintln(os.Stderr, why)
		return 3
	}
	if tools == "-" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		switch m.Method {
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}}`+"\n", m.ID)
		case "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":%s}}`+"\n", m.ID, tools)
		case "tools/call":
			text, _ := json.Marshal(os.Environ())
			text, _ = json.Marshal(string(text))
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", m.ID, text)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
		}
	}
	return 0
}
