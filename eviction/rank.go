package eviction

import (
	"cmp"
	"slices"
	"strings"

	"jettison/stats"
)

// comparison orders two candidates: negative if a goes first. Zero leaves it to the next one.
type comparison struct {
	name    string
	compare func(a, b *Candidate) int
}

// memoryRanking is the kubelet's order for memory (pkg/kubelet/eviction/helpers.go rankMemoryPressure: usage over request,
// priority, usage minus request), with what it lacks: pods that will not die last, measured before unmeasured, and an order
// among equals. A priority that is unknown counts as 0, as a pod without a priority class has it.
var memoryRanking = []comparison{
	{"set aside", func(a, b *Candidate) int { return compareBool(b.SetAside, a.SetAside) }},
	{"measured", func(a, b *Candidate) int { return compareBool(a.measured(), b.measured()) }},
	{"over request", func(a, b *Candidate) int { return cmp.Compare(a.overRequest(), b.overRequest()) }},
	{"priority", func(a, b *Candidate) int { return cmp.Compare(a.Priority.V, b.Priority.V) }},
	{"usage - request", func(a, b *Candidate) int { return cmp.Compare(b.excess(), a.excess()) }},
	{"QoS", func(a, b *Candidate) int { return cmp.Compare(qosOrder(a.Pod.QOSClass), qosOrder(b.Pod.QOSClass)) }},
	{"youngest", func(a, b *Candidate) int { return b.Pod.StartTime.Compare(a.Pod.StartTime) }},
	{"UID", func(a, b *Candidate) int { return strings.Compare(a.Pod.PodRef.UID, b.Pod.PodRef.UID) }},
}

// rank sorts candidates, first victim first, and returns for each the key by which it comes after the one before.
func rank(candidates []Candidate, by []comparison) (decidedBy []string) {
	slices.SortStableFunc(candidates, func(a, b Candidate) int {
		order, _ := compare(&a, &b, by)
		return order
	})
	decidedBy = make([]string, len(candidates))
	for i := 1; i < len(candidates); i++ {
		_, decidedBy[i] = compare(&candidates[i-1], &candidates[i], by)
	}
	return decidedBy
}

func compare(a, b *Candidate, by []comparison) (order int, key string) {
	for _, c := range by {
		if order := c.compare(a, b); order != 0 {
			return order, c.name
		}
	}
	return 0, ""
}

// compareBool puts true first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (c *Candidate) measured() bool { return c.Pod.Memory.WorkingSetBytes.OK }

// overRequest is 0 for a pod that uses more than it requested, 1 where the request is unknown, 2 for one within it. An
// inexact request is given the benefit of the doubt: its upper bound counts.
func (c *Candidate) overRequest() int {
	switch {
	case !c.measured() || !c.Pod.MemoryRequest.OK:
		return 1
	case c.Pod.Memory.WorkingSetBytes.V > c.Pod.MemoryRequest.V.Max:
		return 0
	}
	return 2
}

// excess is usage minus request in bytes; it may be negative. Where the request is unknown, it is the usage.
func (c *Candidate) excess() int64 {
	return int64(c.Pod.Memory.WorkingSetBytes.V) - int64(c.Pod.MemoryRequest.V.Max)
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
