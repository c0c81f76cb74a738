package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Files that are read repeatedly keep their descriptor: open and close cost more than the read.
// The order of the pressure files is that of Resource.
const (
	fileMemoryCurrent = iota
	fileMemoryStat
	fileMemoryEvents
	fileMemoryEventsLocal
	fileMemoryMax
	fileMemorySwapCurrent
	fileCPUPressure
	fileMemoryPressure
	fileIOPressure
	fileCPUStat
	fileIOStat
	filePIDsCurrent
	fileCgroupEvents
)

var keptFiles = [...]string{
	fileMemoryCurrent:     "memory.current",
	fileMemoryStat:        "memory.stat",
	fileMemoryEvents:      "memory.events",
	fileMemoryEventsLocal: "memory.events.local",
	fileMemoryMax:         "memory.max",
	fileMemorySwapCurrent: "memory.swap.current",
	fileCPUPressure:       "cpu.pressure",
	fileMemoryPressure:    "memory.pressure",
	fileIOPressure:        "io.pressure",
	fileCPUStat:           "cpu.stat",
	fileIOStat:            "io.stat",
	filePIDsCurrent:       "pids.current",
	fileCgroupEvents:      "cgroup.events",
}

func (g *Group) file(name string) string { return "/" + g.path + "/" + name }

// openFile opens a file of the group. If an existing group lacks the file, the error is
// os.ErrNotExist (the controller is disabled, or the kernel too old). If the group itself is gone,
// the error is ErrVanished.
func (g *Group) openFile(name string, flags int) (int, error) {
	for {
		fd, err := openat(g.dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW)
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

// exists reports whether the cgroup still exists, by a file that every cgroup has.
func (g *Group) exists() bool {
	return unix.Faccessat(g.dir, "cgroup.procs", unix.F_OK, 0) == nil
}

// read opens, reads and closes a file that is needed rarely.
func (g *Group) read(name string, buf []byte) ([]byte, error) {
	fd, err := g.openFile(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return g.readRecord(fd, name, buf)
}

// readKept reads a kept file into buf, and opens it if necessary. The result aliases buf. A missing
// file is looked up at each call, because a controller can be enabled later.
func (g *Group) readKept(which int, buf []byte) ([]byte, error) {
	if fd := g.kept[which]; fd != 0 {
		b, err := g.readRecord(fd-1, keptFiles[which], buf)
		if err == nil || !errors.Is(err, ErrVanished) || !g.exists() {
			return b, err
		}
		// The group still exists, but the file is gone: its controller was disabled
		// (cgroup.subtree_control), or its pressure files were (cgroup.pressure, since v6.1). A new
		// file with that name may exist by now.
		unix.Close(fd - 1)
		g.kept[which] = 0
	}
	fd, err := g.openFile(keptFiles[which], unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	g.kept[which] = fd + 1
	return g.readRecord(fd, keptFiles[which], buf)
}

// readRecord reads a file that is one record: all of cgroup v2 except the lists of processes and
// threads. The kernel returns a whole record if buf has room for it (fs/seq_file.c, seq_read_iter),
// so a short read is the end, and one system call is enough. A file that fills buf is an error,
// because more may follow and a number could be truncated.
func (g *Group) readRecord(fd int, name string, buf []byte) ([]byte, error) {
	n, err := g.pread(fd, name, buf, 0)
	if err != nil {
		return nil, err
	}
	if n == len(buf) {
		return nil, fmt.Errorf("read cgroup %s: longer than %d bytes: %w", g.file(name), len(buf),
			ErrMalformed)
	}
	return buf[:n], nil
}

// pread reads once at an offset, and repeats after a signal.
func (g *Group) pread(fd int, name string, buf []byte, offset int64) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, offset)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
			continue
		case unix.ENODEV:
			err = ErrVanished
		}
		return 0, fmt.Errorf("read cgroup %s: %w", g.file(name), err)
	}
}

// number reads a file with one number.
func (g *Group) number(name string, buf []byte) (uint64, error) {
	b, err := g.read(name, buf)
	if err != nil {
		return 0, err
	}
	return g.parseNumber(name, b)
}

// numberKept reads a kept file with one number.
func (g *Group) numberKept(which int, buf []byte) (uint64, error) {
	b, err := g.readKept(which, buf)
	if err != nil {
		return 0, err
	}
	return g.parseNumber(keptFiles[which], b)
}

func (g *Group) parseNumber(name string, b []byte) (uint64, error) {
	v, err := ParseUint(b)
	if err != nil {
		return 0, g.parseError(name, err)
	}
	return v, nil
}

// readLimit reads a file with one number or "max".
func (g *Group) readLimit(name string, buf []byte) (Limit, error) {
	b, err := g.read(name, buf)
	if err != nil {
		return Limit{}, err
	}
	return g.limitIn(name, b)
}

func (g *Group) limitIn(name string, b []byte) (Limit, error) {
	l, err := ParseLimit(b)
	if err != nil {
		return Limit{}, g.parseError(name, err)
	}
	return l, nil
}

func (g *Group) parseError(name string, err error) error {
	return fmt.Errorf("parse cgroup %s: %w", g.file(name), err)
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
