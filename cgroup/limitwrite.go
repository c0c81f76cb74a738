package cgroup

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// LimitFile is a control file that holds one number or "max".
type LimitFile string

// The control files that are written. Memory in bytes; pids.max is a number of tasks; cpu.weight, 1
// to 10000, is never "max".
const (
	FileMemoryMin  LimitFile = "memory.min"
	FileMemoryLow  LimitFile = "memory.low"
	FileMemoryHigh LimitFile = "memory.high"
	FileMemoryMax  LimitFile = "memory.max"
	FilePIDsMax    LimitFile = "pids.max"
	FileCPUWeight  LimitFile = "cpu.weight"
)

// String is the limit as the kernel writes it.
func (l Limit) String() string {
	if l.Unlimited {
		return "max"
	}
	return strconv.FormatUint(l.Bytes, 10)
}

// Limit reads a control file. os.ErrNotExist: its controller is off here, or it is the root, which
// has none of them. It uses no kept descriptor.
func (g *Group) Limit(file LimitFile, buf []byte) (Limit, error) {
	return g.readLimit(string(file), buf)
}

// SetLimit writes a control file. A memory.max or memory.high below what the group uses has the
// kernel reclaim before the write returns, and kill where memory.max leaves nothing else (v6.12
// mm/memcontrol.c memory_max_write); since v6.16 not for this writer, whose descriptor does not
// block (c8e6002bd611), but for the group itself, at its next charge. So who may be below use calls
// it where it may take long.
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
