package cgroup

import (
	"bytes"
	"fmt"
)

// Procs calls visit with each process id in the group itself (not below it): cgroup.procs. Processes outside the reader's
// pid namespace appear as 0 (v6.12 kernel/cgroup/cgroup.c, cgroup_procs_show).
func (g *Group) Procs(buf []byte, visit func(pid int)) error {
	b, err := g.read("cgroup.procs", buf)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		pid, err := parseUint(line)
		if err != nil {
			return fmt.Errorf("parse cgroup %s: %w", g.file("cgroup.procs"), err)
		}
		visit(int(pid))
	}
	return nil
}
