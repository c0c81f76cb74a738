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
)

// MemoryVolumes unmounts the emptyDirs of a pod that is gone which lie in memory (tmpfs), and
// returns how many bytes they held. What lies on a disk stays. The directories stay, too, empty.
// Nothing that is no tmpfs is touched, and no symbolic link is followed.
func (r *Remover) MemoryVolumes(ctx context.Context, uid string) (bytes uint64, err error) {
	if checkName(uid) != nil {
		return 0, fmt.Errorf("unmount volumes of a pod: %.64q cannot be a UID", uid)
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
		return 0, nil // no directory: no volume
	}
	var fs unix.Statfs_t
	err = unix.Fstatfs(fd, &fs)
	unix.Close(fd)
	if err != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0, err
	}
	if err := r.unmount(dir, name); err != nil {
		return 0, err
	}
	return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize), nil
}

// shortestID is how long an id of a sandbox is at least that is looked for in paths: containerd and
// CRI-O make 64 digits, and something short may be the name of any directory.
const shortestID = 32

// SharedMemory unmounts the /dev/shm of a sandbox of which no process is left, and returns how many
// bytes it held. A runtime does that in its own time, or not: containerd only for a sandbox that it
// calls ready (v2.4 internal/cri/server/sandbox_stop.go), so after a kill from outside its files
// stay in memory until the sandbox is removed. No mount, and one that the runtime takes away
// meanwhile, are no errors.
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

// sharedMemoryPoints is where a sandbox's /dev/shm is mounted: a whole tmpfs whose path has the
// sandbox's id and ends in "/shm" (containerd:
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

// unmountShared unmounts one of them.
func (r *Remover) unmountShared(point string) (bytes uint64, err error) {
	dir, err := r.Host.Dir(path.Dir(point))
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	return r.unmountMemory(dir, path.Base(point))
}
