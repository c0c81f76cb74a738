package admit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// PromisedFor is how long room is kept for a pod for which others were preempted: until its caller
// asks again, and it runs.
const PromisedFor = 30 * time.Second

// Promises is room that is kept for pods that do not run yet. The zero value keeps none. It has no
// lock.
type Promises struct {
	kept map[types.UID]promise
}

type promise struct {
	pod   Held
	until time.Time
}

// Keep keeps room for a pod from now on, also where it was kept before, and none any more for one
// of the same name with another UID: that is an earlier attempt at it. A pod without a UID could
// not be told from others when it asks again: for it nothing is kept, and Keep says so.
func (p *Promises) Keep(now time.Time, pod Held) bool {
	if pod.UID == "" {
		return false
	}
	if p.kept == nil {
		p.kept = map[types.UID]promise{}
	}
	maps.DeleteFunc(p.kept, func(uid types.UID, old promise) bool {
		return uid != pod.UID && old.pod.named(pod.Namespace, pod.Name)
	})
	pod.Kept = true
	p.kept[pod.UID] = promise{pod, now.Add(PromisedFor)}
	return true
}

// Drop gives the room of a pod back: it runs, or will not.
func (p *Promises) Drop(uid types.UID) { delete(p.kept, uid) }

// Until is when the room of a pod is not kept any more; zero: none is kept.
func (p *Promises) Until(uid types.UID) time.Time { return p.kept[uid].until }

// UIDs are those of the pods for which room is kept, or was a moment ago, in no order.
func (p *Promises) UIDs() []types.UID { return slices.Collect(maps.Keys(p.kept)) }

// Held is the room that is kept, by UID; what was kept for too long is forgotten.
func (p *Promises) Held(now time.Time) []Held {
	var out []Held
	for uid, kept := range p.kept {
		if !now.Before(kept.until) {
			delete(p.kept, uid)
			continue
		}
		out = append(out, kept.pod)
	}
	slices.SortFunc(out, func(a, b Held) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Outranks reports whether a pod may have room that is kept for another: it is critical, and the
// priorities of both are known, its own being the higher one. Among equals who was promised room
// first has it. One without a UID could be let in twice for it.
func (h *Held) Outranks(other *Held) bool {
	return h.UID != "" && h.Critical() && h.Priority.OK && other.Priority.OK &&
		h.Priority.V > other.Priority.V
}

// passesOver reports whether a promise is not in the way of a pod.
func (p *asking) passesOver(h *Held) bool {
	if !h.Kept || !critical(p.Pod) {
		return false
	}
	return h.named(p.Namespace, p.Name) || !p.doubted && p.rank().Outranks(h)
}

// rank is what Outranks takes of a pod.
func (p *asking) rank() *Held {
	out := &Held{UID: p.UID, Static: static(p.Pod)}
	if p.Spec.Priority != nil {
		out.Priority = stats.Some(*p.Spec.Priority)
	}
	return out
}

// Outranked are the promises that are none any more once a pod is taken: beside it there is no room
// for them. The most critical ones stay as far as they can. Room counts, and no other reason for
// which the pod might be refused.
func Outranked(p PodAttributes, n NodeState) (out []Held) {
	asking := askingOf(p)
	if asking.doubted || !critical(asking.Pod) {
		return nil
	}
	rank, ports, lower := asking.rank(), asking.ports, []Held(nil)
	stay := slices.DeleteFunc(slices.Clone(n.Promised), func(h Held) bool {
		if h.Kept && rank.Outranks(&h) {
			lower = append(lower, h)
			return true
		}
		return false
	})
	slices.SortStableFunc(lower,
		func(a, b Held) int { return cmp.Compare(b.Priority.V, a.Priority.V) })
	for _, h := range lower {
		n.Promised = append(stay, h)
		n.Promised[len(stay)].Kept = false // so that it is in the way
		if others := n.others(asking); len(shortages(asking.requests, others, &n)) > 0 ||
			taken(ports, others) {
			out = append(out, h)
			continue
		}
		stay = n.Promised
	}
	return out
}
