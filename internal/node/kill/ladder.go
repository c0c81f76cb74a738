package kill

import (
	"fmt"
	"strings"
)

// Ladder is a set of kill steps: ways to kill a pod and to get its memory back soon.
type Ladder uint8

// The kill steps, in the order in which they are tried.
const (
	CgroupKill Ladder = 1 << iota // one write kills every process (since v5.14)
	Pidfd                         // process by process, where cgroup.kill is missing or refused
	CPU                           // give dying threads real-time priority
	Mrelease                      // threads of the Killer free the processes' memory (since v5.15)
	ByRuntime                     // the container runtime kills the processes that the kernel did not
)

// All contains every kill step.
const All = CgroupKill | Pidfd | CPU | Mrelease | ByRuntime

var stepNames = [...]struct {
	of   Ladder
	name string
}{{CgroupKill, "cgroup.kill"}, {Pidfd, "pidfd"}, {CPU, "cpu"}, {Mrelease, "mrelease"},
	{ByRuntime, "runtime"}}

// ParseLadder parses names of kill steps, separated by commas: "cgroup.kill,cpu,mrelease". Empty
// text yields All.
func ParseLadder(text string) (Ladder, error) {
	if strings.TrimSpace(text) == "" {
		return All, nil
	}
	var l Ladder
	for name := range strings.SplitSeq(text, ",") {
		step := byName(strings.TrimSpace(name))
		if step == 0 {
			return 0, fmt.Errorf("unknown step %q of the kill ladder (known: %s)",
				strings.TrimSpace(name), All)
		}
		l |= step
	}
	return l, nil
}

func byName(name string) Ladder {
	for _, r := range stepNames {
		if r.name == name {
			return r.of
		}
	}
	return 0
}

// String returns the names of the kill steps in the form that ParseLadder accepts.
func (l Ladder) String() string {
	var names []string
	for _, r := range stepNames {
		if l&r.of != 0 {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, ",")
}

// has reports whether the set contains any of these kill steps.
func (l Ladder) has(any Ladder) bool { return l&any != 0 }
