// Package wakes wakes the loop on events of the kernel: pressure on the node and on the cgroups
// above all pods, and events of pods. It reports when to look, and which pods are at their own
// limits.
//
//	wakes.go  Wakes: the watched cgroups, and the meaning of a wake
//	limit.go  pods at their own limits
//
// All events between two looks make one wake, and looks are at least 2 ms apart (pace.WaitAfter),
// however many events occur.
package wakes

import (
	"errors"
	"path"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/internal/agent/pace"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/metrics"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// stall is the stall time in a window that starts fast looks for one window: something is short
// that the headroom does not show. With plenty of memory the tasks stall at their own limit, which
// is not urgent.
const stall = 50 * time.Millisecond

const (
	// sweepInterval is the interval at which each watched cgroup is compared with the pod's current
	// one: the kernel does not report a replacement.
	sweepInterval = time.Minute
	// watchInterval is the interval at which new and ended pods are detected; pods with a suspended
	// watch are watched again after a second.
	watchInterval = 5 * time.Second
)

// triggers apply to the node and to the cgroups above all pods, never to a pod's own: see
// cgroup.Trigger.
var triggers = []cgroup.Trigger{{Resource: cgroup.Memory, Stall: stall, Window: pace.StallWindow}}

// podEvents are the events of a pod that wake the loop.
const podEvents = cgroup.MemoryEventsChanged | cgroup.CgroupEventsChanged | cgroup.PIDsEventsChanged

// Options configures New.
type Options struct {
	FS         *cgroup.FS
	ProcMount  string // empty: /proc
	CgroupRoot string // the kubelet's: pods are searched below it
	Log        *logthrottle.Logger
	Ref        func(stats.PodReference) stats.PodReference // completes a reference
	Name       func(stats.PodReference) string             // of a pod, in the log
}

// Wakes is the loop's side. The kernel's side blocks in a goroutine that Start begins.
type Wakes struct {
	o       Options
	watcher *cgroup.Watcher // nil: no wakes
	wake    cgroup.Wake     // scratch

	limits    map[string]*ownLimit // pods with watched event files, by UID
	swept     time.Time            // last check that they are the same cgroups
	wanted    map[string]bool      // scratch of Tick
	watchedAt time.Time            // when Tick last worked
	watchSoon bool                 // the watch of a pod is suspended, or pods are new
	counts    metrics.Wakes
	primed    bool // pods were watched before: an unwatched one is new or has a new cgroup
}

// New creates a Wakes that watches nothing yet.
func New(o Options) *Wakes {
	return &Wakes{o: o, limits: map[string]*ownLimit{}, wanted: map[string]bool{}}
}

// Start starts the kernel's wakes. Failures are logged once; the loop polls in any case. The
// returned function stops the wakes.
func (w *Wakes) Start() (stop func()) {
	kernel, err := cgroup.NewWatcher()
	if err != nil {
		//log: The agent cannot watch kernel events. It polls memory on its own schedule.
		//do: If the key error names a limit, raise LimitNOFILE of the agent's unit, or the sysctl
		//  fs.epoll.max_user_watches.
		w.o.Log.Warn("kernel wakes unavailable, polling", api.EventSource.Attr(),
			"error", err)
		return func() {}
	}
	if _, err := kernel.AddNode(w.o.ProcMount, triggers); err != nil {
		//log: The pressure trigger of the node (/proc/pressure/memory) could not be set. The agent polls
		//  memory on its own schedule.
		//do: Enable PSI in the kernel (psi=1), and see the key error.
		w.o.Log.Warn("node pressure trigger unavailable", api.EventSource.Attr(), "error", err)
	}
	w.watcher = kernel
	done := make(chan struct{})
	log := w.o.Log.Logger
	go func() {
		defer close(done)
		if err := kernel.Wait(); err != nil {
			//log: Watching kernel events failed. The agent polls memory on its own schedule until its next
			//  start.
			//do: See the key error, and restart the agent.
			log.Error("kernel wakes stopped", api.EventSource.Attr(), "error", err)
		}
	}()
	return func() {
		kernel.Close()
		<-done
	}
}

// Counts returns the number of wakes by kernel event. It is safe for concurrent use.
func (w *Wakes) Counts() *metrics.Wakes { return &w.counts }

// C returns the kernel's channel; nil, which never receives, without a watcher.
func (w *Wakes) C() <-chan struct{} {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Wakes()
}

// AddFile makes a readable descriptor stand for the events of a pod, in tests of the loop: a tree
// of files has no events.
func (w *Wakes) AddFile(key string, fd int) error { return w.watcher.AddFile(key, fd) }

// Result is the result of a wake.
type Result struct {
	Look    bool // look at the node soon
	Pressed bool // a pressure trigger fired
	List    bool // list the runtime's pods: one has started or ended
}

// OnWake processes the pending events of the kernel.
func (w *Wakes) OnWake(now time.Time) (out Result) {
	if !w.watcher.Take(&w.wake) {
		return out
	}
	wake := &w.wake
	if wake.What&cgroup.Refused != 0 {
		for _, err := range w.watcher.Refusals() {
			//log: The kernel refused to watch a file or cgroup. Its events do not wake the agent, which
			//  polls instead.
			//do: If the key error names a limit, raise LimitNOFILE of the agent's unit, or the sysctl
			//  fs.epoll.max_user_watches.
			w.o.Log.Warn("kernel watch refused", api.EventSource.Attr(), "error", err)
		}
	}
	out.Pressed = wake.What&cgroup.MemoryPressed != 0
	w.countEvents(wake.What)
	out.Look = out.Pressed || wake.What&cgroup.PIDsEventsChanged != 0
	ended := false
	for i := range wake.N {
		k := &wake.Keys[i]
		if w.limits[k.Key] == nil {
			continue
		}
		ended = ended || k.What&cgroup.CgroupEventsChanged != 0
		if k.What&cgroup.MemoryEventsChanged != 0 {
			w.limitHit(now, k.Key)
		}
	}
	if ended || wake.Overflow && wake.What&cgroup.CgroupEventsChanged != 0 {
		out.List, out.Look = true, true
	}
	return out
}

func (w *Wakes) countEvents(what cgroup.WatchEvents) {
	for _, k := range []struct {
		what cgroup.WatchEvents
		of   *metrics.Counter
	}{
		{cgroup.MemoryPressed, &w.counts.Pressure}, {cgroup.MemoryEventsChanged, &w.counts.MemoryEvents},
		{cgroup.CgroupEventsChanged, &w.counts.CgroupEvents},
		{cgroup.PIDsEventsChanged, &w.counts.PIDsEvents},
	} {
		if what&k.what != 0 {
			k.of.Add(1)
		}
	}
}

// WatchSoon makes the next Tick watch new pods.
func (w *Wakes) WatchSoon() { w.watchSoon = true }

// Tick watches cgroups that are new since the last call, and drops those that are gone. It is
// called once a second; eachPod visits the pods of the hierarchy.
func (w *Wakes) Tick(now time.Time, eachPod func(visit func(uid, path string))) {
	if w.watcher == nil || !w.watchSoon && now.Sub(w.watchedAt) < watchInterval {
		return
	}
	w.watchedAt, w.watchSoon = now, false
	sweep := now.Sub(w.swept) >= sweepInterval
	if sweep {
		w.swept = now
	}
	wanted := w.wanted
	clear(wanted)
	for _, class := range podindex.PodRoots(w.o.CgroupRoot) {
		if wanted[class] = true; sweep {
			w.watch(class, class, cgroup.Watch{Triggers: triggers})
		}
	}
	eachPod(func(uid, path string) {
		if wanted[uid] { // a second cgroup of the pod was left behind
			return
		}
		wanted[uid] = true
		if l := w.limits[uid]; l != nil && l.path == path && l.watched && !sweep {
			return
		}
		w.watchPod(uid, path)
	})
	w.primed = true
	w.watcher.Keep(func(key string) bool { return wanted[key] })
	for uid := range w.limits {
		if !wanted[uid] {
			delete(w.limits, uid)
		}
	}
}

// watch watches one cgroup under a key, if it exists.
func (w *Wakes) watch(key, cgroupPath string, what cgroup.Watch) (added bool) {
	g, err := w.o.FS.Group(cgroupPath)
	if err != nil {
		return false // only one cgroup driver's name exists, or none yet; a pod may have ended
	}
	defer g.Close()
	if w.watcher.Watches(key, g.ID()) {
		return false
	}
	if _, err := w.watcher.Add(key, g, what); err != nil && !errors.Is(err, cgroup.ErrVanished) {
		w.o.Log.Repeat("watch "+cgroupPath, func() {
			//log: Events of this cgroup do not wake the agent, which polls instead.
			//do: If the key error names a limit, raise LimitNOFILE of the agent's unit, or the sysctl
			//  fs.epoll.max_user_watches.
			w.o.Log.Warn("cgroup watch failed", api.EventSource.Attr(), "cgroup", path.Join("/", cgroupPath),
				"error", err)
		})
	}
	return true
}
