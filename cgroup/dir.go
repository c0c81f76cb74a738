package cgroup

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// Dir is the directory of one cgroup, kept open to list the groups below it again and again. Like a
// Group it is that very cgroup, never a successor of the same name. Close it. A Dir is used by one
// goroutine at a time.
type Dir struct {
	path string
	fd   int
}

// OpenDir opens the directory of the cgroup at a path below the root; "" is the root itself. A
// cgroup that does not exist is ErrVanished, without the path: who waits for a cgroup to appear
// asks at every look, and that allocates nothing.
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

// Close gives the descriptor back.
func (d *Dir) Close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// Children calls visit with the name of each cgroup directly below, in the kernel's order; name is
// only valid until visit returns. buf is scratch space that holds at least one entry (280 bytes); a
// few KiB will do. ErrVanished: the cgroup was removed, maybe after some of the calls. It does not
// allocate.
func (d *Dir) Children(buf []byte, visit func(name []byte)) error {
	_, err := unix.Seek(d.fd, 0, unix.SEEK_SET)
	if err == nil {
		err = list(d.fd, buf, visit)
	}
	if err != nil {
		// A directory that was removed answers ENOENT (v6.12 fs/readdir.c, iterate_dir).
		return fmt.Errorf("list cgroup %s: %w", d.path, vanished(err))
	}
	return nil
}

// entries reads the next records of a directory and returns their length; 0: there are no more.
func entries(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(fd, buf)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// list visits the directories in a directory, from where its descriptor stands.
func list(fd int, buf []byte, visit func(name []byte)) error {
	for {
		n, err := entries(fd, buf)
		if err != nil || n == 0 {
			return err
		}
		directories(buf[:n], visit)
	}
}

// listUntil is list that ends when visit returns false.
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

// directories goes through the records of getdents64(2): inode (8 bytes), offset (8), record length
// (2), type (1), name.
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
