//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package sharedstore

import (
	"errors"
	"os"
)

// shared: this system has no locks that tell who lives; one process at a time has the folder.
const shared = false

// tryLock cannot tell who lives.
func tryLock(*os.File, bool) (bool, error) {
	return false, errors.ErrUnsupported
}

func ownedByUs(os.FileInfo) bool { return true }
