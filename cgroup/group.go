package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ID tells one cgroup from another that later gets the same path: paths are used again, inode numbers of kernfs are not
// while the mount lives (they carry a generation, v6.12 fs/kernfs/dir.c kernfs_id).
type ID struct{ Dev, Ino uint64 }

// Group is one cgroup, held by the descriptor of its directory: what is read or killed through it is that very cgroup, or
// ErrVanished, never a successor of the same name. Close it. A Group is used by one goroutine at a time.
type Group struct {
	path string
	id   ID
	dir  int
	kept [len(keptFiles)]int // descriptor + 1 of each kept file; 0: not opened yet
}

// The files that are read again and again keep their descriptor: open and close cost more than the read.
const (
	memoryCurrent = iota
	memoryStat
	cgroupEvents
)

var keptFiles = [...]string{"memory.current", "memory.stat", "cgroup.events"}

// Path is the group's path below the root when it was opened, without a leading slash; "" is the root.
func (g *Group) Path() string { return g.path }

// ID is the group's identity.
func (g *Group) ID() ID { return g.id }

// Close gives all descriptors back.
func (g *Group) Close() {
	for i, fd := range g.kept {
		if fd != 0 {
			unix.Close(fd - 1)
			g.kept[i] = 0
		}
	}
	if g.dir >= 0 {
		unix.Close(g.dir)
		g.dir = -1
	}
}

func (g *Group) file(name string) string { return "/" + g.path + "/" + name }

// openFile opens a file of the group. A file that is missing in a group that is there is os.ErrNotExist (the controller is
// off, or the kernel too old); if the group itself is gone it is ErrVanished.
func (g *Group) openFile(name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(g.dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ENODEV || err == unix.ENOENT && !g.exists():
			err = ErrVanished
		}
		if err != nil {
			return -1, fmt.Errorf("open cgroup %s: %w", g.file(name), err)
		}
		return fd, nil
	}
}

// exists asks for a file that every cgroup has.
func (g *Group) exists() bool {
	return unix.Faccessat(g.dir, "cgroup.procs", unix.F_OK, 0) == nil
}

// read reads a file that is needed now and then: open, read to the end, close.
func (g *Group) read(name string, buf []byte) ([]byte, error) {
	fd, err := g.openFile(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return g.readAll(fd, name, buf)
}

// readKept reads a kept file into buf. The result aliases buf.
func (g *Group) readKept(which int, buf []byte) ([]byte, error) {
	if g.kept[which] == 0 {
		fd, err := g.openFile(keptFiles[which], unix.O_RDONLY)
		if err != nil {
			return nil, err
		}
		g.kept[which] = fd + 1
	}
	return g.readAll(g.kept[which]-1, keptFiles[which], buf)
}

// readAll reads from the start to the end with pread. A file longer than buf is an error, never a truncated number.
func (g *Group) readAll(fd int, name string, buf []byte) ([]byte, error) {
	for n := 0; ; {
		m, err := unix.Pread(fd, buf[n:], int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ENODEV:
			return nil, fmt.Errorf("read cgroup %s: %w", g.file(name), ErrVanished)
		case err != nil:
			return nil, fmt.Errorf("read cgroup %s: %w", g.file(name), err)
		}
		n += m
		if m == 0 {
			return buf[:n], nil
		}
		if n == len(buf) {
			return nil, fmt.Errorf("read cgroup %s: longer than %d bytes: %w", g.file(name), len(buf), ErrMalformed)
		}
	}
}

// write writes a value to a control file.
func (g *Group) write(name, value string) error {
	fd, err := g.openFile(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Write(fd, []byte(value))
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.ENODEV:
			err = ErrVanished
		}
		return fmt.Errorf("write %q to cgroup %s: %w", value, g.file(name), err)
	}
}
