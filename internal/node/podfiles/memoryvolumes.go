package podfiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/stats/read"
)

// MemoryVolumes unmounts the memory-backed emptyDirs (tmpfs) of a pod that is gone, and returns the
// number of bytes that they held. Volumes on disk stay, and so do the empty directories. It touches
// only tmpfs mounts and follows no symbolic link.
func (r *Remover) MemoryVolumes(ctx context.Context, uid string) (bytes uint64, err error) {
	if checkName(uid) != nil {
		return 0, fmt.Errorf("unmount volumes of a pod: %.64q is not a valid UID", uid)
	}
	base, err := r.Host.Dir(strings.TrimRight(r.RootDir, "/") + "/pods")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("unmount volumes of pod %s: %w", uid, err)
	}
	dir := base
	for _, name := range []string{uid, volumes, emptyDirPlugin} {
		next, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC,
			0)
		unix.Close(dir)
		if errors.Is(err, unix.ENOENT) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("unmount volumes of pod %s: open %s: %w", uid, name, err)
		}
		dir = next
	}
	defer unix.Close(dir)
	entries, err := os.ReadDir("/proc/self/fd/" + strconv.Itoa(dir))
	if err != nil {
		return 0, fmt.Errorf("unmount volumes of pod %s: %w", uid, err)
	}
	var errs []error
	for _, e := range entries {
		held, err := r.unmountMemory(dir, e.Name())
		bytes += held
		if err != nil {
			errs = append(errs, fmt.Errorf("unmount volume %s of pod %s: %w", e.Name(), uid, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return bytes, errors.Join(errs...)
}

// unmountMemory unmounts one volume if it is a tmpfs.
func (r *Remover) unmountMemory(dir int, name string) (bytes uint64, err error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, nil // not a directory, so not a volume
	}
	var fs unix.Statfs_t
	err = unix.Fstatfs(fd, &fs)
	own := read.IsMountRoot(fd) // else a directory of a node whose root is a tmpfs
	unix.Close(fd)
	if err != nil || fs.Type != unix.TMPFS_MAGIC || !own {
		return 0, err
	}
	if err := r.unmount(dir, name); err != nil {
		return 0, err
	}
	return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize), nil
}

// shortestID is the minimum length of a sandbox ID that is searched for in paths. containerd and
// CRI-O use 64 digits; a short ID could be the name of any directory.
const shortestID = 32

// SharedMemory unmounts the /dev/shm of a sandbox without processes, and returns the number of
// bytes that it held. A runtime may do that late or not at all: containerd unmounts it only for a
// ready sandbox (v2.4 internal/cri/server/sandbox_stop.go), so after a kill from outside the files
// stay in memory until the sandbox is removed. A missing mount, and one that the runtime unmounts
// concurrently, are no errors.
func (r *Remover) SharedMemory(sandbox string) (bytes uint64, err error) {
	points, err := r.sharedMemoryPoints(sandbox)
	if err != nil {
		return 0, fmt.Errorf("unmount /dev/shm of sandbox %s: %w", sandbox, err)
	}
	var errs []error
	for _, point := range points {
		held, err := r.unmountShared(point)
		bytes += held
		if err == nil {
			continue
		}
		if left, again := r.sharedMemoryPoints(sandbox); again != nil || slices.Contains(left, point) {
			errs = append(errs, fmt.Errorf("unmount /dev/shm of sandbox %s, %s: %w", sandbox, point, err))
		}
	}
	return bytes, errors.Join(errs...)
}

// sharedMemoryPoints returns the mount points of a sandbox's /dev/shm: a whole tmpfs with a path
// that contains the sandbox's ID and ends in "/shm" (containerd:
// /run/containerd/io.containerd.grpc.v1.cri/sandboxes/ID/shm; CRI-O:
// /run/containers/storage/overlay-containers/ID/userdata/shm).
func (r *Remover) sharedMemoryPoints(sandbox string) (points []string, err error) {
	if len(sandbox) < shortestID || checkName(sandbox) != nil {
		return nil, nil
	}
	mounts, err := readMounts(cmp.Or(r.Proc, "/proc/thread-self") + "/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.FSType == "tmpfs" && m.Root == "/" && path.Base(m.Mountpoint) == "shm" &&
			slices.Contains(strings.Split(m.Mountpoint, "/"), sandbox) {
			points = append(points, m.Mountpoint)
		}
	}
	return points, nil
}

// unmountShared unmounts one mount point.
func (r *Remover) unmountShared(point string) (bytes uint64, err error) {
	dir, err := r.Host.Dir(path.Dir(point))
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	return r.unmountMemory(dir, path.Base(point))
}
