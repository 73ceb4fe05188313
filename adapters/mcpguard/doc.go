// Package mcpguard puts a guard in front of MCP tools.
//
// There are three ways in. [OpenGateway] starts MCP servers as child processes, or connects to them over HTTP, and serves
// their tools, guarded, on stdio ([Gateway.ServeStdio]) and over HTTP ([Gateway.ServeHTTP]); their resources, prompts
// and completions it passes on. [Guard] wraps the tools of an mcp-go server in the same process. [Tools] serves
// tools that are registered with the guard already, such as Go functions and HTTP requests.
//
// The package translates and decides nothing: it finds tools, turns a tools/call into a [toolguard.Call], sends
// attempts, and renders a [toolguard.Result] on the wire. What is sent and received is kept as raw JSON, so that
// results and tool definitions come out equal to what the server said, exact numbers and unknown members included.
//
// It must not know a store, an identity rule or a status: whether something is dispatched, replayed or held is the
// guard's business alone.
package mcpguard
