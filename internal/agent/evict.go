package agent

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/internal/records"
	"jettison/internal/remove"
	"jettison/stats"
)

// underway is an eviction from its beginning until the runtime has cleaned up and its effect is known. It belongs to the loop; a
// goroutine of its own carries it out and reports by events.
type underway struct {
	*eviction.Life
	reason  string
	ranking []row // the decision's, which points into a Summary that is written again
	counts  [2]int
	victim  *kill.Victim
	cancel  context.CancelFunc // ends its goroutine
	killErr error
	dieErr  error
	record  records.Record   // as last kept
	squeeze *records.Squeeze // that came before it; nil: none, or its effect is not known yet. Never written again
	remove  atomic.Bool      // what it leaves on disk is removed too; for the goroutine as well
	unmount atomic.Bool      // its volumes in memory are unmounted, likewise
}

// event is what the goroutine of an eviction reports.
type event struct {
	u     *underway
	stage stage
	err   error
}

type stage int

const (
	emptied stage = iota // no process is left, or err
	cleaned              // the runtime has cleaned up, or err
)

// evict begins one eviction: it pins the victim, measures once more where that takes no time, and kills, or has it stopped. false:
// nothing was done.
func (a *agent) evict(ctx context.Context, d *eviction.Decision, i int) bool {
	e := &d.Evictions[i]
	pod := &e.Pod
	uid := pod.PodRef.UID
	a.stopSqueezing()
	if a.o.DryRun {
		d.Words()
		a.repeat("dry run: "+uid, func() { a.log.Info("would evict", a.describe(d, &d.Evictions[i])...) })
		return false
	}
	if old := a.underway[uid]; old != nil && e.Hastens && !old.Dead() && a.hasten(old, d, i) {
		return true
	}
	if old := a.underway[uid]; old != nil && old.Resting(time.Now()) {
		return false // nobody else is left to try; not at every look
	}
	b, ok := a.strike(d, e)
	if !ok {
		return false
	}
	// From here on there is time for words.
	d.Words()
	e = &d.Evictions[i]
	pod = &e.Pod
	if old := a.underway[uid]; old != nil {
		old.cancel() // it did not die then; this attempt cleans up too
	}
	a.holdOff(time.Now(), e)
	u := &underway{
		Life: a.manager.Begin(eviction.Stamp(kill.Now()), *e, metOf(d, e)), reason: d.Reason, victim: b.victim, killErr: b.err,
		counts: [2]int{len(d.Ranking), len(d.Protected)},
	}
	if !b.killed.Time.IsZero() && b.err == nil {
		a.manager.Killed(eviction.Stamp(b.killed), u.Life)
	}
	u.ranking = a.ranking(d) // before the next look
	a.afterSqueeze(u)
	a.recordBegin(d, u)
	a.underway[uid], a.lives[u.Life] = u, u
	if !pod.Announced {
		a.watcher.ask() // for its name in the log
	}
	if !e.Urgent() {
		a.log.Info("evicting", append(a.fields(u), "gracePeriodSeconds", e.GracePeriodSeconds, "message", e.Message)...)
	}
	ctx, u.cancel = context.WithCancel(ctx)
	how := way{
		urgent: e.Urgent(), grace: time.Duration(e.GracePeriodSeconds) * time.Second, killErr: u.killErr,
		cgroup: pod.Cgroup != "",
	}
	u.RemoveFiles = e.Disk() && !a.kubelet
	u.remove.Store(u.RemoveFiles)            // nobody else gives back what lies on disk,
	u.unmount.Store(!e.Disk() && !a.kubelet) // or in volumes in memory
	a.evictions.Go(func() { a.carryOut(ctx, u, how) })
	return true
}

// blow is the beginning of an eviction, as far as it cannot wait.
type blow struct {
	victim *kill.Victim
	killed kill.Stamp // zero: it is to be stopped gently
	err    error      // the kernel refuses the kill
}

// strike pins the victim, keeps it out, and kills it if that is urgent and still needed. Where nothing is wrong it does not allocate.
func (a *agent) strike(d *eviction.Decision, e *eviction.Eviction) (b blow, ok bool) {
	var err error
	if b.victim, err = a.pin(&e.Pod); err != nil { // most likely it went away since it was ranked: the next look ranks again
		a.unpinned(&e.Pod, err)
		return b, false
	}
	if e.Urgent() && !a.stillMet(&d.Signal.Threshold) {
		b.victim.Close()
		a.abandoned(d, e)
		return b, false
	}
	a.holdAtOnce(e.Pod.PodRef.UID)
	if e.Urgent() {
		b.err = b.victim.Kill()
		b.killed = kill.Now()
	}
	return b, true
}

func (a *agent) unpinned(pod *stats.PodStats, err error) {
	a.missed = pod.Cgroup != ""
	a.repeat("pin: "+err.Error(), func() { a.log.Warn("the victim cannot be evicted", "pod", a.name(pod.PodRef), "error", err) })
	if pod.Cgroup == "" { // known by its object only, and for long perhaps: whoever can be killed goes before it
		a.manager.Aside(time.Now(), pod.PodRef.UID)
	}
}

