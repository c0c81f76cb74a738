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

// manifestErrorMax bounds how long an unreadable manifest keeps all pods from counting as gone.
const manifestErrorMax = time.Hour

// Named provides the named pods to the Collector's goroutine, which cannot reach the loop's state.
// It is safe for concurrent use.
type Named struct {
	objects   func() (all []*v1.Pod, members map[string]bool)
	manifests bool // there may be static manifests
	// pods evicted and cleaned up, by UID; the map is never modified
	evicted         atomic.Pointer[map[string]evictedPod]
	read            atomic.Bool          // all manifests were read once
	manifestErrorAt atomic.Int64         // uptime of the last unreadable manifest; 0: none
	uptime          func() time.Duration // CLOCK_BOOTTIME, which cannot be set
}

// evictedPod is a pod that was evicted and cleaned up.
type evictedPod struct {
	began     time.Time // start of the eviction
	sandboxes []string  // its sandboxes then, by ID; empty: unknown
}

// isRestarted reports whether the pod is alive again, in another sandbox or in its former one. It
// may have been restarted before its cleanup ended. What is alive and of unknown age may be new.
func (e *evictedPod) isRestarted(p *read.Pod) bool {
	mayBeNew := func(created time.Time) bool { return created.IsZero() || created.After(e.began) }
	another := func(s cri.PodSandbox) bool {
		if len(e.sandboxes) == 0 {
			return s.Ready && mayBeNew(s.CreatedAt)
		}
		return s.Ready && !slices.Contains(e.sandboxes, s.ID) // by ID, because the clock may be set
	}
	return slices.ContainsFunc(p.Sandboxes, another) ||
		slices.ContainsFunc(p.Containers, func(c cri.Container) bool {
			return c.Running && mayBeNew(c.CreatedAt)
		})
}

// NewNamed returns a Named. objects returns the pods that clients and manifests name now, and the
// UIDs of those that only members of the socket's group name; it may be called at any time, and its
// results must not be modified. manifests means that there is a directory of static manifests: until
// it was read no pod counts as gone.
func NewNamed(objects func() (all []*v1.Pod, members map[string]bool), manifests bool) *Named {
	return &Named{objects: objects, manifests: manifests, uptime: bootid.Uptime}
}

// Known returns the named pods; it implements Options.Known.
func (n *Named) Known() Known {
	out := Known{Pods: map[string]reclaim.Phase{}, Synced: n.synced(),
		Claimed: map[string]bool{}, EvictedSandboxes: map[string][]string{}}
	var evicted map[string]evictedPod
	if m := n.evicted.Load(); m != nil {
		evicted = *m
	}
	objects, members := n.objects()
	for _, p := range objects {
		uid, phase := string(p.UID), PhaseOf(p)
		if e, was := evicted[uid]; was { // its object may not show the eviction yet
			phase, out.EvictedSandboxes[uid] = reclaim.Evicted, e.sandboxes
		} else if members[uid] && phase != reclaim.Active {
			out.Claimed[uid] = true
		}
		out.Pods[uid] = phase
	}
	return out
}

// synced reports whether all static manifests were read.
func (n *Named) synced() bool {
	at := n.manifestErrorAt.Load()
	return !n.manifests ||
		n.read.Load() && (at == 0 || n.uptime()-time.Duration(at) > manifestErrorMax)
}

// OnManifests records that all manifests were read.
func (n *Named) OnManifests() { n.read.Store(true) }

// OnManifestDoubt records an unreadable manifest: it may name a pod that nothing else names.
func (n *Named) OnManifestDoubt() { n.manifestErrorAt.Store(int64(max(n.uptime(), 1))) }

// onEvicted records that an evicted pod was cleaned up. It counts as evicted until it is restarted.
func (n *Named) onEvicted(began time.Time, uid string, sandboxes []string) {
	next := map[string]evictedPod{}
	if old := n.evicted.Load(); old != nil {
		maps.Copy(next, *old)
	}
	next[uid] = evictedPod{began, slices.Clone(sandboxes)}
	n.evicted.Store(&next)
}

// onPods drops evicted pods that were restarted or that the runtime no longer lists.
func (n *Named) onPods(pods read.Index) {
	old := n.evicted.Load()
	if old == nil {
		return
	}
	next := maps.Clone(*old)
	maps.DeleteFunc(next, func(uid string, e evictedPod) bool {
		return pods[uid] == nil || e.isRestarted(pods[uid])
	})
	if len(next) < len(*old) {
		n.evicted.Store(&next)
	}
}
