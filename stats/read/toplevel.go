package read

import (
	"errors"
	"strings"

	"jettison/cgroup"
	"jettison/stats/read/podindex"
)

// maxGroups bounds how many cgroups one call of TopLevel reads.
const maxGroups = 200

// TopLevel visits the cgroups at the top of the hierarchy that are no pods' with the memory that
// each uses, in bytes (memory.current): the root's children, and of systemd's slices the children
// instead, as system.slice says less than the unit in it. For an administrator who asks what else
// grows on the node; it opens and reads a file of each.
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
		case c.ofPods(name): // pods are ranked one by one
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

// ofPods reports whether a cgroup is the one above all pods, or above that.
func (c *Reader) ofPods(path string) bool {
	for _, top := range c.all {
		if podindex.Within(top, path) {
			return true
		}
	}
	return false
}
