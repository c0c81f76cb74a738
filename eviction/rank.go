package eviction

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"jettison/stats"
)

// comparison orders two candidates: negative if a comes first, zero if the next comparison decides.
type comparison struct {
	name    string
	compare func(a, b *Candidate) int
}

// ranking is the kubelet's order (pkg/kubelet/eviction/helpers.go rankMemoryPressure,
// rankDiskPressureFunc, rankPIDPressure): usage over request where requests count, priority, usage
// minus request.
//
// It adds to the kubelet's order: pods that are set aside last; for a disk's shortage that
// measurements do not explain, pods that may have caused it first; measured before unmeasured; pods
// first that are already being evicted for the same resource, or that end the shortage; inodes by
// inodes, threads by threads; and an order among equals. Afterwards lists.promote applies. An
// unknown priority counts as 0, like that of a pod without a priority class.
var ranking = []comparison{
	{"set aside", func(a, b *Candidate) int { return compareBool(b.Keys.SetAside, a.Keys.SetAside) }},
	{"suspicion", func(a, b *Candidate) int { return a.Keys.suspicion.compare(b.Keys.suspicion) }},
	{"measured", func(a, b *Candidate) int { return compareBool(a.Keys.known(), b.Keys.known()) }},
	{"dying", func(a, b *Candidate) int {
		return compareBool(a.Keys.Dying && a.Keys.eases, b.Keys.Dying && b.Keys.eases)
	}},
	{"over request", func(a, b *Candidate) int {
		return cmp.Compare(a.Keys.standing(), b.Keys.standing())
	}},
	{"priority", func(a, b *Candidate) int {
		return cmp.Compare(a.Keys.Priority.V, b.Keys.Priority.V)
	}},
	{"release", func(a, b *Candidate) int { return cmp.Compare(b.Keys.Release.V, a.Keys.Release.V) }},
	{"usage - request", func(a, b *Candidate) int {
		return cmp.Compare(b.Keys.excess(), a.Keys.excess())
	}},
	{"QoS", func(a, b *Candidate) int {
		return cmp.Compare(qosOrder(a.Keys.QOSClass), qosOrder(b.Keys.QOSClass))
	}},
	{"youngest", func(a, b *Candidate) int { return b.Keys.Start.Compare(a.Keys.Start) }},
	{"UID", func(a, b *Candidate) int { return strings.Compare(a.Pod.PodRef.UID, b.Pod.PodRef.UID) }},
}

// lists are the reused buffers of one ranking.
type lists struct {
	eligible, protected []Candidate
	order               []*Candidate
	ranked              []Ranked
}

// rank sorts the eligible pods, first victim first, and stores with each pod the key that ranks the
// previous pod before it.
func (l *lists) rank() []Ranked {
	l.order, l.ranked = l.order[:0], l.ranked[:0]
	for i := range l.eligible {
		l.order = append(l.order, &l.eligible[i])
	}
	slices.SortStableFunc(l.order, func(a, b *Candidate) int {
		result, _ := compare(a, b)
		return result
	})
	l.promote()
	for i, c := range l.order {
		r := Ranked{Candidate: *c}
		if i > 0 {
			var order int
			if order, r.DecidedBy = compare(l.order[i-1], c); order > 0 {
				r.DecidedBy = "possible excess"
			}
		}
		l.ranked = append(l.ranked, r)
	}
	return l.ranked
}

// A pod that may be over its request comes before a pod that certainly is, if its possible excess
// is this many times as large. A pod that may be within its request therefore does not come before
// a pod far over its request. And a pod with a high usage cannot hide behind pods that are slightly
// over their requests. It could try to hide with a container that is never created, or with
// sidecars that have its OOM score, or while the runtime reports nothing about it.
const (
	// Keys.Open: the runtime certainly did not report a part of the pod, or its object claims more
	openFactor = 8
	// The runtime reported all of the pod, or nothing. Most pods with containers of equal OOM scores
	// request the sum, and most unknown pods have requests equal to their usage.
	closedFactor = 32
)

// promote moves each pod that may be over its request before the first pod that is certainly over
// its request and that it outweighs. All others keep their order. This cannot be a comparison,
// because it would not be transitive.
func (l *lists) promote() {
	for i, c := range l.order {
		if !c.promotable() {
			continue
		}
		for to := range i {
			if c.Keys.outweighs(&l.order[to].Keys) {
				copy(l.order[to+1:i+1], l.order[to:i])
				l.order[to] = c
				break
			}
		}
	}
}

