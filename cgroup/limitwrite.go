package cgroup

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// LimitFile is the name of a control file that contains one number or "max".
type LimitFile string

// The control files that SetLimit writes. Memory is in bytes; pids.max is a number of tasks;
// cpu.weight, 1 to 10000, is never "max".
const (
	FileMemoryMin  LimitFile = "memory.min"
	FileMemoryLow  LimitFile = "memory.low"
	FileMemoryHigh LimitFile = "memory.high"
	FileMemoryMax  LimitFile = "memory.max"
	FilePIDsMax    LimitFile = "pids.max"
	FileCPUWeight  LimitFile = "cpu.weight"
)

// String returns the limit in the kernel's format.
func (l Limit) String() string {
	if l.Unlimited {
		return "max"
	}
	return strconv.FormatUint(l.Bytes, 10)
}

// Limit reads a control file. os.ErrNotExist: the controller is disabled here, or the group is the
// root, which lacks these files. Limit uses no kept descriptor.
func (g *Group) Limit(file LimitFile, buf []byte) (Limit, error) {
	return g.readLimit(string(file), buf)
}

// SetLimit writes a control file. If the new memory.max or memory.high is below the group's usage,
// the kernel reclaims before the write returns, and for memory.max kills if reclaim is not enough
// (v6.12 mm/memcontrol.c memory_max_write). Since v6.16 a write through a non-blocking descriptor,
// as here, does not wait: the kernel reclaims at the group's next charge (c8e6002bd611). A caller
// that may set a limit below the usage must therefore be able to wait.
func (g *Group) SetLimit(file LimitFile, l Limit) error {
	fd, err := g.openFile(string(file), unix.O_WRONLY|unix.O_TRUNC|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		switch _, err = unix.Write(fd, []byte(l.String())); err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.ENODEV:
			err = ErrVanished
		}
		return fmt.Errorf("write %v to cgroup %s: %w", l, g.file(string(file)), err)
	}
}
