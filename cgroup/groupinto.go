package cgroup

import (
	"fmt"
	"path"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// GroupInto does the same as Group, but sets out, which must be zero or closed. For a clean path it
// allocates nothing. After an error out has no open descriptor.
func (fs *FS) GroupInto(name string, out *Group) error {
	*out = Group{dir: -1}
	fd, err := fs.open(name, unix.O_DIRECTORY|unix.O_PATH)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", fs.join(name), vanished(err))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return fmt.Errorf("stat cgroup %s: %w", fs.join(name), err)
	}
	clean := strings.Trim(name, "/")
	if clean != "" && path.Clean(clean) != clean {
		clean = strings.Trim(path.Clean("/"+clean), "/")
	}
	*out = Group{path: clean, dir: fd, id: ID{st.Dev, st.Ino}}
	return nil
}

// DupInto duplicates the handle of the cgroup into out, which must be zero or closed, for
// another goroutine. It allocates nothing.
func (g *Group) DupInto(out *Group) error {
	*out = Group{dir: -1}
	fd, err := unix.FcntlInt(uintptr(g.dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate the descriptor of cgroup /%s: %w", g.path, err)
	}
	*out = Group{path: g.path, dir: fd, id: g.id}
	return nil
}

// ChildInto opens a child group by its name into out, which must be zero or closed. The child has
// no ID, and its errors contain the path of g. It allocates nothing on success.
func (g *Group) ChildInto(name []byte, out *Group) error {
	*out = Group{dir: -1}
	fd, errno := openDirectory(g.dir, name)
	if errno != 0 {
		return fmt.Errorf("open child %s of cgroup /%s: %w", name, g.path, vanished(errno))
	}
	out.path, out.dir = g.path, fd
	return nil
}

// openat is unix.Openat without the allocated copy of the name.
func openat(dir int, name string, flags int) (int, error) {
	var text [256]byte
	if len(name) >= len(text) || strings.IndexByte(name, 0) >= 0 {
		return unix.Openat(dir, name, flags, 0)
	}
	copy(text[:], name)
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&text[0])),
		uintptr(flags|unix.O_LARGEFILE), 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// MarkClosed sets g to a closed Group without closing any descriptor. It initializes a Group that
// is embedded in another value.
func (g *Group) MarkClosed() { *g = Group{dir: -1} }
