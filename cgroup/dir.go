package cgroup

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// Dir is the directory of one cgroup, kept open for repeated listing of its children. Like a
// Group it refers to that cgroup, never to a successor of the same name. Use a Dir from one
// goroutine at a time, and close it.
type Dir struct {
	path string
	fd   int
}

// OpenDir opens the directory of the cgroup at a path below the root; "" is the root itself. For a
// cgroup that does not exist it returns ErrVanished without the path: a caller may call OpenDir at
// every look until a cgroup appears, and this error allocates nothing.
func (fs *FS) OpenDir(name string) (*Dir, error) {
	fd, err := fs.open(name, unix.O_DIRECTORY|unix.O_RDONLY)
	if err = vanished(err); err == ErrVanished {
		return nil, ErrVanished
	}
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", fs.join(name), err)
	}
	return &Dir{path: fs.join(name), fd: fd}, nil
}

// Close closes the descriptor.
func (d *Dir) Close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// Children calls visit with the name of each child cgroup, in the kernel's order; name is only
// valid until visit returns. buf is scratch space for at least one entry (280 bytes); a few KiB are
// enough. ErrVanished: the cgroup was removed, perhaps after some calls of visit. Children does not
// allocate.
func (d *Dir) Children(buf []byte, visit func(name []byte)) error {
	_, err := unix.Seek(d.fd, 0, unix.SEEK_SET)
	if err == nil {
		err = list(d.fd, buf, visit)
	}
	if err != nil {
		// Listing a removed directory fails with ENOENT (v6.12 fs/readdir.c, iterate_dir).
		return fmt.Errorf("list cgroup %s: %w", d.path, vanished(err))
	}
	return nil
}

// EachChild calls visit with the name of each child group, in the kernel's order, until visit
// returns false. A name is only valid until visit returns. buf is scratch space, as for
// Dir.Children. EachChild does not allocate on success.
func (g *Group) EachChild(buf []byte, visit func(name []byte) bool) error {
	fd, errno := openDirectory(g.dir, itself)
	if errno != 0 {
		return fmt.Errorf("open cgroup /%s: %w", g.path, vanished(errno))
	}
	err := listUntil(fd, buf, visit)
	unix.Close(fd)
	if err != nil {
		return fmt.Errorf("list cgroup /%s: %w", g.path, vanished(err))
	}
	return nil
}

// entries reads the next records of a directory and returns their length; 0: the end.
func entries(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(fd, buf)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// list visits the subdirectories of a directory from the descriptor's current position.
func list(fd int, buf []byte, visit func(name []byte)) error {
	for {
		n, err := entries(fd, buf)
		if err != nil || n == 0 {
			return err
		}
		directories(buf[:n], visit)
	}
}

// listUntil does the same as list, but ends when visit returns false.
func listUntil(fd int, buf []byte, visit func(name []byte) bool) error {
	for {
		n, err := entries(fd, buf)
		if err != nil || n == 0 {
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			var name []byte
			var directory bool
			if name, directory, rest = nextEntry(rest); directory && !visit(name) {
				return nil
			}
		}
	}
}

// directories visits the directories among the records of getdents64(2): inode (8 bytes),
// offset (8), record length (2), type (1), name.
func directories(b []byte, visit func(name []byte)) {
	const nameOffset = 19
	for len(b) > nameOffset {
		length := int(b[16]) | int(b[17])<<8
		if length <= nameOffset || length > len(b) {
			return
		}
		name := b[nameOffset:length]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if b[18] == unix.DT_DIR && string(name) != "." && string(name) != ".." {
			visit(name)
		}
		b = b[length:]
	}
}