func (a *agent) abandoned(d *eviction.Decision, e *eviction.Eviction) {
	a.repeat("abandoned: "+e.Pod.PodRef.UID, func() {
		a.log.Info("eviction abandoned: enough is available again", append(signalFields(d.Signal), "pod", a.name(e.Pod.PodRef))...)
	})
}

// way is how an eviction is carried out; its goroutine's own.
type way struct {
	urgent  bool // it was killed already, or killErr says why not
	killErr error
	grace   time.Duration
	cgroup  bool // it is known, so the kernel's word counts
}

// hasten ends the grace period of a pod that is being stopped gently: a hard threshold does not wait for it. false: the kernel refuses
// that, so the eviction has to begin anew.
func (a *agent) hasten(u *underway, d *eviction.Decision, i int) bool {
	e := &d.Evictions[i]
	if e.Urgent() && !a.stillMet(&d.Signal.Threshold) {
		return true
	}
	if err := u.victim.Kill(); err != nil {
		return false
	}
	at := kill.Now()
	d.Words()
	e = &d.Evictions[i]
	a.manager.Hasten(eviction.Stamp(at), u.Life, *e, metOf(d, e))
	a.holdOff(time.Now(), e)
	u.reason = d.Reason
	a.afterSqueeze(u)
	if e.Disk() && !a.kubelet {
		u.remove.Store(true)
		u.RemoveFiles = true
	}
	a.recordBegin(d, u)
	a.log.Info("the grace period is cut short", a.fields(u)...)
	return true
}

// carryOut brings an eviction to its end on a goroutine of its own.
func (a *agent) carryOut(ctx context.Context, u *underway, how way) {
	defer u.victim.Close()
	defer u.cancel()
	report := func(s stage, err error) {
		select {
		case a.events <- event{u, s, err}:
		case <-ctx.Done():
		}
	}
	// What was begun is brought to its end when the agent is told to stop, but not for long.
	cleaning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cleanGrace, cancel) })()
	slow := func(err error) { a.log.Error("the runtime is slow to clean up, going on", "error", err) }
	clean := func(ctx context.Context) error { return u.victim.Clean(ctx, a.Client, slow) }

	var alive error // why the victim is not known to be dead
	switch {
	case how.urgent && how.killErr == nil:
		alive = u.victim.WaitEmpty(ctx, eviction.DieLimit)
	case how.urgent: // the kernel's way was refused, so the runtime is what kills
		short, stop := context.WithTimeout(cleaning, eviction.DieLimit)
		err := clean(short)
		stop()
		if alive = u.victim.WaitEmpty(ctx, 0); !how.cgroup {
			alive = errors.Join(err, alive) // the runtime's word is all there is
		}
	default:
		alive = u.victim.Stop(ctx, a.Client, how.grace)
	}
	report(emptied, alive)
	if alive != nil && ctx.Err() != nil && !how.urgent && !u.victim.Killed() {
		return // it is in its grace period: to clean up would kill it at once
	}
	if alive == nil && how.cgroup {
		a.unmountShared(u.victim) // the runtime takes seconds, or forgets it
	}
	err := clean(cleaning)
	if alive != nil && err == nil && u.victim.WaitEmpty(ctx, 0) == nil {
		report(emptied, nil) // late, but it died
	}
	switch {
	case err != nil:
	case u.remove.Load():
		a.removeFiles(cleaning, u.victim)
	default:
		a.unmountShared(u.victim) // of sandboxes that were not known before
		if u.unmount.Load() {
			a.unmountVolumes(cleaning, u.victim, u.Began().Time)
		}
	}
	report(cleaned, err)
}

// happened takes the word of an eviction's goroutine.
func (a *agent) happened(now time.Time, e event) {
	u := e.u
	uid := u.Eviction().Pod.PodRef.UID
	if a.underway[uid] != u || errors.Is(e.err, context.Canceled) {
		return // a later attempt took its place, or the agent is being stopped
	}
	a.changed = true
	switch {
	case e.stage == emptied && e.err != nil:
		a.log.Error("the victim does not die, set aside", append(a.fields(u), "error", errors.Join(u.killErr, e.err))...)
		a.manager.Refused(now, u.Life)
		if a.recorder != nil {
			a.killErrors[uid] = e.err.Error()
		}
		u.dieErr = e.err
	case e.stage == emptied:
		u.dieErr = nil
		a.manager.Emptied(eviction.Stamp{Time: now}, u.Life)
	case e.err != nil:
		a.log.Error("the runtime did not clean up after an evicted pod", "pod", a.name(u.Eviction().Pod.PodRef), "error", e.err)
		fallthrough
	default:
		a.wasEvicted(uid)
		a.manager.Cleaned(eviction.Stamp{Time: now}, u.Life)
		if u.Eviction().Disk() && a.background != nil {
			a.background.Remeasure()
		}
	}
}

