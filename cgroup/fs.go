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

// DefaultMount is where cgroup v2 is mounted on a node that has nothing else.
const DefaultMount = "/sys/fs/cgroup"

// Errors that callers branch on. They come wrapped, with the file.
var (
	// ErrVanished: the cgroup was removed. Reading a kept file of it answers ENODEV (kernfs, v6.12
	// fs/kernfs/file.c).
	ErrVanished = errors.New("cgroup vanished")
	// ErrNotV2: what is mounted there is not a cgroup v2 hierarchy.
	ErrNotV2 = errors.New("not a cgroup v2 hierarchy")
	// ErrMalformed: the kernel's file does not have the shape this package knows.
	ErrMalformed = errors.New("malformed")
)

// FS is the root of a cgroup v2 hierarchy. Every path given to its methods is relative to that root
// and cannot leave it: not by "..", not by a symbolic link. An FS is safe for use by several
// goroutines at a time, but for Close.
type FS struct {
	mount string
	fd    int
}

// Open opens the hierarchy mounted at a directory; empty means DefaultMount. It returns ErrNotV2
// where another file system is mounted there, and says which.
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

// OpenTree opens a directory without asking what file system it is on: a recorded tree.
func OpenTree(dir string) (*FS, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &FS{mount: filepath.Clean(dir), fd: fd}, nil
}

// describeMount says what is mounted instead of cgroup v2, in words for an error message.
func describeMount(mount string) string {
	isV2 := func(dir string) bool {
		var st unix.Statfs_t
		return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
	}
	for _, dir := range []string{"unified", "systemd"} {
		if isV2(filepath.Join(mount, dir)) {
			return "cgroup v1 with v2 beside it (hybrid)"
		}
	}
	if _, err := os.Stat(filepath.Join(mount, "memory", "memory.usage_in_bytes")); err == nil {
		return "cgroup v1"
	}
	return "another file system is mounted there"
}

// Mount is the directory the FS was opened at.
func (fs *FS) Mount() string { return fs.mount }

// ReadOnly reports whether the hierarchy is mounted read-only, as in a container that is not
// privileged.
func (fs *FS) ReadOnly() bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fs.fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// Controllers are the controllers available at the root: cgroup.controllers.
func (fs *FS) Controllers() ([]string, error) {
	g, err := fs.Group("")
	if err != nil {
		return nil, err
	}
	defer g.Close()
	b, err := g.read("cgroup.controllers", make([]byte, 4096))
	return strings.Fields(string(b)), err
}

// Close gives the descriptor back. Groups that were opened stay usable.
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

// openat2 is unix.Openat2 without the copy of the path that it allocates: at every look it is asked
// for cgroups that are not there.
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

// Group opens the cgroup at a path below the root; "" is the root itself. A cgroup that does not
// exist is ErrVanished: to who looks for it, one that went away a moment ago and one that never was
// are the same.
func (fs *FS) Group(name string) (*Group, error) {
	g := &Group{dir: -1}
	if err := fs.GroupInto(name, g); err != nil {
		return nil, err
	}
	return g, nil
}

func (fs *FS) join(name string) string { return filepath.Join(fs.mount, name) }

// vanished turns the kernel's ways of saying that a cgroup is gone into ErrVanished.
func vanished(err error) error {
	if err == unix.ENODEV || err == unix.ENOENT {
		return ErrVanished
	}
	return err
}

// Children calls visit with the name of each cgroup directly below a path, in the kernel's order.
// buf is scratch space; a few KiB will do. A path that does not exist has no children. For a path
// that is listed again and again, see Dir; for one below which a tenant makes groups,
// ChildrenUntil.
func (fs *FS) Children(name string, buf []byte, visit func(name string)) error {
	return fs.ChildrenUntil(name, buf, func(name string) bool {
		visit(name)
		return true
	})
}

// ChildrenUntil is Children that ends when visit returns false: there may be a hundred thousand.
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
