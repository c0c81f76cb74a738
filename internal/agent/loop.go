package agent

import (
	"context"
	"fmt"
	"time"

	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/agent/admission"
	"jettison/internal/agent/evictions"
	"jettison/internal/agent/gate"
	"jettison/internal/agent/logrotate"
	"jettison/internal/agent/looks"
	"jettison/internal/agent/nodestats"
	"jettison/internal/agent/objects"
	"jettison/internal/agent/pace"
	"jettison/internal/agent/podlister"
	"jettison/internal/agent/reload"
	"jettison/internal/agent/squeeze"
	"jettison/internal/agent/trim"
	"jettison/internal/agent/wakes"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/retry"
	"jettison/internal/node/frames"
	"jettison/internal/node/garbage"
	"jettison/internal/node/kill"
	"jettison/internal/node/kubeletdetect"
	"jettison/internal/node/limits"
	"jettison/internal/node/nodedescheduler"
	"jettison/internal/node/priorities"
	"jettison/reclaim"
	"jettison/stats/read"
)

const (
	slowTick  = time.Second     // between two slow looks
	stopLimit = 5 * time.Second // for all that is under way to end with the agent

	// leastLimit is for what comes after something that has used up all of that, to tell that it ended
	// long ago.
	leastLimit = 100 * time.Millisecond
)

// loop is the agent's life. It owns its parts, and each part its state: all of it belongs to one
// goroutine.
type loop struct {
	o       Options
	log     *logthrottle.Logger
	manager *eviction.Manager // decides

	looks   *looks.Looks
	pace    *pace.Pacer
	wakes   *wakes.Wakes
	pods    *podlister.Pods
	gate    gateway
	objects *objects.Objects
	kubelet *kubeletdetect.Watch

	evictions *evictions.Evictions
	relief    relief
	upkeep    upkeep
	recording *frames.Recording // nil: nothing is recorded
	shown     *shown
}

// gateway is what pods come in by.
type gateway struct {
	*gate.Gate
	admission  *admission.Part
	preempting *admission.Preempting
}

// relief is what is given back before a pod goes.
type relief struct {
	memory *squeeze.Loop // nil: no pod is asked
	disk   *garbage.Part
}

// upkeep is what is done while nothing is short.
type upkeep struct {
	rotation *logrotate.Rotation // nil: logs are not rotated
	limits   *limits.Part        // nil: nothing is written to cgroups of pods
	own      *ownMemory          // nil: it is not protected
	trim     trim.Trimmer
	trial    *kill.Trial
	unknown  *priorities.Part
	stats    *nodestats.Taker // looks by itself, and wants to know the pods
	reload   *reload.Part

	deschedule *nodedescheduler.Part
}

// run is the loop. It ends with ctx.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	slow := time.NewTicker(slowTick)
	defer slow.Stop()
	l.shown.changed()
	l.shown.publish(l)
	defer l.shown.ended()
	for {
		l.shown.turn()
		look := false
		select {
		case <-ctx.Done():
			return
		case u := <-l.pods.Updates():
			l.onListed(u)
		case u := <-l.gate.Updates():
			l.onTold(u)
		case r := <-l.gate.admission.Refusals():
			l.onRefused(r)
		case a := <-l.gate.preempting.Requests():
			l.gate.preempting.OnRequest(ctx, time.Now(), a)
			look = true
		case <-l.wakes.C():
			if rest, woken := l.onWake(time.Now()); woken && rest > 0 {
				timer.Reset(rest)
			} else {
				look = woken
			}
		case <-l.objects.Changed():
			l.onObjects()
		case p := <-l.upkeep.rotation.Passed():
			l.upkeep.rotation.OnPassed(p)
		case r := <-l.upkeep.limits.Results():
			l.upkeep.limits.OnResult(r)
		case r := <-l.upkeep.reload.Results():
			l.onReloaded(time.Now(), &r)
			look = true
		case r := <-l.upkeep.trial.Done():
			l.onTrial(ctx, r)
		case r := <-l.kubelet.Results():
			l.kubelet.OnResult(r)
		case r := <-l.relief.disk.Results():
			l.onGarbage(time.Now(), &r)
			look = true
		case e := <-l.relief.memory.Effects():
			l.onSqueezed(time.Now(), e)
			look = true
		case e := <-l.evictions.Events():
			l.evictions.OnEvent(time.Now(), e)
			l.gate.admission.Changed()
			look = true
		case <-l.shown.asked:
			l.shown.wanted()
		case reply := <-l.shown.outlook.asks:
			l.onOutlook(time.Now(), reply)
		case <-slow.C:
			l.onTick(ctx, time.Now())
			look = true
		case <-timer.C:
			l.looks.RecordDelay(time.Now())
			look = true
		}
		if look {
			l.look(ctx, time.Now())
			timer.Reset(l.due())
		}
		l.admission(time.Now())
		l.shown.publish(l)
	}
}

