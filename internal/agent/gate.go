package agent

import (
	"context"
	"time"

	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/stats"
)

// How long a pod that was evicted is kept out, when it comes back under its UID: doubled each time, and as long as the pressure lasts.
const (
	holdFirst = 10 * time.Second
	holdMax   = 5 * time.Minute
	holdOnFor = 5 * time.Second // beyond each look at which its pressure is still there
)

// heldOff is what is remembered of a pod that was kept out.
type heldOff struct {
	times  int
	last   time.Time
	signal stats.Signal
}

// nriSocket is where the runtime listens for plugins: below /run, which /var/run is a link to.
const nriSocket = "/run/nri/nri.sock"

// startGate connects to the runtime as a plugin: events come as they happen, and evicted pods are kept out. The returned function
// waits for it; it ends with ctx.
func (a *agent) startGate(ctx context.Context) (wait func()) {
	o := nri.Options{Socket: nriSocket}
	if a.o.Config.Gate && !a.o.DryRun {
		o.HoldOffs = &a.holds
	}
	plugin, err := nri.New(o)
	if err != nil {
		a.log.Error("no runtime events, and evicted pods are not kept out", "error", err)
		return func() {}
	}
	a.plugin = plugin
	done := make(chan struct{})
	go func() {
		defer close(done)
		plugin.Run(ctx)
	}()
	return func() { <-done }
}

// gateUpdates is the plugin's channel; nil without one.
func (a *agent) gateUpdates() <-chan nri.Update {
	if a.plugin == nil {
		return nil
	}
	return a.plugin.Updates()
}

// told takes what the runtime told its plugin.
func (a *agent) told(u nri.Update) {
	s := u.State
	switch {
	case s.Synced && !a.synced:
		a.log.Info("the runtime tells of its pods as they come and go", "runtime", s.Runtime, "version", s.Version, "gate", a.o.Config.Gate)
	case s.Err != nil && (a.synced || !a.saidNRI):
		a.log.Warn("the runtime does not tell of its pods as they come and go: they are listed, and evicted pods are not kept out", "error", s.Err)
		a.saidNRI = true
	}
	if a.synced && !s.Synced { // what only events told stays known until the next list
		a.fromList = a.pods
		a.watcher.ask()
	}
	a.synced = s.Synced
	a.watcher.told.Store(s.Synced)
	for _, v := range u.Vetoes {
		a.repeat("veto "+v.Pod.UID, func() {
			a.log.Info("an evicted pod is kept out", "pod", a.name(v.Pod), "container", v.Container, "reason", v.Reason)
		})
	}
	a.fromEvents = u.Pods
	a.counted, a.unwatched = time.Time{}, true // a new pod is watched from the next second on
	a.join()
}

// join makes one of what was listed and what was told since.
func (a *agent) join() {
	a.pods = nri.Overlay(a.fromList, a.fromEvents)
	a.store.SetRuntime(a.pods)
	a.backAgain()
	if a.background != nil {
		a.background.SetPods(a.pods)
	}
}

// holdAtOnce keeps a victim out from before it is stopped, until holdOff says how long.
func (a *agent) holdAtOnce(uid string) {
	a.holds.SetAtOnce(uid, nri.Hold{Until: time.Now().Add(holdFirst), Reason: "it is being evicted: the node is short of what it uses"})
}

// holdOff keeps an evicted pod out, longer each time.
func (a *agent) holdOff(now time.Time, e *eviction.Eviction) {
	uid := e.Pod.PodRef.UID
	times := a.held[uid].times
	if now.Sub(a.held[uid].last) > time.Hour {
		times = 0
	}
	if len(a.held) > 1000 {
		clear(a.held)
	}
	a.held[uid] = heldOff{times: times + 1, last: now, signal: e.Signal}
	a.holds.Set(now, uid, nri.Hold{Until: now.Add(min(holdFirst<<min(times, 10), holdMax)), Reason: e.Message})
}

// holdOn keeps those out whose pressure lasts. It is called once a second.
func (a *agent) holdOn(now time.Time, met []eviction.Met) {
	for uid, u := range a.underway {
		if hold := a.holds.All()[uid]; u.Leaving() && hold.Until.Sub(now) < holdOnFor {
			a.holds.Set(now, uid, nri.Hold{Until: now.Add(holdFirst), Reason: u.Eviction().Message})
			a.changed = true
		}
	}
	for uid, hold := range a.holds.All() {
		if !now.Before(hold.Until) {
			continue
		}
		for _, m := range met {
			if m.Threshold.Signal == a.held[uid].signal && hold.Until.Sub(now) < holdOnFor {
				hold.Until = now.Add(holdOnFor)
				a.holds.Set(now, uid, hold)
				a.changed = true
				break
			}
		}
	}
}
