package hostroot

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"jettison/stats"

	"golang.org/x/sys/unix"
)

// StatFs reads the usage of the file system that a path of the host is on.
func (h *Root) StatFs(path string) (stats.FsStats, error) {
	asked := time.Now() // a late answer may be as old as the call
	fd, err := h.Open(path, unix.O_PATH)
	if err != nil {
		return stats.FsStats{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return stats.FsStats{}, fmt.Errorf("stat the host's %s: %w", path, err)
	}
	fs, err := Fstatfs(fd)
	if err != nil {
		return stats.FsStats{}, fmt.Errorf("statfs the host's %s: %w", path, err)
	}
	out := FsStats(&fs)
	out.Time, out.Path, out.Device, out.Disk = asked, path, st.Dev, h.disk(st.Dev, asked)
	return out, nil
}

// StatNearest reads the usage of the file system that a directory is on, or would be on once
// created: a node without a kubelet need not have the kubelet's directories.
func (h *Root) StatNearest(dir string) (stats.FsStats, error) {
	for {
		fs, err := h.StatFs(dir)
		if !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return fs, err
		}
		dir = path.Dir(dir)
	}
}

// Limits of the known disks: a device may be replaced by another one with its number.
const (
	diskValidFor = time.Minute
	maxDisks     = 64
)

// knownDisk is a result of findDisk.
type knownDisk struct {
	disk uint64
	at   time.Time
}

// disk returns the result of findDisk, which may be a minute old: to read sysfs takes longer than
// statfs.
func (h *Root) disk(device uint64, now time.Time) uint64 {
	h.mu.Lock()
	known, ok := h.disks[device]
	h.mu.Unlock()
	if ok && now.Sub(known.at) < diskValidFor {
		return known.disk
	}
	disk := h.findDisk(device)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.disks) >= maxDisks {
		clear(h.disks)
	}
	h.disks[device] = knownDisk{disk, now}
	return disk
}

// findDisk returns the device by which io.stat counts the I/O of a file system: a partition's whole
// disk, or the device itself, also if it is stacked on others (dm, md, loop). It returns 0 if the
// file system has no block device of its own (btrfs, ZFS, overlay, network), or sysfs does not show
// it.
func (h *Root) findDisk(device uint64) uint64 {
	at := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(device), unix.Minor(device))
	if h.deviceIn(at+"dev") != device {
		return 0
	}
	fd, err := h.Open(at+"partition", unix.O_PATH)
	if errors.Is(err, os.ErrNotExist) {
		return device
	}
	if err != nil {
		return 0
	}
	unix.Close(fd)
	return h.deviceIn(at + "../dev")
}

// deviceIn reads a device's number, MAJOR:MINOR, from a file of sysfs; 0: unknown.
func (h *Root) deviceIn(path string) uint64 {
	f, err := h.File(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	var major, minor uint32
	if _, err := fmt.Fscanf(f, "%d:%d\n", &major, &minor); err != nil {
		return 0
	}
	return unix.Mkdev(major, minor)
}

// FsStats converts a statfs answer. A file system that counts no inodes (btrfs, some network
// ones) or no bytes (ramfs, a tmpfs without a size) reports 0 of 0.
func FsStats(fs *unix.Statfs_t) stats.FsStats {
	unit := uint64(fs.Frsize)
	if unit == 0 {
		unit = uint64(fs.Bsize)
	}
	var out stats.FsStats
	if fs.Blocks > 0 {
		out.AvailableBytes, out.CapacityBytes, out.UsedBytes = stats.Some(fs.Bavail*unit),
			stats.Some(fs.Blocks*unit), stats.Some((fs.Blocks-min(fs.Bfree, fs.Blocks))*unit)
	}
	if fs.Files > 0 {
		out.InodesFree, out.Inodes, out.InodesUsed = stats.Some(fs.Ffree), stats.Some(fs.Files),
			stats.Some(fs.Files-min(fs.Ffree, fs.Files))
	}
	return out
}

// Fstatfs calls fstatfs(2) and repeats it after a signal.
func Fstatfs(fd int) (fs unix.Statfs_t, err error) {
	err = ignoringEINTR(func() error { return unix.Fstatfs(fd, &fs) })
	return fs, err
}

// IsMountRoot reports whether a descriptor is the root of a mount. If it is not, or the kernel does
// not tell (before v5.8), statfs describes more than the directory.
func IsMountRoot(fd int) bool {
	var st unix.Statx_t
	err := ignoringEINTR(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, 0, &st)
	})
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// IsTmpfsRoot reports whether a descriptor on a tmpfs is its root directory, which is its first inode
// (v5.14, v6.12 mm/shmem.c shmem_reserve_inode).
func IsTmpfsRoot(fd int) bool {
	var st unix.Stat_t
	return ignoringEINTR(func() error { return unix.Fstat(fd, &st) }) == nil && st.Ino == 1
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
