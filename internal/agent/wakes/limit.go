package wakes

import (
	"cmp"
	"slices"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/stats"
)

// A pod that is at a limit of its own stalls, is throttled, and may lose a process to the kernel's
// OOM killer. That is its own affair: the node is short only when memory.available says so, and a
// threshold for pressure evicts only the pod that causes it (see eviction/cause.go). What is seen
// here is logged and shown, so that an operator can find out which pod it was.

// ownLimit is what is known of a pod's limits.
type ownLimit struct {
	path    string
	watched bool
	events  cgroup.MemoryEvents // as last read
	known   bool                // events is
	since   time.Time           // of the hits in a row; zero: none lately
	last    time.Time           // hit
}

// calmAfter is how long a pod must not have hit its limit to be away from it.
const calmAfter = 10 * time.Second

// watchPod has a pod's event files wake.
func (w *Wakes) watchPod(uid, path string) {
	l := w.limits[uid]
	if l == nil || l.path != path {
		l = &ownLimit{path: path, known: w.before} // of a new cgroup all is news
		w.limits[uid] = l
	}
	if w.watch(uid, path, cgroup.Watch{Events: podEvents}) {
		before, known := l.events, l.known
		if l.events, l.known = w.memoryEvents(path); known && l.known {
			w.rose(time.Now(), uid, l, before) // while it was not watched
		}
	}
	l.watched = true
}

// memoryEvents reads those of a pod and of all below it.
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

// limitHit takes that a pod's memory.events have changed. It is not told again before the next slow
// look: a pod that reads files at its limit hits it all the time.
func (w *Wakes) limitHit(now time.Time, uid string) {
	l := w.limits[uid]
	w.watcher.Remove(uid)
	l.watched, w.unwatched = false, true
	events, ok := w.memoryEvents(l.path)
	before, known := l.events, l.known
	if l.events, l.known = events, ok; ok && known {
		w.rose(now, uid, l, before)
	}
}

// rose says what has happened since an earlier reading.
func (w *Wakes) rose(now time.Time, uid string, l *ownLimit, before cgroup.MemoryEvents) {
	events := l.events
	high, max := rise(before.High, events.High), rise(before.Max, events.Max)
	killed := rise(before.OOMKill, events.OOMKill)
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
		w.o.Log.Warn("the kernel's OOM killer has killed in a pod", append(fields, api.EventPod.Attr(),
			"oomKills", killed)...)
		return
	}
	w.o.Log.Repeat("limit "+uid, func() {
		w.o.Log.Info("a pod is at a memory limit of its own: that is no reason to evict another one",
			append(fields, api.EventPod.Attr())...)
	})
}

// AtLimit are the pods that hit a limit of their own lately, by UID.
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

func rise(from, to uint64) uint64 {
	if to < from { // another cgroup has the path
		return 0
	}
	return to - from
}
