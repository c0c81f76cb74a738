package podfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"jettison/stats/read"

	"golang.org/x/sys/unix"
)

// MaxEntries bounds the names that List returns; a larger directory also returns an error.
const MaxEntries = 100_000

// Entry is a directory entry. Dir and Link give its own type: links are not followed.
type Entry struct {
	Name      string
	Dir, Link bool
}

// List lists a directory of the host, sorted by name. A missing directory has no entries.
func List(host *read.HostRoot, dir string) ([]Entry, error) {
	fd, err := host.Dir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names, err := namesIn(fd)
	if err != nil {
		return nil, fmt.Errorf("list %s on the host: %w", dir, err)
	}
	slices.Sort(names)
	if len(names) > MaxEntries {
		err = fmt.Errorf("list %s on the host: more than %d entries, the others are ignored", dir,
			MaxEntries)
		names = names[:MaxEntries]
	}
	out := make([]Entry, 0, len(names))
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil { // otherwise it was removed
			out = append(out, Entry{Name: name, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR,
				Link: st.Mode&unix.S_IFMT == unix.S_IFLNK})
		}
	}
	return out, err
}

// namesIn returns the names in a directory, MaxEntries+1 at most. The descriptor may be O_PATH.
func namesIn(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	names, err := f.Readdirnames(MaxEntries + 1)
	if len(names) > 0 || errors.Is(err, os.ErrNotExist) || errors.Is(err, io.EOF) {
		return names, nil
	}
	return names, err
}

// Dangling reports whether an entry of a host directory is a symbolic link to a missing file below
// PodLogsDir. A link to another place is an error, and so is an entry that is not a link.
func (r *Remover) Dangling(dir, name string) (bool, error) {
	fd, err := r.Host.Dir(dir)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return r.dangles(fd, name)
}

var errElsewhere = errors.New("link target is not in the pod log directory")

func (r *Remover) dangles(fd int, name string) (bool, error) {
	if err := checkName(name); err != nil {
		return false, err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err == unix.EINVAL {
		return false, errors.New("not a symbolic link")
	}
	if err != nil {
		return false, err
	}
	target := string(buf[:n])
	if rest, ok := strings.CutPrefix(target, strings.TrimRight(r.PodLogsDir, "/")+"/"); !ok ||
		path.Clean(target) != target || rest == "" {
		return false, errElsewhere
	}
	parent, err := r.Host.Dir(path.Dir(target))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(parent)
	var st unix.Stat_t
	err = unix.Fstatat(parent, path.Base(target), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return true, nil
	}
	return false, err
}

// Link removes a symbolic link from a host directory if it is still dangling. A missing link is no
// error.
func (r *Remover) Link(dir, name string) error {
	fd, err := r.Host.Dir(dir)
	if err != nil {
		return fmt.Errorf("remove link %.128q: %w", name, err)
	}
	defer unix.Close(fd)
	dangles, err := r.dangles(fd, name)
	switch {
	case err == unix.ENOENT:
		return nil
	case err == nil && !dangles:
		err = errors.New("link target exists")
	case err == nil:
		if err = unix.Unlinkat(fd, name, 0); err == unix.ENOENT {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("remove link %.128q in %s: %w", name, dir, err)
	}
	return nil
}

// ContainerLog deletes the log of a container that is gone, and its rotated files (the same name
// with a suffix after a dot, kubelet pkg/kubelet/logs GetAllLogs). file is the path reported by the
// runtime. It must be PodLogsDir/POD/CONTAINER/NAME, and only regular files are deleted. Missing
// files are no error.
func (r *Remover) ContainerLog(ctx context.Context, file string) (Result, error) {
	t := newTree(r.PodLogsDir)
	err := r.removeContainerLog(ctx, t, file)
	if err = t.error(err); err != nil {
		err = fmt.Errorf("remove container log %.200q: %w", file, err)
	}
	return t.result, err
}

func (r *Remover) removeContainerLog(ctx context.Context, t *tree, file string) error {
	rest, ok := strings.CutPrefix(file, strings.TrimRight(r.PodLogsDir, "/")+"/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 ||
		slices.ContainsFunc(parts, func(p string) bool { return checkName(p) != nil }) {
		return fmt.Errorf("not a log in %s/POD/CONTAINER", r.PodLogsDir)
	}
	fd, err := r.Host.Dir(r.PodLogsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { unix.Close(fd) }()
	for _, dir := range parts[:2] {
		next := t.openDir(fd, dir)
		if next < 0 {
			return nil // missing, or recorded in the tree
		}
		unix.Close(fd)
		fd = next
		t.enter(dir)
	}
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name != parts[2] && !strings.HasPrefix(name, parts[2]+".") {
			continue
		}
		if err := t.removeFile(fd, name); err != nil {
			return err
		}
	}
	return nil
}
