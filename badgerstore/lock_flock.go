//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package badgerstore

import (
	"errors"
	"os"
	"syscall"
)

// flock tries to lock f and reports whether it did.
func flock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
