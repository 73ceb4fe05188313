package badgerstore

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Badger's logs begin as holes. A sync of what was written into a hole has to bring to disk which blocks it got, too,
// through the journal of the file system: twice the time. So a log's blocks are written once before Badger comes to them,
// as databases do that fill their logs with zeros first (PostgreSQL's wal_init_zero).

// ahead is how many bytes of a log are written ahead at once.
const ahead = 1 << 20

// overwritten returns the size of a log if its file system writes over blocks in place, else 0: others gain nothing.
func overwritten(log *os.File) int64 {
	var fs syscall.Statfs_t
	info, err := log.Stat()
	if err != nil || syscall.Fstatfs(int(log.Fd()), &fs) != nil {
		return 0
	}
	switch uint32(fs.Type) {
	case 0xef53, 0x58465342: // ext2 to ext4, XFS
		return info.Size()
	}
	return 0
}

// writeAhead has the next sync write the blocks that Badger will come to, too, once it has come near. It changes no byte
// of the log. Where it fails it is given up: nothing but time depends on it.
func (t *tail) writeAhead() {
	for t.ready < min(t.used+ahead/2, t.size) {
		n := min(ahead, t.size-t.ready)
		if err := rewrite(int(t.file.Fd()), t.ready, n); err != nil {
			t.ready = t.size
			return
		}
		t.ready += n
	}
}

// rewrite has the next sync write a part of a file, as it is, whoever writes to it meanwhile. On a full disk it fails, where
// writing into a hole through a map kills the process; before Linux 5.14 it always fails.
func rewrite(fd int, from, n int64) error {
	b, err := syscall.Mmap(fd, from, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	err = syscall.Madvise(b, syscall.MADV_RANDOM) // page by page: of a larger piece each sync would write the whole
	if err == nil {
		err = whole(func() error { return syscall.Madvise(b, unix.MADV_POPULATE_WRITE) })
	}
	return errors.Join(os.NewSyscallError("madvise", err), os.NewSyscallError("munmap", syscall.Munmap(b)))
}
