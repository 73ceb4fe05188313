// Package console serves a ledger to persons in a browser: what waits for them, operations and what became of them, what
// calls came to, and the tools with their policies. Pages are made on the server and work without script; a little script
// keeps them up to date. Everything shown comes from models and servers that nobody trusts, and never becomes markup.
package console
