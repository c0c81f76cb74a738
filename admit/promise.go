package admit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PromisedFor is how long room is kept for a pod for which others were preempted: until its caller asks again, and it runs.
const PromisedFor = 30 * time.Second

// Promises is room that is kept for pods that do not run yet. The zero value keeps none. It has no lock.
type Promises struct {
	kept map[types.UID]promise
}

type promise struct {
	pod   Held
	until time.Time
}

// Keep keeps room for a pod from now on, also where it was kept before, and none any more for one of the same name with another UID: that
// is an earlier attempt at it. A pod without a UID could not be told from others when it asks again: for it nothing is kept, and Keep says
// so.
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
