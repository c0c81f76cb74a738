package cgroup

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// LimitFile is a control file with one number or "max".
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

// Limit reads a control file. os.ErrNotExist: its controller is off here, or the group is the
// root, which lacks these files. It uses no kept descriptor.
func (g *Group) Limit(file LimitFile, buf []byte) (Limit, error) {
	return g.readLimit(string(file), buf)
}

// SetLimit writes a control file. If memory.max or memory.high is below the group's usage, the
// kernel reclaims before the write returns, and for memory.max kills if reclaim is not enough
// (v6.12 mm/memcontrol.c memory_max_write). Since v6.16 it does not do so for this writer,
// because its descriptor does not block (c8e6002bd611), but for the group itself, at its next
// charge. So a caller that may go below the usage must be able to wait.
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
