package remove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MemoryVolumes unmounts the emptyDirs of a pod that is gone which lie in memory (tmpfs), and returns how many bytes they held. What lies
// on a disk stays. The directories stay, too, empty. Nothing that is no tmpfs is touched, and no symbolic link is followed.
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
		next, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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