// progress logs each eviction once its effect is known, and forgets it when nothing more is to come.
func (a *agent) progress(now time.Time) {
	r := a.manager.Ready(now)
	for _, l := range r.Outcomes {
		u := a.lives[l]
		if u == nil {
			continue
		}
		if l.Outcome() != eviction.OutcomeUndying {
			a.report(now, u, l.Outcome() == eviction.OutcomeBack)
			clear(a.said)
		}
		a.recordOutcome(u, records.Outcome(l.Outcome().String()), errors.Join(u.killErr, u.dieErr))
	}
	for _, l := range r.Finished {
		if u := a.lives[l]; u != nil {
			a.recordSteps(u)
			if uid := l.Eviction().Pod.PodRef.UID; a.underway[uid] == u {
				delete(a.underway, uid)
			}
			delete(a.lives, l)
			a.changed = true
		}
	}
	a.manager.Advance()
}

func metOf(d *eviction.Decision, e *eviction.Eviction) eviction.Met {
	if e.Local() {
		return eviction.Met{}
	}
	return d.Signal
}

// interrupted leaves a trace of evictions that were under way when the agent was told to stop.
func (a *agent) interrupted() {
	for _, u := range a.underway {
		if u.Outcome() == eviction.OutcomeUnknown {
			a.log.Info("stopped during an eviction", append(a.fields(u), "killedAtMonotonic", u.Killed().Monotonic)...)
		}
	}
}

// remover deletes and unmounts on the host, which is known.
func (a *agent) remover() *remove.Remover {
	return &remove.Remover{Host: a.host, RootDir: a.o.Config.RootDir, PodLogsDir: a.o.Config.PodLogsDir, Proc: filepath.Join(cmp.Or(a.o.ProcMount, "/proc"), "1")}
}

// unmountShared gives back the memory that lies in a dead pod's /dev/shm, beside a kubelet, too: it is the runtime's, and a runtime that
// did not kill the pod itself may keep it until the sandbox is removed.
func (a *agent) unmountShared(v *kill.Victim) {
	if a.host == nil {
		return
	}
	for _, id := range v.Sandboxes() {
		bytes, err := a.remover().SharedMemory(id)
		fields := []any{"pod", v.Pod.Namespace + "/" + v.Pod.Name, "uid", v.Pod.UID, "bytes", bytes}
		switch {
		case err != nil:
			a.log.Error("a pod's shared memory could not be unmounted", append(fields, "error", err)...)
		case bytes > 0:
			a.log.Info("unmounted a pod's shared memory", fields...)
		}
	}
}

// unmountVolumes gives back the memory that lies in a dead pod's volumes: without a kubelet nobody else does, and the next pod would go
// for it.
func (a *agent) unmountVolumes(ctx context.Context, v *kill.Victim, began time.Time) {
	if a.host == nil {
		return
	}
	all, err := a.Client.SandboxesOf(ctx, v.Pod.UID, time.Now())
	before, err2 := a.Client.SandboxesOf(ctx, v.Pod.UID, began)
	if err = errors.Join(err, err2); err != nil || len(all) > len(before) { // the pod is back, and with it its volumes are in use
		return
	}
	r := a.remover()
	bytes, err := r.MemoryVolumes(ctx, v.Pod.UID)
	fields := []any{"pod", v.Pod.Namespace + "/" + v.Pod.Name, "uid", v.Pod.UID, "bytes", bytes}
	switch {
	case err != nil:
		a.log.Error("not all volumes in memory could be unmounted", append(fields, "error", err)...)
	case bytes > 0:
		a.log.Info("unmounted a pod's volumes in memory", fields...)
	}
}

// removeFiles gives back what a dead pod leaves on disk. What cannot be removed is logged; the rest is gone all the same.
func (a *agent) removeFiles(ctx context.Context, v *kill.Victim) {
	ctx, cancel := context.WithTimeout(ctx, eviction.RemoveLimit)
	defer cancel()
	errs := []error{v.Remove(ctx, a.Client)}
	// The pod may be back under its UID, and with it its logs and volumes are in use.
	ids, err := a.Client.SandboxesOf(ctx, v.Pod.UID, time.Now())
	if errs = append(errs, err); len(ids) > 0 {
		errs = append(errs, errors.New("the pod is back: its logs and volumes stay"))
	}
	var freed uint64
	if a.host != nil && err == nil && len(ids) == 0 {
		r := a.remover()
		if v.Pod.Name != "" {
			logs, err := r.Logs(ctx, v.Pod)
			errs, freed = append(errs, err), logs.Bytes
		}
		volumes, err := r.Volumes(ctx, v.Pod.UID)
		errs, freed = append(errs, err), freed+volumes.Bytes
	}
	fields := []any{"pod", v.Pod.Namespace + "/" + v.Pod.Name, "uid", v.Pod.UID, "logsAndVolumes", freed}
	if err := errors.Join(errs...); err != nil {
		a.log.Error("not everything that a pod left on disk could be removed", append(fields, "error", err)...)
		return
	}
	a.log.Info("removed what a pod left on disk", fields...)
}
