package badgerstore

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sync takes the right to write from each page it writes, in every map that has the page, and each time has the other
// processors forget that right: while they are busy, this takes longer than the disk does. So the pages that Badger wrote
// are taken out of its map before, all at once. Nothing is lost with that: what was written is in the kernel's cache,
// from which the sync writes it, and from which a page comes back that Badger writes to again (madvise(2), MADV_DONTNEED of
// a shared map).

// unmap takes what Badger has written of the log out of its map. Other memory would lose what it holds, so the kernel is
// asked each time what is at the address. That stays so meanwhile: Badger gives a map up only after it has begun another
// log, which only a commit makes it do. Where the kernel cannot tell, the map is left as it is; nothing but time depends
// on it.
func (t *tail) unmap() {
	if t.size == 0 {
		return
	}
	m, ok := locate(t.maps, t.file, t.mapped)
	if !ok {
		t.mapped = 0
		return
	}
	t.mapped = m.start
	n := min(uint64(t.used)|uint64(os.Getpagesize()-1)+1, m.end-m.start)
	syscall.Syscall(syscall.SYS_MADVISE, uintptr(m.start), uintptr(n), syscall.MADV_DONTNEED)
}

// memory is what this process has at an address or behind it, as the kernel tells: struct procmap_query of linux/fs.h, from
// Linux 6.11.
type memory struct {
	length, wanted, address uint64 // the question
	start, end              uint64
	mode, page              uint64
	offset, inode           uint64
	major, minor            uint32
	_                       [3]uint64 // names, which are not asked for
}

const (
	queryMemory  = 0xc0686611                // the ioctl, of /proc/self/maps
	sharedMemory = 0x02 | 0x08 | 0x10 | 0x20 // at the address or the next behind it, shared, of a file, to be written to
)

// locate returns where the beginning of a file is mapped, at an address or behind it.
func locate(maps, file *os.File, address uint64) (m memory, ok bool) {
	var info syscall.Stat_t
	if syscall.Fstat(int(file.Fd()), &info) != nil {
		return m, false
	}
	for {
		m = memory{length: uint64(unsafe.Sizeof(m)), wanted: sharedMemory, address: address}
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, maps.Fd(), queryMemory, uintptr(unsafe.Pointer(&m))); failed != 0 {
			return m, false // or there is no more
		}
		if m.inode == info.Ino && m.major == unix.Major(info.Dev) && m.minor == unix.Minor(info.Dev) && m.offset == 0 {
			return m, true
		}
		address = m.end
	}
}
