package wakes

import (
	"cmp"
	"slices"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/stats"
)

// A pod at its own limit stalls, is throttled, and may lose a process to the kernel's OOM
// killer. That alone is no shortage of the node, which memory.available shows; a threshold for
// pressure evicts only the pod that causes it (see eviction/cause.go). The agent logs and shows
// such pods, so that an operator can identify them.

// ownLimit is the state of a pod's limits.
type ownLimit struct {
	path    string
	watched bool
	events  cgroup.MemoryEvents // as last read
	known   bool                // events is valid
	since   time.Time           // first of the current hits; zero: none lately
	last    time.Time           // last hit
}

// calmAfter is the time without a hit after which a pod is not at its limit any more.
const calmAfter = 10 * time.Second

// watchPod watches a pod's event files.
func (w *Wakes) watchPod(uid, path string) {
	l := w.limits[uid]
	if l == nil || l.path != path {
		l = &ownLimit{path: path, known: w.primed} // all events of a new cgroup are new
		w.limits[uid] = l
	}
	if w.watch(uid, path, cgroup.Watch{Events: podEvents}) {
		before, known := l.events, l.known
		if l.events, l.known = w.memoryEvents(path); known && l.known {
			w.logIncrease(time.Now(), uid, l, before) // events while it was not watched
		}
	}
	l.watched = true
}

// memoryEvents reads memory.events of a pod, which includes all cgroups below it.
func (w *Wakes) memoryEvents(path string) (cgroup.MemoryEvents, bool) {
	g, err := w.o.FS.Group(path)
	if err != nil {
		return cgroup.MemoryEvents{}, false
	}
	defer g.Close()
	var buf [1024]byte
	events, err := g.MemoryEvents(buf[:])
	return events, err == nil
}

// limitHit processes a change of a pod's memory.events. The pod is not watched again before the
// next slow look: a pod that reads files at its limit hits it all the time.
func (w *Wakes) limitHit(now time.Time, uid string) {
	l := w.limits[uid]
	w.watcher.Remove(uid)
	l.watched, w.watchSoon = false, true
	events, ok := w.memoryEvents(l.path)
	before, known := l.events, l.known
	if l.events, l.known = events, ok; ok && known {
		w.logIncrease(now, uid, l, before)
	}
}

// logIncrease logs the events since an earlier reading.
func (w *Wakes) logIncrease(now time.Time, uid string, l *ownLimit, before cgroup.MemoryEvents) {
	events := l.events
	high, max := increase(before.High, events.High), increase(before.Max, events.Max)
	killed := increase(before.OOMKill, events.OOMKill)
	if high+max+killed == 0 {
		return
	}
	if now.Sub(l.last) > calmAfter {
		l.since = now
	}
	l.last = now
	fields := []any{"pod", w.o.Name(stats.PodReference{UID: uid}), "uid", uid, "high", high, "max",
		max}
	if killed > 0 {
		//log: The kernel killed a process of a pod because the pod reached its own memory limit, or the
		//  node ran out of memory.
		//do: Raise the pod's memory limit if it needs the memory. If the node ran out of memory, raise
		//  the hard threshold.
		w.o.Log.Warn("OOM killer killed process in pod", append(fields, api.EventPod.Attr(),
			"oomKills", killed)...)
		return
	}
	w.o.Log.Repeat("limit "+uid, func() {
		//log: A pod reached its own memory.high or memory.max, and the kernel reclaims its memory. The
		//  agent evicts no other pod for that.
		w.o.Log.Info("pod at its own memory limit",
			append(fields, api.EventPod.Attr())...)
	})
}

// AtLimit returns the pods that lately hit their own limit, sorted by UID.
func (w *Wakes) AtLimit(now time.Time) []api.LimitState {
	out := []api.LimitState{}
	for uid, l := range w.limits {
		if !l.since.IsZero() && now.Sub(l.last) <= calmAfter {
			out = append(out, api.LimitState{Pod: w.o.Ref(stats.PodReference{UID: uid}), Since: l.since})
		}
	}
	slices.SortFunc(out, func(x, y api.LimitState) int { return cmp.Compare(x.Pod.UID, y.Pod.UID) })
	return out
}

func increase(from, to uint64) uint64 {
	if to < from { // another cgroup has the path
		return 0
	}
	return to - from
}
