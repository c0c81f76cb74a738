package read

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"jettison/stats"

	"golang.org/x/sys/unix"
)

// statFs asks for the file system that a path of the host lies on.
func (h *HostRoot) statFs(path string) (stats.FsStats, error) {
	asked := time.Now() // an answer that took long to come may be as old as the question
	fd, err := h.open(path, unix.O_PATH)
	if err != nil {
		return stats.FsStats{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return stats.FsStats{}, fmt.Errorf("stat the host's %s: %w", path, err)
	}
	var fs unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return stats.FsStats{}, fmt.Errorf("statfs the host's %s: %w", path, err)
	}
	out := fsStats(&fs)
	out.Time, out.Path, out.Device = asked, path, st.Dev
	return out, nil
}

// statNearest asks for the file system that a directory lies on, or would lie on once it is made: a node without a kubelet need
// not have the kubelet's.
func (h *HostRoot) statNearest(dir string) (stats.FsStats, error) {
	for {
		fs, err := h.statFs(dir)
		if !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return fs, err
		}
		dir = path.Dir(dir)
	}
}

// fsStats takes the figures of a statfs answer. A file system that counts no inodes (btrfs, some network ones) says 0 of 0.
func fsStats(fs *unix.Statfs_t) stats.FsStats {
	unit := uint64(fs.Frsize)
	if unit == 0 {
		unit = uint64(fs.Bsize)
	}
	out := stats.FsStats{AvailableBytes: stats.Some(fs.Bavail * unit), CapacityBytes: stats.Some(fs.Blocks * unit),
		UsedBytes: stats.Some((fs.Blocks - min(fs.Bfree, fs.Blocks)) * unit)}
	if fs.Files > 0 {
		out.InodesFree, out.Inodes, out.InodesUsed = stats.Some(fs.Ffree), stats.Some(fs.Files), stats.Some(fs.Files-min(fs.Ffree, fs.Files))
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
func layout(node, image, container stats.Opt[stats.FsStats], split bool) stats.Opt[stats.Layout] {
	if !node.OK || !image.OK || split && !container.OK {
		return stats.Opt[stats.Layout]{}
	}
	return stats.Some(stats.Layout{
		DedicatedImageFs: image.V.Device != node.V.Device,
		SplitContainerFs: split && container.V.Device != image.V.Device,
	})
}
