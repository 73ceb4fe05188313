package badgerstore

import "testing"

func TestNetworkFileSystemsUnderFUSEAreKnown(t *testing.T) {
	mounts := "22 1 254:0 / / rw - ext4 /dev/vda rw\n" +
		"40 22 0:45 / /mnt/far rw,nosuid shared:7 - fuse.sshfs host:/ rw\n" +
		"41 22 0:46 / /mnt/near rw - fuse.ntfs /dev/vdb rw\n"
	for device, want := range map[string]string{"0:45": "sshfs", "0:46": "", "254:0": "", "9:9": ""} {
		if got := fuseKind(mounts, device); got != want {
			t.Errorf("%s: got %q, want %q", device, got, want)
		}
	}
	if err := refuseNetwork(t.TempDir()); err != nil {
		t.Error(err)
	}
}
