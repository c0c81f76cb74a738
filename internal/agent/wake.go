package agent

import (
	"errors"
	"math"
	"path"
	"time"

	"jettison/cgroup"
	"jettison/eviction"
	"jettison/stats/read"
)

// A stall of a twentieth of a second starts fast polling for one window: something is short that the headroom does not show. Where
// there is plenty, somebody stalls at a limit of his own, and nobody is in a hurry.
const (
	stall       = 50 * time.Millisecond
	stallWindow = time.Second
	pollPressed = 20 * time.Millisecond
	pollStalled = 200 * time.Millisecond
	plenty      = 4 // times the threshold
)

// sweepEvery is how often it is checked that what is watched under a pod's UID is still the pod's cgroup: the kernel does not tell.
const sweepEvery = time.Minute

// watchEvery is how often what has come and gone is found out; pods that are not watched for the moment are watched again each second.
const watchEvery = 5 * time.Second

// triggers of the node and of the cgroups above all pods. Never of a pod's own: see cgroup.Trigger.
var triggers = []cgroup.Trigger{{Resource: cgroup.Memory, Stall: stall, Window: stallWindow}}

// podEvents are what wakes of a pod.
const podEvents = cgroup.MemoryEventsChanged | cgroup.CgroupEventsChanged | cgroup.PIDsEventsChanged

// startWatch has the kernel wake the loop. What it cannot do is logged once; the deadline poll is there all the same. The returned
// function ends it.
func (a *agent) startWatch() (stop func()) {
	w, err := cgroup.NewWatcher(cgroup.WatcherOptions{})
	if err != nil {
		a.log.Warn("the kernel wakes nobody: looking at memory by the clock", "error", err)
		return func() {}
	}
	if _, err := w.AddNode(a.o.ProcMount, triggers); err != nil {
		a.log.Warn("no wake by the node's pressure", "error", err)
	}
	a.kernel = w
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Wait(); err != nil {
			a.log.Error("the kernel wakes nobody any more", "error", err)
		}
	}()
	return func() {
		w.Close()
		<-done
	}
}

// watchCgroups adds what has come since it was called last, and drops what is gone.
func (a *agent) watchCgroups(now time.Time) {
	if a.kernel == nil || !a.unwatched && now.Sub(a.watchedAt) < watchEvery {
		return
	}
	a.watchedAt, a.unwatched = now, false
	sweep := now.Sub(a.swept) >= sweepEvery
	if sweep {
		a.swept = now
	}
	above := read.PodRoots(a.o.Config.CgroupRoot)
	wanted := a.wanted
	clear(wanted)
	for _, class := range above {
		if wanted[class] = true; sweep {
			a.watch(class, class, cgroup.Watch{Triggers: triggers})
		}
	}
	a.Reader.EachPod(func(uid, path string) {
		if wanted[uid] { // one of its cgroups is left behind
			return
		}
		wanted[uid] = true
		if l := a.limits[uid]; l != nil && l.path == path && l.watched && !sweep {
			return
		}
		a.watchPod(uid, path)
	})
	a.watchedBefore = true
	a.kernel.Keep(func(key string) bool { return wanted[key] })
	for uid := range a.limits {
		if !wanted[uid] {
			delete(a.limits, uid)
		}
	}
}

// watch has one cgroup watched under a key, if it is there.
func (a *agent) watch(key, cgroupPath string, what cgroup.Watch) (added bool) {
	g, err := a.FS.Group(cgroupPath)
	if err != nil {
		return false // of the two drivers' names one is there, or none yet; a pod may be gone
	}
	defer g.Close()
	if a.kernel.Watches(key, g.ID()) {
		return false
	}
	if _, err := a.kernel.Add(key, g, what); err != nil && !errors.Is(err, cgroup.ErrVanished) {
		a.repeat("watch "+cgroupPath, func() { a.log.Warn("no wake by a cgroup", "cgroup", path.Join("/", cgroupPath), "error", err) })
	}
	return true
}

// woken takes what the kernel has told, and reports whether it is a reason to look.
func (a *agent) woken(now time.Time) (look bool) {
	if !a.kernel.Take(&a.wake) {
		return false
	}
	w := &a.wake
	if w.What&cgroup.Refused != 0 {
		for _, err := range a.kernel.Refusals() {
			a.log.Warn("watching less than wanted", "error", err)
		}
	}
	if w.What&cgroup.MemoryPressed != 0 {
		a.pressed, look = now, true
	}
	if w.What&(cgroup.PIDsEventsChanged|cgroup.FileReady) != 0 {
		look = true
	}
	ended := false
	for i := range w.N {
		k := &w.Keys[i]
		if a.limits[k.Key] == nil {
			continue
		}
		ended = ended || k.What&cgroup.CgroupEventsChanged != 0
		if k.What&cgroup.MemoryEventsChanged != 0 {
			a.limitHit(now, k.Key)
		}
	}
	if ended || w.Overflow && w.What&cgroup.CgroupEventsChanged != 0 { // something came to life, or to its end
		a.watcher.ask()
		look = true
	}
	return look
}

// wakes is the kernel's channel; nil, which never has anything, without one.
func (a *agent) wakes() <-chan struct{} {
	if a.kernel == nil {
		return nil
	}
	return a.kernel.Wakes()
}

// pressedDue is how long the next cheap look may wait, for tasks that stall.
func (a *agent) pressedDue() time.Duration {
	switch {
	case time.Since(a.pressed) >= stallWindow:
		return math.MaxInt64
	case a.manager.Ready(time.Now()).Near >= eviction.Enough:
		return pollPressed
	}
	return pollStalled
}
