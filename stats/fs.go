package stats

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// FsStats is one file system, by statfs(2); sizes in bytes.
type FsStats struct {
	Time           time.Time
	Path           string      // that was asked, in the host's view
	Device         uint64      // st_dev
	AvailableBytes Opt[uint64] // f_bavail: what an ordinary user may still write
	CapacityBytes  Opt[uint64] // f_blocks
	UsedBytes      Opt[uint64] // f_blocks - f_bfree; of an image store in a Summary: the runtime's word, where it has one
	InodesFree     Opt[uint64] // f_ffree; absent where the file system has no fixed number of inodes
	Inodes         Opt[uint64] // f_files
	InodesUsed     Opt[uint64]
}

// Layout says which of the node's file systems are the same (kubelet pkg/kubelet/eviction/helpers.go, v1.36).
type Layout struct {
	DedicatedImageFs bool // images are not on the device of the kubelet's root directory
	SplitContainerFs bool // writable layers are not on the device of the images
}

// statFs asks for the file system that a path of the host lies on.
func (h *HostRoot) statFs(path string) (FsStats, error) {
	asked := time.Now() // an answer that took long to come may be as old as the question
	fd, err := h.open(path, unix.O_PATH)
	if err != nil {
		return FsStats{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return FsStats{}, fmt.Errorf("stat the host's %s: %w", path, err)
	}
	var fs unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return FsStats{}, fmt.Errorf("statfs the host's %s: %w", path, err)
	}
	out := fsStats(&fs)
	out.Time, out.Path, out.Device = asked, path, st.Dev
	return out, nil
}

// statNearest asks for the file system that a directory lies on, or would lie on once it is made: a node without a kubelet need
// not have the kubelet's.
func (h *HostRoot) statNearest(dir string) (FsStats, error) {
	for {
		fs, err := h.statFs(dir)
		if !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return fs, err
		}
		dir = path.Dir(dir)
	}
}

// fsStats takes the figures of a statfs answer. A file system that counts no inodes (btrfs, some network ones) says 0 of 0.
func fsStats(fs *unix.Statfs_t) FsStats {
	unit := uint64(fs.Frsize)
	if unit == 0 {
		unit = uint64(fs.Bsize)
	}
	out := FsStats{AvailableBytes: Some(fs.Bavail * unit), CapacityBytes: Some(fs.Blocks * unit), UsedBytes: Some((fs.Blocks - min(fs.Bfree, fs.Blocks)) * unit)}
	if fs.Files > 0 {
		out.InodesFree, out.Inodes, out.InodesUsed = Some(fs.Ffree), Some(fs.Files), Some(fs.Files-min(fs.Ffree, fs.Files))
	}
	return out
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// layout compares devices. Absent: one of them is not known.
func layout(node, image, container Opt[FsStats], split bool) Opt[Layout] {
	if !node.OK || !image.OK || split && !container.OK {
		return Opt[Layout]{}
	}
	return Some(Layout{
		DedicatedImageFs: image.V.Device != node.V.Device,
		SplitContainerFs: split && container.V.Device != image.V.Device,
	})
}
