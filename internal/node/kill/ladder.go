package kill

import (
	"fmt"
	"strings"
)

// Ladder is a set of the ladder's rungs: ways to kill, and to have the memory back soon.
type Ladder uint8

// The rungs, in the order in which they are tried.
const (
	CgroupKill Ladder = 1 << iota // one write kills every process (since v5.14)
	Pidfd                         // process by process, where that is missing or refused
	CPU                           // the dying get CPU time
	Mrelease                      // threads of our own free the dead processes' memory (since v5.15)
	ByRuntime                     // the container runtime kills what the kernel did not
)

// All is every rung.
const All = CgroupKill | Pidfd | CPU | Mrelease | ByRuntime

var rungs = [...]struct {
	of   Ladder
	name string
}{{CgroupKill, "cgroup.kill"}, {Pidfd, "pidfd"}, {CPU, "cpu"}, {Mrelease, "mrelease"},
	{ByRuntime, "runtime"}}

// ParseLadder reads rungs by name, with commas between them: "cgroup.kill,cpu,mrelease". Empty is
// all of them.
func ParseLadder(text string) (Ladder, error) {
	if strings.TrimSpace(text) == "" {
		return All, nil
	}
	var l Ladder
	for name := range strings.SplitSeq(text, ",") {
		rung := byName(strings.TrimSpace(name))
		if rung == 0 {
			return 0, fmt.Errorf("%q is no rung of the kill ladder: want some of %s",
				strings.TrimSpace(name), All)
		}
		l |= rung
	}
	return l, nil
}

func byName(name string) Ladder {
	for _, r := range rungs {
		if r.name == name {
			return r.of
		}
	}
	return 0
}

// String is the rungs by name, as ParseLadder reads them.
func (l Ladder) String() string {
	var names []string
	for _, r := range rungs {
		if l&r.of != 0 {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, ",")
}

// has reports whether any of these rungs is in the set.
func (l Ladder) has(any Ladder) bool { return l&any != 0 }
