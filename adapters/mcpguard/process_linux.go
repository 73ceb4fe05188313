package mcpguard

import "syscall"

// dieWithParent has the kernel kill the child when the thread that started it ends, as it does when this process
// is killed. What the child itself started sees only its stdin end.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
