package cgroup

import (
	"errors"
	"strings"
)

// recordedFiles are those of a group that this package reads, watches or asks for, and some that
// the reader of a record wants to see beside. Those that a kernel or a group does not have are left
// out.
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

// Record visits each of these files of a group and, if below, of all groups in it, by its path
// below the root: enough to make a tree for OpenTree of. Groups are visited level by level, so that
// whoever makes many in one of them hides none beside it. The content is valid during the call.
func (fs *FS) Record(name string, below bool, visit func(path string, content []byte)) error {
	buf := make([]byte, maxRecordedFile)
	var tooMany error
	names := []string{strings.Trim(name, "/")}
	for i := 0; i < len(names); i++ {
		if err := fs.recordGroup(names[i], buf, visit); err != nil {
			return err
		}
		if !below || tooMany != nil {
			continue
		}
		prefix := inside(names[i])
		if err := fs.ChildrenUntil(names[i], buf, func(child string) bool {
			if len(names) == maxRecordedGroups {
				tooMany = ErrTooMany
				return false
			}
			names = append(names, prefix+child)
			return true
		}); err != nil {
			return err
		}
	}
	return tooMany
}

// inside is what the paths of what is in a group begin with.
func inside(group string) string {
	if group == "" {
		return ""
	}
	return group + "/"
}

// recordGroup visits the files of one group; none if it has vanished.
func (fs *FS) recordGroup(name string, buf []byte, visit func(path string, content []byte)) error {
	g, err := fs.Group(name)
	if errors.Is(err, ErrVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	for _, file := range recordedFiles {
		// what cannot be read here cannot be read by the agent either
		if content, err := g.read(file, buf); err == nil {
			visit(inside(name)+file, content)
		}
	}
	for _, file := range recordedEmpty {
		if g.has(file) == Yes {
			visit(inside(name)+file, nil)
		}
	}
	return nil
}
