package garbage

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cri"
	"jettison/internal/node/bootid"
	"jettison/reclaim"
	"jettison/stats/read"
)

// doubtFor is for how long a manifest that cannot be read keeps every pod from counting as gone.
const doubtFor = time.Hour

// Named is what is known of pods by name, for the Collector's goroutine: it cannot reach what
// belongs to the loop. It is safe for concurrent use.
type Named struct {
	objects   func() []*v1.Pod
	manifests bool // there may be static ones
	// pods that were cleaned up, by UID; what it points to never changes
	evicted atomic.Pointer[map[string]ended]
	read    atomic.Bool          // all manifests were, once
	doubted atomic.Int64         // when one could not be read, by uptime; 0: never
	uptime  func() time.Duration // CLOCK_BOOTTIME: nobody sets it
}

// ended is a pod that was evicted and cleaned up.
type ended struct {
	began     time.Time // its eviction
	sandboxes []string  // that it had then, by ID; none: they were not known
}

// back reports whether a pod lives again, in another sandbox or in the one that it had. It may have
// come before its clean-up ended.
func (e *ended) back(p *read.Pod) bool {
	another := func(s cri.PodSandbox) bool {
		if len(e.sandboxes) == 0 {
			return s.Ready && s.CreatedAt.After(e.began)
		}
		return s.Ready && !slices.Contains(e.sandboxes, s.ID) // whatever the clock was set to since
	}
	return slices.ContainsFunc(p.Sandboxes, another) ||
		slices.ContainsFunc(p.Containers, func(c cri.Container) bool {
			return c.Running && c.CreatedAt.After(e.began)
		})
}

// NewNamed makes a Named. objects, which may be called at any time, are the pods that clients and
// manifests name now, and are not changed any more. manifests: there is a directory of static ones,
// and until it was read no pod is gone.
func NewNamed(objects func() []*v1.Pod, manifests bool) *Named {
	return &Named{objects: objects, manifests: manifests, uptime: bootid.Uptime}
}

// Known is what the Collector asks for.
func (n *Named) Known() Known {
	out := Known{Pods: map[string]reclaim.Phase{}, Synced: n.synced(), Had: map[string][]string{}}
	var evicted map[string]ended
	if m := n.evicted.Load(); m != nil {
		evicted = *m
	}
	for _, p := range n.objects() {
		phase := PhaseOf(p)
		if e, was := evicted[string(p.UID)]; was { // its object may not say so yet
			phase, out.Had[string(p.UID)] = reclaim.Evicted, e.sandboxes
		}
		out.Pods[string(p.UID)] = phase
	}
	return out
}

// synced: all static manifests were read.
func (n *Named) synced() bool {
	at := n.doubted.Load()
	return !n.manifests || n.read.Load() && (at == 0 || n.uptime()-time.Duration(at) > doubtFor)
}

// OnManifests notes that all manifests were read.
func (n *Named) OnManifests() { n.read.Store(true) }

// OnManifestDoubt notes that a manifest cannot be read: a pod that nothing else names may be its.
func (n *Named) OnManifestDoubt() { n.doubted.Store(int64(max(n.uptime(), 1))) }

// onEvicted remembers that nothing of a pod is needed any more, as long as it does not come back.
func (n *Named) onEvicted(began time.Time, uid string, sandboxes []string) {
	next := map[string]ended{}
	if old := n.evicted.Load(); old != nil {
		maps.Copy(next, *old)
	}
	next[uid] = ended{began, slices.Clone(sandboxes)}
	n.evicted.Store(&next)
}

// onPods forgets that pods were evicted which live again, or of which the runtime knows nothing any
// more.
func (n *Named) onPods(pods read.Index) {
	old := n.evicted.Load()
	if old == nil {
		return
	}
	next := maps.Clone(*old)
	maps.DeleteFunc(next, func(uid string, e ended) bool {
		return pods[uid] == nil || e.back(pods[uid])
	})
	if len(next) < len(*old) {
		n.evicted.Store(&next)
	}
}
