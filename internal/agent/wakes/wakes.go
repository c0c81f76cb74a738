// Package wakes has the kernel wake the loop: pressure on the node and on the cgroups above all
// pods, and events of pods. It says when to look, and which pods are at limits of their own.
//
//	wakes.go  Wakes: what is watched, and what a wake means
//	limit.go  pods at limits of their own
//
// What happens between two looks is one wake, and looks are 2 ms apart at least (pace.Rest),
// however much the kernel tells.
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

// stall of a twentieth of a second in a window starts fast looks for one: something is short that
// the headroom does not show. Where there is plenty, tasks stall at a limit of their own, and there
// is no hurry.
const stall = 50 * time.Millisecond

const (
	// sweepEvery is how often it is checked that what is watched under a pod's UID is still the pod's
	// cgroup: the kernel does not tell.
	sweepEvery = time.Minute
	// watchEvery is how often what has come and gone is found out; pods that are not watched for the
	// moment are watched again each second.
	watchEvery = 5 * time.Second
)

// triggers of the node and of the cgroups above all pods. Never of a pod's own: see cgroup.Trigger.
var triggers = []cgroup.Trigger{{Resource: cgroup.Memory, Stall: stall, Window: pace.StallWindow}}

// podEvents are what wakes of a pod.
const podEvents = cgroup.MemoryEventsChanged | cgroup.CgroupEventsChanged | cgroup.PIDsEventsChanged

// Options of New.
type Options struct {
	FS         *cgroup.FS
	ProcMount  string // empty: /proc
	CgroupRoot string // the kubelet's: pods are looked for below it
	Log        *logthrottle.Logger
	Ref        func(stats.PodReference) stats.PodReference // completes one
	Name       func(stats.PodReference) string             // of a pod, in the log
}

// Wakes is the loop's part. The kernel's side of it blocks in a goroutine that Start begins.
type Wakes struct {
	o       Options
	watcher *cgroup.Watcher // nil: it wakes nothing
	wake    cgroup.Wake     // scratch

	limits    map[string]*ownLimit // pods whose event files are watched, by UID
	swept     time.Time            // when it was last checked that they are the same cgroups
	wanted    map[string]bool      // scratch of Tick
	watchedAt time.Time            // when Tick last did something
	unwatched bool                 // a pod's events are not watched for the moment
	counts    metrics.Wakes
	before    bool // pods were watched before: one that is not watched yet is new, or has a new cgroup
}

// New makes a Wakes that watches nothing yet.
func New(o Options) *Wakes {
	return &Wakes{o: o, limits: map[string]*ownLimit{}, wanted: map[string]bool{}}
}

// Start has the kernel wake the loop. What it cannot do is logged once; the deadline poll is there
// all the same. The returned function ends it.
func (w *Wakes) Start() (stop func()) {
	kernel, err := cgroup.NewWatcher()
	if err != nil {
		w.o.Log.Warn("no wakes by the kernel: looking at memory by the clock", api.EventSource.Attr(),
			"error", err)
		return func() {}
	}
	if _, err := kernel.AddNode(w.o.ProcMount, triggers); err != nil {
		w.o.Log.Warn("no wake by the node's pressure", api.EventSource.Attr(), "error", err)
	}
	w.watcher = kernel
	done := make(chan struct{})
	log := w.o.Log.Logger
	go func() {
		defer close(done)
		if err := kernel.Wait(); err != nil {
			log.Error("no wakes by the kernel any more", api.EventSource.Attr(), "error", err)
		}
	}()
	return func() {
		kernel.Close()
		<-done
	}
}

// Counts are the wakes by what the kernel told. They are for any goroutine.
func (w *Wakes) Counts() *metrics.Wakes { return &w.counts }

// C is the kernel's channel; nil, which never has anything, without one.
func (w *Wakes) C() <-chan struct{} {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Wakes()
}

// AddFile has a descriptor that can be read stand for the events of a pod, in tests of the loop: a
// tree of files has none.
func (w *Wakes) AddFile(key string, fd int) error { return w.watcher.AddFile(key, fd) }

// Woken is what a wake means.
type Woken struct {
	Look    bool // at the node, soon
	Pressed bool // a pressure trigger fired
	List    bool // the runtime's pods: one came to life, or to its end
}

// OnWake takes what the kernel has told.
func (w *Wakes) OnWake(now time.Time) (out Woken) {
	if !w.watcher.Take(&w.wake) {
		return out
	}
	wake := &w.wake
	if wake.What&cgroup.Refused != 0 {
		for _, err := range w.watcher.Refusals() {
			w.o.Log.Warn("watching less than wanted", api.EventSource.Attr(), "error", err)
		}
	}
	out.Pressed = wake.What&cgroup.MemoryPressed != 0
	w.count(wake.What)
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

func (w *Wakes) count(what cgroup.Happened) {
	for _, k := range []struct {
		what cgroup.Happened
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

// Anew has pods that are new watched at the next Tick already.
func (w *Wakes) Anew() { w.unwatched = true }

// Tick watches what has come since it was called last, and drops what is gone. It is called once a
// second; eachPod goes through the pods of the hierarchy.
func (w *Wakes) Tick(now time.Time, eachPod func(visit func(uid, path string))) {
	if w.watcher == nil || !w.unwatched && now.Sub(w.watchedAt) < watchEvery {
		return
	}
	w.watchedAt, w.unwatched = now, false
	sweep := now.Sub(w.swept) >= sweepEvery
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
		if wanted[uid] { // one of its cgroups is left behind
			return
		}
		wanted[uid] = true
		if l := w.limits[uid]; l != nil && l.path == path && l.watched && !sweep {
			return
		}
		w.watchPod(uid, path)
	})
	w.before = true
	w.watcher.Keep(func(key string) bool { return wanted[key] })
	for uid := range w.limits {
		if !wanted[uid] {
			delete(w.limits, uid)
		}
	}
}

// watch has one cgroup watched under a key, if it is there.
func (w *Wakes) watch(key, cgroupPath string, what cgroup.Watch) (added bool) {
	g, err := w.o.FS.Group(cgroupPath)
	if err != nil {
		return false // of the two drivers' names one is there, or none yet; a pod may be gone
	}
	defer g.Close()
	if w.watcher.Watches(key, g.ID()) {
		return false
	}
	if _, err := w.watcher.Add(key, g, what); err != nil && !errors.Is(err, cgroup.ErrVanished) {
		w.o.Log.Repeat("watch "+cgroupPath, func() {
			w.o.Log.Warn("no wake by a cgroup", api.EventSource.Attr(), "cgroup", path.Join("/", cgroupPath),
				"error", err)
		})
	}
	return true
}
