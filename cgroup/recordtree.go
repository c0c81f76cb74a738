package cgroup

import (
	"errors"
	"strings"
)

// recordedFiles are those of a group that this package reads, watches or asks for, and some that the reader of a record wants to see
// beside. Those that a kernel or a group does not have are left out.
var recordedFiles = strings.Fields(`
	cgroup.controllers cgroup.events cgroup.procs cgroup.stat memory.current memory.stat memory.max memory.events
	memory.events.local memory.pressure cpu.pressure io.pressure cpu.stat io.stat pids.current pids.max pids.events
	memory.swap.current memory.swap.max memory.peak memory.min memory.low memory.high memory.swap.high memory.swap.peak
	memory.swap.events cpu.weight cpu.max`)

// recordedEmpty cannot be read; that a group has them is recorded as an empty file.
var recordedEmpty = []string{"cgroup.kill", "memory.reclaim"}

// Bounds of a record.
const (
	maxRecordedGroups = 2000
	maxRecordedFile   = 256 << 10
)

// ErrTooMany: a record would hold more groups than it may. What was visited until then is whole.
var ErrTooMany = errors.New("too many cgroups")

// Record visits each of these files of a group and, if below, of all groups in it, by its path below the root:
// enough to make a tree for OpenTree of. The content is valid during the call.
func (fs *FS) Record(name string, below bool, visit func(path string, content []byte)) error {
	left := maxRecordedGroups
	return fs.recordFrom(strings.Trim(name, "/"), below, &left, make([]byte, maxRecordedFile), visit)
}

func (fs *FS) recordFrom(name string, below bool, left *int, buf []byte, visit func(path string, content []byte)) error {
	if *left--; *left < 0 {
		return ErrTooMany
	}
	g, err := fs.Group(name)
	if errors.Is(err, ErrVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	prefix := name + "/"
	if name == "" {
		prefix = ""
	}
	for _, file := range recordedFiles {
		if content, err := g.read(file, buf); err == nil { // what cannot be read here cannot be read by the agent either
			visit(prefix+file, content)
		}
	}
	for _, file := range recordedEmpty {
		if g.has(file) == Yes {
			visit(prefix+file, nil)
		}
	}
	g.Close()
	if !below {
		return nil
	}
	var names []string
	if err := fs.ChildrenUntil(name, buf, func(child string) bool {
		names = append(names, child)
		return len(names) <= *left // one more says that there are too many
	}); err != nil {
		return err
	}
	for _, child := range names {
		if err := fs.recordFrom(prefix+child, true, left, buf, visit); err != nil {
			return err
		}
	}
	return nil
}
