//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sharedstore

import (
	"errors"
	"os"
	"syscall"
)

// shared: processes of this system can share a folder.
const shared = true

// tryLock locks f as a whole, alone or shared, and reports whether it did. The kernel drops the lock with the process.
func tryLock(f *os.File, alone bool) (bool, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		}
		return err == nil, err
	}
}

// ownedByUs reports whether a file belongs to this process's user.
func ownedByUs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
