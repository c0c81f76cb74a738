package cgroup

import (
	"errors"
	"strings"
)

// recordedFiles are the files of a group that this package reads, watches or probes, and further
// files that help people who read the record. Files that a kernel or a group does not have are left
// out.
var recordedFiles = strings.Fields(`
	cgroup.controllers cgroup.events cgroup.procs cgroup.stat memory.current memory.stat memory.max memory.events
	memory.events.local memory.pressure cpu.pressure io.pressure cpu.stat io.stat pids.current pids.max pids.events
	memory.swap.current memory.swap.max memory.peak memory.min memory.low memory.high memory.swap.high memory.swap.peak
	memory.swap.events cpu.weight cpu.max`)

// recordedEmpty are files that cannot be read; their existence is recorded as an empty file.
var recordedEmpty = []string{"cgroup.kill", "memory.reclaim"}

// Bounds of a record.
const (
	maxRecordedGroups = 2000
	maxRecordedFile   = 256 << 10
)

// ErrTooMany: the record would exceed the maximum number of groups. The groups visited before that
// are complete.
var ErrTooMany = errors.New("too many cgroups")

// Record visits each of recordedFiles and recordedEmpty of a group and, if below is set, of all its
// descendants. visit gets the path below the root; the result is enough to create a tree for
// OpenTree. Record visits groups level by level, so that many descendants of one group do not hide
// its siblings. content is valid during the call.
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
		prefix := childPrefix(names[i])
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

// childPrefix returns the prefix of the paths of a group's files and children.
func childPrefix(group string) string {
	if group == "" {
		return ""
	}
	return group + "/"
}

// recordGroup visits the files of one group. It visits none if the group has vanished.
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
		// a file that cannot be read here cannot be read by the agent either
		if content, err := g.read(file, buf); err == nil {
			visit(childPrefix(name)+file, content)
		}
	}
	for _, file := range recordedEmpty {
		if g.has(file) == Yes {
			visit(childPrefix(name)+file, nil)
		}
	}
	return nil
}
