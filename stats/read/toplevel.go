package read

import (
	"errors"
	"strings"

	"jettison/cgroup"
	"jettison/stats/read/podindex"
)

// maxGroups bounds how many cgroups one call of TopLevel reads.
const maxGroups = 200

// TopLevel visits the cgroups at the top of the hierarchy that belong to no pod, with the memory
// use of each in bytes (memory.current). It visits the root's children, and the children of
// systemd's slices instead of the slices: a unit in system.slice is more specific. It reads one
// file of each. The result shows which cgroups other than pods grow on the node.
func (c *Reader) TopLevel(visit func(path string, bytes uint64)) error {
	var errs []error
	left := maxGroups
	read := func(path string) {
		if left--; left < 0 {
			return
		}
		g, err := c.fs.Group(path)
		if err == nil {
			var current uint64
			if current, err = g.MemoryCurrent(c.buf); err == nil {
				visit(path, current)
			}
			g.Close()
		}
		if _, err := optional(0, err); err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, err)
		}
	}
	children := func(path string) (names []string) {
		err := c.fs.ChildrenUntil(path, c.pods.names, func(name string) bool {
			names = append(names, name)
			return len(names) <= maxGroups
		})
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, err)
		}
		return names
	}
	for _, name := range children("") {
		switch {
		case c.ofPods(name): // pods are ranked individually
		case strings.HasSuffix(name, ".slice"):
			below := children(name)
			for _, unit := range below {
				if !c.ofPods(name + "/" + unit) {
					read(name + "/" + unit)
				}
			}
			if len(below) == 0 {
				read(name)
			}
		default:
			read(name)
		}
	}
	return errors.Join(errs...)
}

// ofPods reports whether a cgroup is the one above all pods, or an ancestor of it.
func (c *Reader) ofPods(path string) bool {
	for _, top := range c.topCandidates {
		if podindex.Within(top, path) {
			return true
		}
	}
	return false
}
