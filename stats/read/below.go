package read

import (
	"errors"
	"fmt"
	"time"

	"jettison/cgroup"
)

// A container may make as many cgroups below its own as it likes, with names of 255 bytes. The loop
// waits for a full look, so what it goes into is bounded: of a container, of a pod, and of all pods
// together, in number and in time.
const (
	maxContainers = 64   // groups in a pod's that are always looked into
	maxCounted    = 500  // groups below a container
	maxBelow      = 1000 // all others together
	maxBelowTime  = 20 * time.Millisecond
)

// errManyCgroups: a container's processes are not counted, which leaves their number absent and no
// other figure of the pod.
var errManyCgroups = errors.New(
	"more cgroups below it than are looked into: its processes are not counted")

// groupBudget is how much of that is left of one look.
type groupBudget struct {
	left    int
	until   time.Time
	refused string // the first cgroup below which not all was looked into
	more    int    // further ones
}

func newGroupBudget() groupBudget {
	return groupBudget{left: maxBelow, until: time.Now().Add(maxBelowTime)}
}

// take is asked before each group.
func (b *groupBudget) take() bool {
	if b.left <= 0 || time.Now().After(b.until) {
		b.left = 0
		return false
	}
	b.left--
	return true
}

func (b *groupBudget) refuse(path string) {
	if b.refused == "" {
		b.refused = path
		return
	}
	b.more++
}

// err says what was left out, in one line for a look.
func (b *groupBudget) err() error {
	switch {
	case b.refused == "":
		return nil
	case b.more > 0:
		return fmt.Errorf("cgroup %.200q, and %d others: %w", "/"+b.refused, b.more, errManyCgroups)
	}
	return fmt.Errorf("cgroup %.200q: %w", "/"+b.refused, errManyCgroups)
}

// countTree counts the processes of a cgroup and of all below it. left is how many groups of the
// container may still be looked into; not whole: there are more.
func (c *Reader) countTree(path string, left *int) (n uint64, whole bool, err error) {
	if n, err = c.countProcesses(path); err != nil {
		return n, false, err
	}
	whole = len(path) <= 2000 // longer paths can be made than opened
	var below []string
	if whole {
		err = c.fs.ChildrenUntil(path, c.pods.names, func(name string) bool {
			*left--
			if whole = *left >= 0 && c.below.take(); whole {
				below = append(below, name)
			}
			return whole
		})
	}
	if !whole {
		c.below.refuse(path)
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
