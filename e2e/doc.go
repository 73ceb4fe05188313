// Package e2e runs the built mcp-server between MCP servers and clients that other people wrote, as a user would,
// and counts what really happened: lines in a file, commits in a repository, calls that reached the server.
//
// The servers and clients are pinned in node/package-lock.json. To run:
//
//	(cd e2e/node && npm ci)
//	go test ./e2e
//	go test ./e2e -run '^$' -bench .    # what the guard adds to a call
//
// Node 20 is enough. Without node or without node/node_modules the tests skip with the reason; with CI=true they fail.
// With E2E_UNGUARDED=1 the guard is taken out and the client talks to the server itself: every test that claims an
// effect of the guard must then fail.
//
// With E2E_SERVER=FILE that binary is tested instead of one built from the sources.
//
// How an answer gets lost: between the guard and the real server stands a tap, this test binary run again, which hands
// every tools/call and its answer to the test and waits for a word: pass it on, drop it, or die. Nothing is timed by
// sleeping.
package e2e
