//go:build unix

package evals_test

import (
	"syscall"
	"time"
)

// processTime is how much processor time this process has used: unlike a rate it says the same on a busy machine.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
