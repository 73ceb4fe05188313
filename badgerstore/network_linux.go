package badgerstore

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// networks are file systems by the magic number that statfs(2) gives them.
var networks = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xfe534d42: "SMB",
	0xff534d42: "CIFS",
	0x01021997: "9p",
	0x5346414f: "AFS",
	0x00c36400: "Ceph",
}

const fuse = 0x65735546

// refuseNetwork refuses a folder on a network file system.
func refuseNetwork(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ledger: %s: %w", dir, err)
	}
	magic := uint32(st.Type)
	name := networks[magic]
	if magic == fuse {
		name = fuseNetwork(dir)
	}
	if name == "" {
		return nil
	}
	return fmt.Errorf("ledger: %s lies on a network file system (%s), where locks and syncs cannot be relied on: use a local folder", dir, name)
}

// fuseNetwork is the kind of the FUSE file system that holds dir, if that one is known to be a network.
func fuseNetwork(dir string) string {
	var st syscall.Stat_t
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || syscall.Stat(dir, &st) != nil {
		return ""
	}
	return fuseKind(string(mounts), fmt.Sprintf("%d:%d", major(st.Dev), minor(st.Dev)))
}

func fuseKind(mounts, device string) string {
	for line := range strings.Lines(mounts) {
		place, rest, _ := strings.Cut(line, " - ")
		if f := strings.Fields(place); len(f) < 3 || f[2] != device {
			continue
		}
		kind, _, _ := strings.Cut(rest, " ")
		switch strings.TrimPrefix(kind, "fuse.") {
		case "sshfs", "rclone", "s3fs", "gcsfuse", "glusterfs", "davfs", "curlftpfs", "ceph":
			return strings.TrimPrefix(kind, "fuse.")
		}
	}
	return ""
}

func major(dev uint64) uint64 { return dev>>8&0xfff | dev>>32&^0xfff }
func minor(dev uint64) uint64 { return dev&0xff | dev>>12&^0xff }
