package hostroot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read/hosttest"
)

func TestMissingHostRoot(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// Paths resolve within the host's root: absolute links start there again, and no path leads
// out.
func TestTheHostsRootIsNotLeft(t *testing.T) {
	root := t.TempDir()
	hosttest.Write(t, 10, root, "data/kubelet/pods/u/etc-hosts")
	hosttest.Write(t, 10, root, "var/x")
	for link, to := range map[string]string{"var/lib": "/data", "up": "../../../../../../../..", "out": "/etc"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, path := range []string{"/out/passwd", "/up/etc/passwd", "/../../../etc/passwd"} {
		if _, err := host.StatFs(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("opening %s: error %v, want os.ErrNotExist", path, err)
		}
	}
	if fs, err := host.StatNearest("/var/none/at/all"); err != nil || fs.Path != "/var" && fs.Path != "/" {
		t.Errorf("nearest file system of a missing directory = %+v, error %v", fs, err)
	}
	if fs, err := host.StatFs("/up"); err != nil || fs.CapacityBytes.V == 0 {
		t.Errorf("file system of the root = %+v, error %v", fs, err)
	}
}

// A file system without a size (ramfs, tmpfs with size=0) reports 0 of 0 bytes. It is not full.
func TestAFileSystemWithoutASize(t *testing.T) {
	if fs := FsStats(&unix.Statfs_t{Bsize: 4096, Files: 10, Ffree: 4}); fs.CapacityBytes.OK || fs.AvailableBytes.OK || fs.UsedBytes.OK || fs.InodesUsed.V != 6 {
		t.Errorf("figures of a file system without a size = %+v, want no bytes", fs)
	}
	if fs := FsStats(&unix.Statfs_t{Bsize: 4096, Blocks: 10}); fs.AvailableBytes != stats.Some[uint64](0) || fs.UsedBytes.V != 40960 {
		t.Errorf("figures of a full file system = %+v, want 0 available", fs)
	}
}

// io.stat counts by whole disk: a partition's is its parent in sysfs. A stacked device counts itself.
func TestDiskOfADevice(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"sys/devices/pci/block/sda/dev":            "8:0\n",
		"sys/devices/pci/block/sda/sda1/dev":       "8:1\n",
		"sys/devices/pci/block/sda/sda1/partition": "1\n",
		"sys/devices/virtual/block/dm-0/dev":       "254:0\n",
	} {
		hosttest.Write(t, 0, root, file)
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "sys/dev/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"8:0": "pci/block/sda", "8:1": "pci/block/sda/sda1", "254:0": "virtual/block/dm-0", "8:16": "pci/block/sda"} {
		if err := os.Symlink("../../devices/"+to, filepath.Join(root, "sys/dev/block", link)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for device, want := range map[uint64]uint64{
		unix.Mkdev(8, 1):   unix.Mkdev(8, 0),
		unix.Mkdev(8, 0):   unix.Mkdev(8, 0),
		unix.Mkdev(254, 0): unix.Mkdev(254, 0),
		unix.Mkdev(8, 16):  0, // sysfs shows another device
		unix.Mkdev(8, 2):   0,
		unix.Mkdev(0, 50):  0, // btrfs
	} {
		if got := host.findDisk(device); got != want {
			t.Errorf("disk of device %d:%d = %d:%d, want %d:%d", unix.Major(device), unix.Minor(device), unix.Major(got), unix.Minor(got), unix.Major(want), unix.Minor(want))
		}
	}
}

// A device's disk is read once a minute, and not at each statfs of a second. A device that replaced
// another one is found then.
func TestDiskIsReadOnceAMinute(t *testing.T) {
	root := t.TempDir()
	dev := filepath.Join(root, "sys/dev/block/8:0/dev")
	hosttest.Write(t, 0, root, "sys/dev/block/8:0/dev")
	if err := os.WriteFile(dev, []byte("8:0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	host, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	device, now := unix.Mkdev(8, 0), time.Now()
	if got := host.disk(device, now); got != device {
		t.Errorf("disk = %d, want the device %d", got, device)
	}
	if err := os.Remove(dev); err != nil {
		t.Fatal(err)
	}
	if got := host.disk(device, now.Add(diskValidFor-time.Second)); got != device {
		t.Errorf("disk within a minute = %d, want the known %d", got, device)
	}
	if got := host.disk(device, now.Add(diskValidFor)); got != 0 {
		t.Errorf("disk after a minute = %d, want 0: sysfs has no such device", got)
	}
	for i := range uint32(3 * maxDisks) {
		host.disk(unix.Mkdev(9, i), now)
	}
	if n := len(host.disks); n > maxDisks {
		t.Errorf("known disks = %d, want at most %d", n, maxDisks)
	}
}
