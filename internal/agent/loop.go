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
	slowTick  = time.Second     // interval of the slow looks
	stopLimit = 5 * time.Second // for all work in progress to end with the agent

	// minPartLimit is the time for each further part after one has used up stopLimit, so that parts
	// that ended long ago are recognized.
	minPartLimit = 100 * time.Millisecond
)

// loop is the agent's main loop. It owns its parts, and each part its state; all belong to one
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
	recording *frames.Recording // nil: no recording
	publisher *publisher
}

// gateway contains the parts that decide on new pods.
type gateway struct {
	*gate.Gate
	admission  *admission.Part
	preempting *admission.Preempting
}

// relief contains the parts that free resources before an eviction.
type relief struct {
	memory *squeeze.Loop // nil: no proactive reclaim
	disk   *garbage.Part
}

// upkeep contains the parts that work while nothing is short.
type upkeep struct {
	rotation *logrotate.Rotation // nil: no log rotation
	limits   *limits.Part        // nil: pods' cgroups are not written
	own      *ownMemory          // nil: no protection
	trim     trim.Trimmer
	trial    *kill.Trial
	unknown  *priorities.Part
	stats    *nodestats.Taker // measures on its own; needs the pods
	reload   *reload.Part

	deschedule *nodedescheduler.Descheduler
}

// run runs the loop until ctx ends.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	slow := time.NewTicker(slowTick)
	defer slow.Stop()
	l.publisher.markChanged()
	l.publisher.publish(l)
	defer l.publisher.recordEnd()
	for {
		l.publisher.recordTurn()
		look := false
		select {
		case <-ctx.Done():
			return
		case u := <-l.pods.Updates():
			l.onListed(u)
		case u := <-l.gate.Updates():
			l.onEvents(u)
		case r := <-l.gate.admission.Refusals():
			l.onRefusal(r)
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
		case p := <-l.upkeep.rotation.Results():
			l.upkeep.rotation.OnResult(p)
		case r := <-l.upkeep.own.Results():
			l.upkeep.own.onResult(r)
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
			l.onReclaimed(time.Now(), e)
			look = true
		case e := <-l.evictions.Events():
			l.onReport(e)
			look = true
		case <-l.publisher.requests:
			l.publisher.publishNow()
		case r := <-l.publisher.outlook.requests:
			l.onOutlook(time.Now(), r)
		case <-slow.C:
			l.onTick(ctx, time.Now())
			look = true
		case <-timer.C:
			l.looks.RecordDelay(time.Now())
			look = true
		}
		if l.onReports() || look {
			l.look(ctx, time.Now())
			timer.Reset(l.due())
		}
		l.admission(time.Now())
		l.publisher.publish(l)
	}
}

// onReports processes the reports of evictions that wait. It runs before each look: under pressure
// looks are always due, the select statement chooses any input that is ready, and the bridge sets a
// dead victim to Failed only after its death is reported.
func (l *loop) onReports() (reported bool) {
	for range len(l.evictions.Events()) {
		l.onReport(<-l.evictions.Events())
		reported = true
	}
	return reported
}

func (l *loop) onReport(e evictions.Event) {
	l.evictions.OnEvent(time.Now(), e)
	l.gate.admission.Changed()
}

// due returns the time until the next cheap look.
func (l *loop) due() time.Duration {
	now := time.Now()
	ready := l.manager.Ready(now)
	due := l.pace.Due(now, &ready)
	l.looks.SetDue(now.Add(due))
	return due
}

// end waits for work outside of the loop. Each kind has its own WaitGroup, so that the log names
// the one that hangs.
func (l *loop) end() {
	deadline := time.Now().Add(stopLimit)
	for _, part := range []struct {
		what string
		wait func()
	}{
		{"eviction", l.evictions.Wait}, {"self-test", l.upkeep.trial.Wait},
		{"log rotation", l.upkeep.rotation.Wait},
		{"memory trim", l.upkeep.trim.Wait},
	} {
		if !retry.AwaitFunc(part.wait, max(time.Until(deadline), minPartLimit)) {
			l.log.Warn("agent stop incomplete", "error", fmt.Errorf("%s did not end within %v: "+
				"a file system may hang", part.what, stopLimit))
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

func (l *loop) onEvents(u nri.Update) {
	l.pods.OnEvents(time.Now(), u.Pods, l.gate.OnUpdate(u))
	l.wakes.WatchSoon()
}

// onPods passes the runtime's pods to the parts that need them.
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

// onWake processes a wake of the kernel. woken: a look is due, after rest: looks keep their minimum
// distance however many wakes occur.
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
	l.holdReplacements(time.Now())
	if b := l.looks.Background(); b != nil && l.o.Config.LocalStorageCapacityIsolation {
		b.Eager(limited)
	}
}

func (l *loop) onTrial(ctx context.Context, r kill.Report) {
	if l.upkeep.trial.OnDone(ctx, time.Now(), &r) {
		l.onTested(&r)
	}
}

// onTested processes the result of a self-test.
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

func (l *loop) onReclaimed(now time.Time, e reclaim.MemoryEffect) {
	if !e.Final {
		l.measure(now)
	}
	l.evictions.OnReclaimed(l.relief.memory.OnEffect(now, e, l.available, l.evictions.ReclaimFields))
}

// onCleaned processes the end of the runtime's clean-up after an eviction: the pod is not needed
// any more.
func (l *loop) onCleaned(life *eviction.Life) {
	e := life.Eviction()
	if life.Dead() { // the life may end before the next list
		l.pods.OnCleaned(e.Pod.SandboxIDs)
	}
	l.relief.disk.OnEvicted(life.Began().Time, e.Pod.PodRef.UID, e.Pod.SandboxIDs)
	if e.Disk() {
		l.remeasure()
	}
}

// remeasure requests a new measurement of the pods' disk usage.
func (l *loop) remeasure() {
	if b := l.looks.Background(); b != nil {
		b.Remeasure()
	}
}
