//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package badgerstore

import "os"

// flock leaves it to Badger's own lock to keep a second process out.
func flock(*os.File) (bool, error) { return true, nil }
