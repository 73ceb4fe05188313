//go:build !unix

package mcpguard

import "io"

// inbound is a descriptor of which it can be seen whether something waits to be read. There are none here.
type inbound struct{}

func inboundOf(io.Reader) *inbound { return nil }

func (*inbound) empty() bool { return false }

func (*inbound) wait() {}
