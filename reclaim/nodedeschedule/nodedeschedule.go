// Package nodedeschedule finds the pods of one node that should not be there any more, by what a
// container runtime alone tells of them. It knows five of the descheduler's questions
// (sigs.k8s.io/descheduler 0.36.0); the others need what only a cluster knows. Everything here is
// pure: Policy.Plan takes the time and what was seen, and returns who should go, in order, and why
// all others stay. What is not known of a pod keeps it.
//
//	nodedeschedule.go  Policy, Look, Plan
//	strategies.go  why a pod should go
//	keep.go        why it stays all the same
package nodedeschedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// The strategies. All but the first have the descheduler's names.
const (
	StaleDuplicate  = "StaleDuplicate"
	FailedPods      = "RemoveFailedPods"
	TooManyRestarts = "RemovePodsHavingTooManyRestarts"
	PodLifeTime     = "PodLifeTime"
	Shed            = "LowNodeUtilization"
)

// Policy says who should go. What is 0 or false is not asked.
type Policy struct {
	StaleDuplicates bool          // of pods of one name with ready sandboxes the newest stays
	FailedAfter     time.Duration // since the last container of a pod has ended, and not all well
	MaxRestarts     uint64        // of all containers of a pod together
	// whose restarts do not count: init containers, which a runtime cannot tell from others
	IgnoreContainers []string
	MaxAge           time.Duration // of a pod
	ShedAbove        uint32        // percent of the node's memory in use

	MinAge             time.Duration // a younger pod stays
	ExcludeNamespaces  []string      // whose pods stay
	LocalStorage       bool          // pods that keep files on the node may go
	Unowned            bool          // pods may go of which nothing tells that they are made again
	MaxPods            int           // most that go at a time
	MaxPodsOfNamespace int           // likewise, of one namespace; 0: any number
}

// Look is what was seen of the node. Plan only reads it.
type Look struct {
	Pods           []Pod
	MemoryCapacity stats.Opt[uint64] // bytes
	MemoryInUse    stats.Opt[uint64] // bytes: the working set
}

// Pod is what is known of one that the runtime has a sandbox of.
type Pod struct {
	stats.PodReference
	Protected    string          // why it never goes: static, mirror, critical, ...; empty: it may
	Before       bool            // it went for this before, and came back
	QOSClass     stats.QOSClass  // empty: unknown
	Owner        string          // kind of what makes it again; empty: unknown
	LocalStorage stats.Opt[bool] // it keeps files on the node: an emptyDir, a directory of the node's
	// when a kubelet took it, or its oldest sandbox was made; zero: unknown
	Since time.Time
	// when its newest ready sandbox was made; zero: it has none, or unknown
	Made       time.Time
	Ready      bool        // it has a ready sandbox
	Containers []Container // the newest of each name
	Memory     stats.Opt[uint64]
}

// Container is the newest one of its name.
type Container struct {
	Name     string
	Restarts uint64 // how many there were before it
	Exited   bool
	Ended    stats.Opt[End] // how; absent: it has not, or nobody has told
}

// End is how a container ended.
type End struct {
	Code   int32
	Reason string
	At     time.Time // zero: unknown
}

// Eviction is a pod that should go.
type Eviction struct {
	Pod      stats.PodReference
	Strategy string
	Reason   string
}

// Kept is a pod that should go and stays.
type Kept struct {
	Pod      stats.PodReference
	Strategy string // by which it should go
	Reason   string // the first rule that keeps it
}

// Result of a plan: who goes, in order, and who stays for a rule, by name.
type Result struct {
	Evictions []Eviction
	Kept      []Kept
	Stopped   string // why LowNodeUtilization cannot tell; empty: it can, or is not asked
}

// Plan finds who should go now. A pod is asked by each strategy until one wants it gone.
func (p *Policy) Plan(look *Look, now time.Time) Result {
	plan := &plan{Policy: p, look: look, now: now, wanted: map[string]bool{}, spaces: map[string]int{}}
	if p.StaleDuplicates {
		plan.stale()
	}
	byAge := slices.Clone(look.Pods) // a strategy's order: the oldest first, unknown ones last
	slices.SortFunc(byAge, func(a, b Pod) int {
		return cmp.Or(unknownLast(a.Since, b.Since), a.Since.Compare(b.Since),
			byName(&a.PodReference, &b.PodReference))
	})
	plan.each(byAge, FailedPods, plan.failed)
	plan.restarting(byAge)
	plan.each(byAge, PodLifeTime, plan.old)
	plan.shed()
	slices.SortFunc(plan.out.Kept, func(a, b Kept) int { return byName(&a.Pod, &b.Pod) })
	return plan.out
}

func unknownLast(a, b time.Time) int {
	switch {
	case a.IsZero() == b.IsZero():
		return 0
	case a.IsZero():
		return 1
	}
	return -1
}

func byName(a, b *stats.PodReference) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.UID, b.UID))
}

// plan is the state of one.
type plan struct {
	*Policy
	look   *Look
	now    time.Time
	wanted map[string]bool // UIDs that a strategy wants gone already
	spaces map[string]int  // evictions by namespace
	out    Result
}

// each asks a strategy of pods, which says why one should go; empty: it need not.
func (p *plan) each(pods []Pod, strategy string, why func(*Pod) string) {
	for i := range pods {
		if pod := &pods[i]; !p.wanted[pod.UID] {
			if reason := why(pod); reason != "" {
				p.want(pod, strategy, reason)
			}
		}
	}
}

// want has a pod go, if no rule keeps it. gone: it does.
func (p *plan) want(pod *Pod, strategy, reason string) (gone bool) {
	p.wanted[pod.UID] = true
	if kept := p.keeps(pod, strategy); kept != "" {
		p.out.Kept = append(p.out.Kept, Kept{pod.PodReference, strategy, kept})
		return false
	}
	p.spaces[pod.Namespace]++
	p.out.Evictions = append(p.out.Evictions, Eviction{pod.PodReference, strategy, reason})
	return true
}
