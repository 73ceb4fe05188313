//go:build unix && !linux

package mcpguard

import "syscall"

// dieWithParent does nothing here: when this process is killed, the child sees its stdin end.
func dieWithParent(*syscall.SysProcAttr) {}
