package nri

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Hold is why and how long a pod is not let in again.
type Hold struct {
	Until  time.Time
	Reason string // the pressure, in words: the runtime and the kubelet show it
}

// maxHolds bounds HoldOffs. A node has a few hundred pods, and one is evicted at a time.
const maxHolds = 1024

// PodKey is what holds off all pods of a name, whatever their UIDs: who brings a pod back under its
// name gives it another UID.
func PodKey(namespace, name string) string { return ByPod + namespace + "/" + name }

// ByPod is how each PodKey begins, and no UID that a kubelet knows.
const ByPod = "pod:"

// DaemonSetKey is what holds off all pods of the DaemonSet that has made one, by that one's name:
// each is called after the DaemonSet, with an end of five letters that the API server chose
// (apiserver pkg/storage/names/generate.go randomLength, v1.36.3). Empty: its name is none of
// these.
func DaemonSetKey(namespace, pod string) string {
	const end = 5
	if len(pod) <= end {
		return ""
	}
	return ByDaemonSet + namespace + "/" + pod[:len(pod)-end]
}

// ByDaemonSet is how each DaemonSetKey begins, and no UID that a kubelet knows.
const ByDaemonSet = "daemonset:"

// HoldOffs are the pods that are held off, by UID, PodKey or DaemonSetKey. The loop writes, the
// plugin reads without a lock: a map that was handed out is never written again. The zero value
// holds no pod.
type HoldOffs struct {
	mu    sync.Mutex // of writers
	held  atomic.Pointer[map[string]Hold]
	first atomic.Pointer[namedHold] // of SetAtOnce; nil: all is in held
	spare *namedHold                // for the next SetAtOnce; nil: one is made. mu guards it
}

type namedHold struct {
	uid string
	Hold
}

// SetAtOnce holds a pod off as Set does, and allocates nothing: to be called where there may be no
// memory to be had, once between two calls of Set.
func (h *HoldOffs) SetAtOnce(uid string, hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.spare
	if h.spare = nil; first == nil {
		first = &namedHold{}
	}
	first.uid, first.Hold = uid, hold
	h.first.Store(first)
}

// Set holds a pod off, instead of what was set for it before. What is over is forgotten; of more
// than 1024 the one that ends first is.
func (h *HoldOffs) Set(now time.Time, uid string, hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.All()
	if next == nil {
		next = map[string]Hold{}
	}
	maps.DeleteFunc(next, func(_ string, old Hold) bool { return !now.Before(old.Until) })
	if _, again := next[uid]; !again && len(next) >= maxHolds {
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
		if _, again := next[first.uid]; !again {
			next[first.uid] = first.Hold
		}
	}
	h.held.Store(&next)
	h.first.Store(nil)
	if h.spare == nil {
		h.spare = &namedHold{} // one that was stored may still be read
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

// All is a copy of what is set, for who writes it down. It may hold what is over.
func (h *HoldOffs) All() map[string]Hold {
	if held := h.held.Load(); held != nil {
		return maps.Clone(*held)
	}
	return nil
}
