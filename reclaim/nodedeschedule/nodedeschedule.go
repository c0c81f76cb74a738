// Package nodedeschedule finds the pods of one node that should be descheduled, from the data of
// the container runtime alone. It implements StaleDuplicate and four strategies of the descheduler
// (sigs.k8s.io/descheduler 0.36.0); the others need data of the cluster. The package is pure:
// Policy.Plan gets the time and a Look, and returns the pods to evict, in order, and the reasons to
// keep others. A pod with an unknown property is kept.
//
//	nodedeschedule.go  Policy, Look, Plan
//	strategies.go      the strategies: reasons to evict a pod
//	keep.go            the rules that keep a selected pod
package nodedeschedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// Strategies. All but the first have the descheduler's names.
const (
	StaleDuplicate  = "StaleDuplicate"
	FailedPods      = "RemoveFailedPods"
	TooManyRestarts = "RemovePodsHavingTooManyRestarts"
	PodLifeTime     = "PodLifeTime"
	Shed            = "LowNodeUtilization"
)

// Policy configures the strategies. Zero values disable them.
type Policy struct {
	// of several pods with the same name and ready sandboxes, only the newest stays
	StaleDuplicates bool
	FailedAfter     time.Duration // time since the end of the last container of a failed pod
	MaxRestarts     uint64        // sum over the containers of a pod
	// names of containers that do not count for MaxRestarts, such as init containers, which a runtime
	// does not mark
	IgnoreContainers []string
	MaxAge           time.Duration // of a pod
	ShedAbove        uint32        // memory usage of the node in percent

	MinAge             time.Duration // younger pods stay
	ExcludeNamespaces  []string      // pods in these namespaces stay
	LocalStorage       bool          // evict pods with local storage
	Unowned            bool          // evict pods without a known owner that recreates them
	MaxPods            int           // maximum number of evictions
	MaxPodsOfNamespace int           // maximum number per namespace; 0: unlimited
}

// Look is a snapshot of the node. Plan does not change it.
type Look struct {
	Pods           []Pod
	MemoryCapacity stats.Opt[uint64] // bytes
	MemoryInUse    stats.Opt[uint64] // bytes: the working set
}

// Pod holds the known properties of a pod with a sandbox in the runtime.
type Pod struct {
	stats.PodReference
	// why the pod is never evicted: static, mirror, critical, ...; empty: it may be evicted
	Protected     string
	EvictedBefore bool            // it was evicted by an earlier plan and recreated
	QOSClass      stats.QOSClass  // empty: unknown
	Owner         string          // kind of the owner that recreates it; empty: unknown
	LocalStorage  stats.Opt[bool] // it uses local storage: an emptyDir, a hostPath
	// when a kubelet accepted it, or else the creation of its oldest sandbox; zero: unknown
	Since time.Time
	// creation of its newest ready sandbox; zero: no such sandbox, or unknown
	Made       time.Time
	Ready      bool        // it has a ready sandbox
	Containers []Container // the newest of each name
	Memory     stats.Opt[uint64]
}

// Container is the newest container of its name.
type Container struct {
	Name     string
	Restarts uint64 // number of earlier containers of that name
	Exited   bool
	Ended    stats.Opt[End] // its end; absent: still running, or not reported
}

// End describes the end of a container.
type End struct {
	Code   int32
	Reason string
	At     time.Time // zero: unknown
}

// Eviction is a pod to evict.
type Eviction struct {
	Pod      stats.PodReference
	Strategy string
	Reason   string
}

// Kept is a pod that a strategy selects but a rule keeps.
type Kept struct {
	Pod      stats.PodReference
	Strategy string // that selects it
	Reason   string // the first rule that keeps it
}

// Result of a plan: the pods to evict, in order, and the pods that a rule keeps, by name.
type Result struct {
	Evictions []Eviction
	Kept      []Kept
	Stopped   string // why LowNodeUtilization cannot decide; empty: it decided, or is disabled
}

// Plan applies the strategies. The first strategy that selects a pod decides on it.
func (p *Policy) Plan(look *Look, now time.Time) Result {
	plan := &plan{Policy: p, look: look, now: now, proposed: map[string]bool{},
		evictionsIn: map[string]int{}}
	if p.StaleDuplicates {
		plan.proposeDuplicates()
	}
	byAge := slices.Clone(look.Pods) // order of the strategies: oldest first, unknown ages last
	slices.SortFunc(byAge, func(a, b Pod) int {
		return cmp.Or(unknownLast(a.Since, b.Since), a.Since.Compare(b.Since),
			byName(&a.PodReference, &b.PodReference))
	})
	plan.apply(byAge, FailedPods, plan.failedReason)
	plan.proposeRestarting(byAge)
	plan.apply(byAge, PodLifeTime, plan.ageReason)
	plan.proposeShed()
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

// plan is the state of one call of Plan.
type plan struct {
	*Policy
	look        *Look
	now         time.Time
	proposed    map[string]bool // UIDs of pods that a strategy has selected
	evictionsIn map[string]int  // evictions by namespace
	out         Result
}

// apply proposes each pod for which reasonFor returns a reason.
func (p *plan) apply(pods []Pod, strategy string, reasonFor func(*Pod) string) {
	for i := range pods {
		if pod := &pods[i]; !p.proposed[pod.UID] {
			if reason := reasonFor(pod); reason != "" {
				p.propose(pod, strategy, reason)
			}
		}
	}
}

// propose adds an eviction unless a rule keeps the pod, and reports whether it did.
func (p *plan) propose(pod *Pod, strategy, reason string) (evicted bool) {
	p.proposed[pod.UID] = true
	if kept := p.keepReason(pod, strategy); kept != "" {
		p.out.Kept = append(p.out.Kept, Kept{pod.PodReference, strategy, kept})
		return false
	}
	p.evictionsIn[pod.Namespace]++
	p.out.Evictions = append(p.out.Evictions, Eviction{pod.PodReference, strategy, reason})
	return true
}