// due is how long the next cheap look may wait.
func (l *loop) due() time.Duration {
	now := time.Now()
	ready := l.manager.Ready(now)
	due := l.pace.Due(now, &ready)
	l.looks.SetDue(now.Add(due))
	return due
}

// end waits for what runs beside the loop. Each kind of it has a count of its own, so that the log
// names what really hangs.
func (l *loop) end() {
	deadline := time.Now().Add(stopLimit)
	for _, beside := range []struct {
		what string
		wait func()
	}{
		{"an eviction", l.evictions.Wait}, {"the self-test", l.upkeep.trial.Wait},
		{"the rotation of logs", l.upkeep.rotation.Wait},
		{"giving back memory", l.upkeep.trim.Wait},
	} {
		if !retry.AwaitFunc(beside.wait, max(time.Until(deadline), leastLimit)) {
			l.log.Warn("stopping", "error", fmt.Errorf("%s does not end within %v: a file system that hangs",
				beside.what, stopLimit))
		}
	}
	l.save(time.Now())
}

func (l *loop) onListed(u podlister.Update) {
	if u.Err == nil {
		l.upkeep.trim.MemoryUsed()
	}
	l.pods.OnListed(u)
}

func (l *loop) onTold(u nri.Update) {
	l.pods.OnEvents(u.Pods, l.gate.OnUpdate(u))
	l.wakes.WatchSoon()
}

// onPods tells the parts that want to know what the runtime's pods are now.
func (l *loop) onPods(pods read.Index) {
	l.objects.Store().SetRuntime(pods)
	l.gate.admission.OnPods(pods)
	l.gate.preempting.OnPods(pods)
	l.upkeep.unknown.OnPods(pods)
	l.upkeep.stats.SetPods(pods)
	l.evictions.OnPods(time.Now(), pods)
	l.relief.disk.OnPods(pods)
	if b := l.looks.Background(); b != nil {
		b.SetPods(pods)
	}
}

// onWake takes what the kernel told. woken: it is a reason to look, after a rest: however many
// wakes there are, looks are as far apart as ever.
func (l *loop) onWake(now time.Time) (rest time.Duration, woken bool) {
	w := l.wakes.OnWake(now)
	if w.Pressed {
		l.pace.OnPressure(now)
	}
	if w.List {
		l.pods.Ask()
	}
	return pace.WaitAfter(now, l.looks.Last()), w.Look
}

func (l *loop) onObjects() {
	limited := l.objects.OnChanged()
	l.gate.admission.OnObjects(l.objects.Store().Snapshot())
	l.upkeep.unknown.OnObjects(l.objects.Pods())
	l.followOwners(time.Now())
	if b := l.looks.Background(); b != nil && l.o.Config.LocalStorageCapacityIsolation {
		b.Eager(limited)
	}
}

func (l *loop) onTrial(ctx context.Context, r kill.Report) {
	if l.upkeep.trial.OnDone(ctx, &r) {
		l.onTested(&r)
	}
}

// onTested takes what a self-test has found.
func (l *loop) onTested(r *kill.Report) {
	l.evictions.OnTested(r)
	l.evictions.Advise(l.hardBytes())
}

func (l *loop) onGarbage(now time.Time, r *garbage.Result) {
	l.upkeep.trim.MemoryUsed()
	l.relief.disk.OnResult(r)
	if r.Trigger == reclaim.DiskPressure {
		l.manager.Relieved(now)
	}
}

func (l *loop) onSqueezed(now time.Time, e reclaim.MemoryEffect) {
	if !e.Final {
		l.measure(now)
	}
	l.evictions.OnReclaimed(l.relief.memory.OnEffect(now, e, l.available, l.evictions.ReclaimFields))
}

// onCleaned takes that the runtime has cleaned up after an eviction: nothing of the pod is needed
// any more.
func (l *loop) onCleaned(life *eviction.Life) {
	e := life.Eviction()
	if life.Dead() { // its life may be over before the runtime is listed again
		l.pods.OnCleaned(e.Pod.SandboxIDs)
	}
	l.relief.disk.OnEvicted(life.Began().Time, e.Pod.PodRef.UID, e.Pod.SandboxIDs)
	if e.Disk() {
		l.remeasure()
	}
}

// remeasure has what pods take of disks measured anew.
func (l *loop) remeasure() {
	if b := l.looks.Background(); b != nil {
		b.Remeasure()
	}
}
