package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DefaultMount is the usual mount point of cgroup v2.
const DefaultMount = "/sys/fs/cgroup"

// Errors that callers branch on. They are returned wrapped, with the file.
var (
	// ErrVanished: the cgroup was removed. Reading one of its kept files fails with ENODEV
	// (kernfs, v6.12 fs/kernfs/file.c).
	ErrVanished = errors.New("cgroup vanished")
	// ErrNotV2: the mounted file system is not a cgroup v2 hierarchy.
	ErrNotV2 = errors.New("not a cgroup v2 hierarchy")
	// ErrMalformed: a kernel file does not have the expected format.
	ErrMalformed = errors.New("malformed")
)

// FS is the root of a cgroup v2 hierarchy. Every path given to its methods is relative to that
// root and cannot leave it, neither by ".." nor by a symbolic link. An FS is safe for
// concurrent use, except for Close.
type FS struct {
	mount string
	fd    int
}

// Open opens the hierarchy mounted at a directory; empty means DefaultMount. If another file
// system is mounted there, it returns ErrNotV2 with its type.
func Open(mount string) (*FS, error) {
	if mount == "" {
		mount = DefaultMount
	}
	fs, err := OpenTree(mount)
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fs.fd, &st); err != nil {
		fs.Close()
		return nil, fmt.Errorf("statfs %s: %w", mount, err)
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		fs.Close()
		return nil, fmt.Errorf("%s: %w: %s", mount, ErrNotV2, describeMount(mount))
	}
	return fs, nil
}

// OpenTree opens a directory on any file system. Tests and replays use it to read recorded trees.
func OpenTree(dir string) (*FS, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &FS{mount: filepath.Clean(dir), fd: fd}, nil
}

// describeMount describes the file system mounted instead of cgroup v2, for an error message.
func describeMount(mount string) string {
	isV2 := func(dir string) bool {
		var st unix.Statfs_t
		return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
	}
	for _, dir := range []string{"unified", "systemd"} {
		if isV2(filepath.Join(mount, dir)) {
			return "cgroup v1 and v2 (hybrid)"
		}
	}
	if _, err := os.Stat(filepath.Join(mount, "memory", "memory.usage_in_bytes")); err == nil {
		return "cgroup v1"
	}
	return "another file system is mounted there"
}

// Mount returns the directory that the FS was opened at.
func (fs *FS) Mount() string { return fs.mount }

// ReadOnly reports whether the hierarchy is mounted read-only, as in an unprivileged container.
func (fs *FS) ReadOnly() bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fs.fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// Controllers returns the controllers available at the root: cgroup.controllers.
func (fs *FS) Controllers() ([]string, error) {
	g, err := fs.Group("")
	if err != nil {
		return nil, err
	}
	defer g.Close()
	b, err := g.read("cgroup.controllers", make([]byte, 4096))
	return strings.Fields(string(b)), err
}

// Close closes the descriptor. Open Groups stay usable.
func (fs *FS) Close() error { return unix.Close(fs.fd) }

// open opens a path beneath the root.
func (fs *FS) open(name string, flags uint64) (int, error) {
	name = strings.Trim(name, "/")
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := openat2(fs.fd, name, &how)
		// EAGAIN: a rename raced with the resolution (openat2(2))
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// openat2 is unix.Openat2 without the allocated copy of the path, because every look tries to open
// cgroups that do not exist.
func openat2(dir int, name string, how *unix.OpenHow) (int, error) {
	var path [256]byte
	if len(name) >= len(path) || strings.IndexByte(name, 0) >= 0 {
		return unix.Openat2(dir, name, how)
	}
	copy(path[:], name)
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(&path[0])),
		uintptr(unsafe.Pointer(how)),
		unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Group opens the cgroup at a path below the root; "" is the root itself. It returns ErrVanished
// for a cgroup that was removed or never existed.
func (fs *FS) Group(name string) (*Group, error) {
	g := &Group{dir: -1}
	if err := fs.GroupInto(name, g); err != nil {
		return nil, err
	}
	return g, nil
}

func (fs *FS) join(name string) string { return filepath.Join(fs.mount, name) }

// vanished turns the kernel's errors for a removed cgroup into ErrVanished.
func vanished(err error) error {
	if err == unix.ENODEV || err == unix.ENOENT {
		return ErrVanished
	}
	return err
}

// Children calls visit with the name of each child cgroup of a path, in the kernel's order. buf is
// scratch space; a few KiB are enough. A path that does not exist has no children. For repeated
// listing use Dir. For a path below which a tenant creates cgroups use ChildrenUntil.
func (fs *FS) Children(name string, buf []byte, visit func(name string)) error {
	return fs.ChildrenUntil(name, buf, func(name string) bool {
		visit(name)
		return true
	})
}

// ChildrenUntil does the same as Children, but ends when visit returns false: a path may have a
// hundred thousand children.
func (fs *FS) ChildrenUntil(name string, buf []byte, visit func(name string) bool) error {
	fd, err := fs.open(name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err == unix.ENOENT || err == unix.ENODEV {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", fs.join(name), err)
	}
	defer unix.Close(fd)
	err = listUntil(fd, buf, func(name []byte) bool { return visit(string(name)) })
	if err == unix.ENOENT { // the directory was removed while it was read
		return nil
	}
	if err != nil {
		return fmt.Errorf("list cgroup %s: %w", fs.join(name), err)
	}
	return nil
}