// leader returns the first eligible pod before any pod is promoted, without sorting; nil if no pod
// is eligible.
func (l *lists) leader() (leader *Candidate) {
	for i := range l.eligible {
		if c := &l.eligible[i]; leader == nil || ranksBefore(c, leader) {
			leader = c
		}
	}
	return leader
}

// podToRead returns a pod with only an upper bound of its memory usage that may change which pod is
// first; nil: none. A lower usage never moves a pod up, except a pod that is then promoted because
// it only may be over its request.
func (l *lists) podToRead() *stats.PodStats {
	leader := l.leader()
	if leader == nil {
		return nil
	}
	if leader.Pod.Memory.Quick {
		return leader.Pod
	}
	for i := range l.eligible {
		if c := &l.eligible[i]; c.Pod.Memory.Quick && c.Keys.mayOutweigh(&leader.Keys) {
			return c.Pod
		}
	}
	return nil
}

// promotable reports whether a pod may be over its request.
func (c *Candidate) promotable() bool {
	return c.Keys.known() && c.Keys.standing() == unknownRequest
}

// outweighs reports whether a pod k, which may be over its request, comes before other because its
// possible excess is so much larger. The keys before usage over request must be equal, and k must
// not have the higher priority.
func (k *Keys) outweighs(other *Keys) bool {
	factor := int64(closedFactor)
	if k.Open {
		factor = openFactor
	}
	return other.standing() == overRequest && k.SetAside == other.SetAside &&
		k.suspicion.compare(other.suspicion) == 0 &&
		(k.Dying && k.eases) == (other.Dying && other.eases) &&
		k.Priority.V <= other.Priority.V && other.excess() <= k.excess()/factor
}

// mayOutweigh reports whether a pod k whose usage is an upper bound may outweigh other once it is
// read: its usage may be anywhere between the bounds of its request.
func (k *Keys) mayOutweigh(other *Keys) bool {
	possible := *k
	if r := k.Request; r.OK {
		possible.Usage = min(k.Usage, r.V.Max)
	}
	return possible.Measured && possible.standing() == unknownRequest && possible.outweighs(other)
}

func compare(a, b *Candidate) (order int, key string) {
	for i := range ranking {
		if order := ranking[i].compare(a, b); order != 0 {
			return order, ranking[i].name
		}
	}
	return 0, ""
}

// compareBool orders true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Results of comparing a pod's usage with its request. The result is unknown between the bounds of
// the request.
const (
	overRequest = iota
	unknownRequest
	withinRequest
)

// known reports whether a pod's usage is known, or estimated.
func (k *Keys) known() bool { return k.Measured || k.Estimate > 0 }

// used returns a pod's usage, or the estimate if that is more.
func (k *Keys) used() uint64 { return max(k.Usage, k.Estimate) }

// standing compares a pod's usage with its request. A pod is over its request if it uses more than
// the upper bound, and within its request if it uses at most the lower bound. A pod that prevents
// its request from being known counts as over it, so that tenants gain nothing by that. If requests
// do not count, all pods are equal.
func (k *Keys) standing() int {
	switch {
	case !k.Requests || !k.known():
		return unknownRequest
	case k.Refused:
		return overRequest
	case !k.Request.OK:
		return unknownRequest
	case k.used() > k.Request.V.Max:
		return overRequest
	case k.used() <= k.Request.V.Min:
		return withinRequest
	}
	return unknownRequest
}

// excess returns usage minus request, which may be negative, or 0 for an unmeasured pod. It uses
// the upper bound of the request. If the pod's standing is unknown it uses the lower bound, which
// gives the largest possible excess: all of its usage if the request is unknown.
func (k *Keys) excess() int64 {
	if !k.known() {
		return 0
	}
	request := k.Request.V.Max
	if k.standing() == unknownRequest {
		request = k.Request.V.Min
	}
	usage := min(k.used(), math.MaxInt64)
	request = min(request, math.MaxInt64)
	return int64(usage) - int64(request) // neither is negative, so this cannot overflow
}

func qosOrder(q stats.QOSClass) int {
	switch q {
	case stats.BestEffort:
		return 0
	case stats.Burstable:
		return 1
	case stats.Guaranteed:
		return 3
	}
	return 2 // unknown
}

func ranksBefore(a, b *Candidate) bool {
	order, _ := compare(a, b)
	return order < 0
}
