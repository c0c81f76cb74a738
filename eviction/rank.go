package eviction

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"jettison/stats"
)

// comparison orders two candidates: negative if a goes first. Zero leaves it to the next one.
type comparison struct {
	name    string
	compare func(a, b *Candidate) int
}

// ranking is the kubelet's order (pkg/kubelet/eviction/helpers.go rankMemoryPressure,
// rankDiskPressureFunc, rankPIDPressure): usage over request where requests count, priority, usage
// minus request; with what it lacks: pods that will not die last, measured before unmeasured, those
// being evicted already for the same, or that have all that is short, inodes by inodes, threads by
// threads, and an order among equals, and what lists.forward does after it. A priority that is
// unknown counts as 0, as a pod without a priority class has it.
var ranking = []comparison{
	{"set aside", func(a, b *Candidate) int { return compareBool(b.Keys.SetAside, a.Keys.SetAside) }},
	{"measured", func(a, b *Candidate) int { return compareBool(a.Keys.Measured, b.Keys.Measured) }},
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

// lists are what one ranking is made of; they are used again.
type lists struct {
	may, mayNot []Candidate
	order       []*Candidate
	ranked      []Ranked
}

// rank sorts those who may go, first victim first, and gives each the key by which it comes after
// the one before.
func (l *lists) rank() []Ranked {
	l.order, l.ranked = l.order[:0], l.ranked[:0]
	for i := range l.may {
		l.order = append(l.order, &l.may[i])
	}
	slices.SortStableFunc(l.order, func(a, b *Candidate) int {
		result, _ := compare(a, b)
		return result
	})
	l.forward()
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

// A pod of which it is not known whether it is over its request goes before another that is for
// sure if it may be over by so many times as much. It is why a pod that may be within its request
// does not go before one that uses much more than it asked for, and why a pod that uses much finds
// no shelter behind pods that are over by a little: not by hiding a part of its request, as by a
// container that is never made, nor by sidecars that carry its score, nor while the runtime says
// nothing of it.
const (
	openDoubt = 8 // where the request is open above: a part of the pod was not seen, for sure
	// Where all was seen, or nothing: most pods with containers of equal scores ask for the sum, and
	// most of which nothing is known yet ask for what they use.
	closedDoubt = 32
)

// forward moves pods of which it is not known whether they are over their request, from behind
// those that are for sure to before the first one that they outweigh. Nothing else changes its
// place. It is no comparison: of three pods, each could go before the next one then.
func (l *lists) forward() {
	for i, c := range l.order {
		if !c.Keys.Measured || c.Keys.standing() != unknownRequest {
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

// outweighs: k, of which it is not known whether it is over its request, may be so much more over
// it than other is for sure that it goes first; where the keys before usage over request do not
// tell them apart, and priority does not say that other goes first.
func (k *Keys) outweighs(other *Keys) bool {
	doubt := int64(closedDoubt)
	if k.Open {
		doubt = openDoubt
	}
	return other.standing() == overRequest && k.SetAside == other.SetAside &&
		(k.Dying && k.eases) == (other.Dying && other.eases) &&
		k.Priority.V <= other.Priority.V && other.excess() <= k.excess()/doubt
}

func compare(a, b *Candidate) (order int, key string) {
	for i := range ranking {
		if order := ranking[i].compare(a, b); order != 0 {
			return order, ranking[i].name
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

// How a pod stands to its request. Between its bounds it is not known.
const (
	overRequest = iota
	unknownRequest
	withinRequest
)

// standing is one of these: a pod is over its request if it uses more than the upper bound, and
// within it if it uses no more than the lower one. One that keeps its request from being known
// counts as over it, or tenants would. Where requests do not count, all are alike.
func (k *Keys) standing() int {
	switch {
	case !k.Requests || !k.Measured:
		return unknownRequest
	case k.Refused:
		return overRequest
	case !k.Request.OK:
		return unknownRequest
	case k.Usage > k.Request.V.Max:
		return overRequest
	case k.Usage <= k.Request.V.Min:
		return withinRequest
	}
	return unknownRequest
}

// excess is usage minus request; it may be negative. It is what the pod is over by at least or
// within by at most, which the upper bound tells; of one of which neither is known, what it may be
// over by, which the lower bound tells: all of it where the request is unknown. Of a pod that is
// not measured nothing is known.
func (k *Keys) excess() int64 {
	if !k.Measured {
		return 0
	}
	request := k.Request.V.Max
	if k.standing() == unknownRequest {
		request = k.Request.V.Min
	}
	usage := min(k.Usage, math.MaxInt64)
	request = min(request, math.MaxInt64)
	return int64(usage) - int64(request) // both are not negative: it cannot overflow
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

func goesBefore(a, b *Candidate) bool {
	order, _ := compare(a, b)
	return order < 0
}
