//go:build linux || darwin

package badgerstore

import "syscall"

// freeBytes is how much of the disk under dir an ordinary user can still fill.
func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
