package cgroup

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrPopulated: the cgroup, or a descendant, has a live process.
var ErrPopulated = errors.New("cgroup is populated")

// Bounds of RemoveEmpty: a tenant with a delegated cgroup controls the number and depth of its
// descendants.
const (
	removeLevels = 16
	removeGroups = 4096
)

// RemoveEmpty removes a cgroup and its descendants if none has a live process. It calls rmdir from
// the bottom up, which fails with EBUSY for a group that has a process by then (v6.12
// kernel/cgroup/cgroup.c cgroup_destroy_locked). A cgroup that is gone is no error. name must not
// be the root.
func (fs *FS) RemoveEmpty(name string) error {
	name = strings.Trim(name, "/")
	if name == "" {
		return fmt.Errorf("remove cgroup %s: it is the root", fs.mount)
	}
	g, err := fs.Group(name)
	if err == nil {
		var e Events
		e, err = g.Events(make([]byte, 256))
		g.Close()
		if err == nil && e.Populated {
			err = ErrPopulated
		}
	}
	left := removeGroups
	if err == nil {
		err = fs.removeTree(name, removeLevels, &left)
	}
	if err == nil || errors.Is(err, ErrVanished) {
		return nil
	}
	return fmt.Errorf("remove cgroup %s: %w", fs.join(name), err)
}

// removeTree removes the descendants of a cgroup and then the cgroup. left is the number of cgroups
// that may still be removed.
func (fs *FS) removeTree(name string, levels int, left *int) error {
	if levels == 0 || *left == 0 {
		return fmt.Errorf("more than %d levels or %d groups", removeLevels, removeGroups)
	}
	*left--
	var below []string
	err := fs.ChildrenUntil(name, make([]byte, 4096), func(child string) bool {
		below = append(below, strings.Clone(child))
		return len(below) < *left
	})
	if err != nil {
		return err
	}
	for _, child := range below {
		if err := fs.removeTree(name+"/"+child, levels-1, left); err != nil &&
			!errors.Is(err, ErrVanished) {
			return err
		}
	}
	parent, err := fs.open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return vanished(err)
	}
	defer unix.Close(parent)
	switch err := unix.Unlinkat(parent, path.Base(name), unix.AT_REMOVEDIR); err {
	case nil, unix.ENOENT:
		return nil
	case unix.EBUSY:
		return ErrPopulated
	default:
		return err
	}
}
