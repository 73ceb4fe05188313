//go:build !unix

package mcpguard

import (
	"os"
	"syscall"
)

// ownGroup: there are no process groups here. A child ends when its stdin does, or is killed alone.
func ownGroup() *syscall.SysProcAttr { return nil }

func terminateGroup(p *os.Process) { _ = p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }
