package nri

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Hold is the hold-off of a pod.
type Hold struct {
	Until  time.Time
	Reason string // the pressure, shown by the runtime and the kubelet
}

// maxHolds limits HoldOffs. A node has a few hundred pods, and one is evicted at a time.
const maxHolds = 1024

// PodKey returns the key that holds off all pods of a name, regardless of their UIDs: a controller
// that recreates a pod under its name gives it another UID.
func PodKey(namespace, name string) string { return ByPod + namespace + "/" + name }

// ByPod is the prefix of each PodKey, and of no UID that a kubelet uses.
const ByPod = "pod:"

// DaemonSetKey returns the key that holds off all pods of a DaemonSet, from the name of one of its
// pods: the name of the DaemonSet with a suffix of five characters from the API server (apiserver
// pkg/storage/names/generate.go randomLength, v1.37.2). It returns "" if the name is too short.
func DaemonSetKey(namespace, pod string) string {
	const end = 5
	if len(pod) <= end {
		return ""
	}
	return ByDaemonSet + namespace + "/" + pod[:len(pod)-end]
}

// ByDaemonSet is the prefix of each DaemonSetKey, and of no UID that a kubelet uses.
const ByDaemonSet = "daemonset:"

// HoldOffs holds the pods in their hold-off, by UID, PodKey or DaemonSetKey. The agent's loop
// writes, and the plugin reads without a lock: a published map is never changed. The zero value is
// empty.
type HoldOffs struct {
	mu    sync.Mutex // of writers
	held  atomic.Pointer[map[string]Hold]
	first atomic.Pointer[namedHold] // set by SetFirst; nil: all holds are in held
	spare *namedHold                // for the next SetFirst; nil: to be allocated. Guarded by mu
}

type namedHold struct {
	uid string
	Hold
}

// SetFirst holds a pod off like Set, without allocating memory. Call it at most once between two
// calls of Set.
func (h *HoldOffs) SetFirst(uid string, hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.spare
	if h.spare = nil; first == nil {
		first = &namedHold{}
	}
	first.uid, first.Hold = uid, hold
	h.first.Store(first)
}

// Set holds a pod off, and replaces an earlier hold. It drops expired holds. At 1024 holds it also
// drops the hold that ends first.
func (h *HoldOffs) Set(now time.Time, uid string, hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.All()
	if next == nil {
		next = map[string]Hold{}
	}
	maps.DeleteFunc(next, func(_ string, old Hold) bool { return !now.Before(old.Until) })
	if _, exists := next[uid]; !exists && len(next) >= maxHolds {
		first := ""
		for u, old := range next {
			if first == "" || old.Until.Before(next[first].Until) {
				first = u
			}
		}
		delete(next, first)
	}
	next[uid] = hold
	if first := h.first.Load(); first != nil && first.uid != uid {
		if _, exists := next[first.uid]; !exists {
			next[first.uid] = first.Hold
		}
	}
	h.held.Store(&next)
	h.first.Store(nil)
	if h.spare == nil {
		h.spare = &namedHold{} // a reader may still use the published one
	}
}

// Held returns the hold of a pod that is held off now.
func (h *HoldOffs) Held(now time.Time, uid string) (Hold, bool) {
	if first := h.first.Load(); first != nil && first.uid == uid {
		return first.Hold, now.Before(first.Until)
	}
	held := h.held.Load()
	if held == nil {
		return Hold{}, false
	}
	hold, ok := (*held)[uid]
	return hold, ok && now.Before(hold.Until)
}

// All returns a copy of all holds, to be saved. It may contain expired holds.
func (h *HoldOffs) All() map[string]Hold {
	if held := h.held.Load(); held != nil {
		return maps.Clone(*held)
	}
	return nil
}
