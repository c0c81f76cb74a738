package read

import (
	"errors"
	"fmt"
	"time"

	"jettison/cgroup"
)

// A container may create any number of cgroups below its own, with names of 255 bytes. Because the
// loop waits for a full look, the number of cgroups that a look reads is limited, per container,
// per pod and in total, and so is the time.
const (
	maxContainers = 64   // cgroups in a pod's cgroup that are always read
	maxCounted    = 500  // cgroups below a container
	maxBelow      = 1000 // all others in one look
	maxBelowTime  = 20 * time.Millisecond
)

// errManyCgroups: a container's processes are not counted. Only their number is absent; the pod's
// other values are not affected.
var errManyCgroups = errors.New(
	"too many cgroups below it: its processes are not counted")

// groupBudget is the part of these limits that is left in one look.
type groupBudget struct {
	left     int
	until    time.Time
	exceeded string // the first cgroup with unread cgroups below it
	more     int    // number of further such cgroups
}

func newGroupBudget() groupBudget {
	return groupBudget{left: maxBelow, until: time.Now().Add(maxBelowTime)}
}

// take reserves the reading of one cgroup. It returns false if the budget is used up.
func (b *groupBudget) take() bool {
	if b.left <= 0 || time.Now().After(b.until) {
		b.left = 0
		return false
	}
	b.left--
	return true
}

func (b *groupBudget) exceed(path string) {
	if b.exceeded == "" {
		b.exceeded = path
		return
	}
	b.more++
}

// err returns one error for all cgroups that were not read.
func (b *groupBudget) err() error {
	switch {
	case b.exceeded == "":
		return nil
	case b.more > 0:
		return fmt.Errorf("cgroup %.200q, and %d others: %w", "/"+b.exceeded, b.more, errManyCgroups)
	}
	return fmt.Errorf("cgroup %.200q: %w", "/"+b.exceeded, errManyCgroups)
}

// countTree counts the processes of a cgroup and its descendants. left is the number of cgroups of
// the container that may still be read. whole is false if some were not read.
func (c *Reader) countTree(path string, left *int) (n uint64, whole bool, err error) {
	if n, err = c.countProcesses(path); err != nil {
		return n, false, err
	}
	whole = len(path) <= 2000 // paths that are too long to open can exist
	var below []string
	if whole {
		err = c.fs.ChildrenUntil(path, c.pods.names, func(name string) bool {
			*left--
			if whole = *left >= 0 && c.groups.take(); whole {
				below = append(below, name)
			}
			return whole
		})
	}
	if !whole {
		c.groups.exceed(path)
	}
	if err != nil || !whole {
		return n, false, err
	}
	for _, name := range below {
		more, all, err := c.countTree(path+"/"+name, left)
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			return n, false, err
		}
		if err == nil && !all {
			return n, false, nil
		}
		n += more
	}
	return n, true, nil
}
