package evictions

import (
	"context"
	"strconv"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/squeeze"
	"jettison/internal/node/kill"
	"jettison/stats"
)

// OnDecided carries out a decision's evictions. begun: at least one began.
func (v *Evictions) OnDecided(ctx context.Context, d *eviction.Decision) (begun bool) {
	v.missed = false
	for i := range d.Evictions {
		begun = v.begin(ctx, d, i) || begun
	}
	return begun
}

// begin starts one eviction: it pins the victim, measures the signal of an urgent eviction again,
// and kills the victim or has the runtime stop it. It returns false if it did nothing.
func (v *Evictions) begin(ctx context.Context, d *eviction.Decision, i int) bool {
	e := &d.Evictions[i]
	uid := e.Pod.PodRef.UID
	v.o.Squeeze.Stop()
	v.carrier.begun.Add(1)
	if v.o.DryRun {
		v.addTexts(d)
		v.dryRun(d, &d.Evictions[i])
		return false
	}
	old := v.o.Manager.Life(uid)
	if old != nil && e.CutsGracePeriod && !old.Dead() && v.cutGracePeriod(old, d, i) {
		return true
	}
	if old != nil && old.RecentlyUndying(time.Now()) {
		return false // no other candidate is left: do not retry at every look
	}
	b, ok := v.kill(d, e)
	if !ok {
		return false
	}
	// The kill is done: from here on texts may be formatted.
	v.addTexts(d)
	v.register(ctx, d, i, old, &b)
	return true
}

// addTexts adds texts and usage details to a decision that a quick look made without them.
func (v *Evictions) addTexts(d *eviction.Decision) {
	if len(d.Evictions) == 1 && d.Evictions[0].Message == "" && len(d.Ranking) > 0 &&
		v.o.Blame != nil {
		v.o.Blame(d.Ranking[0].Pod)
	}
	d.AddTexts()
}

// register registers an eviction that has begun, and starts its goroutine.
func (v *Evictions) register(ctx context.Context, d *eviction.Decision, i int, old *eviction.Life,
	b *strike) {
	e := &d.Evictions[i]
	if u := v.inProgress[old]; u != nil {
		u.cancel() // the pod survived the old attempt; the new one also cleans up
	}
	met := eviction.Met{}
	if !e.Local() {
		met = d.Signal
	}
	life := v.o.Manager.Begin(b.pinned, *e, met)
	if b.killed != (kill.Stamp{}) {
		v.o.Manager.Killed(b.killed, life)
	}
	e = life.Eviction()
	v.o.Gate.Evicted(time.Now(), e.Pod.PodRef.UID, e.Signal, e.Message)
	u := &progress{
		life: life, reason: d.Reason, counts: [2]int{len(d.Ranking), len(d.Protected)},
		ranking: v.ranking(d), // before the next look
		job: &job{
			victim: b.victim, began: b.pinned.Time, urgent: e.Urgent(), killErr: b.err,
			grace: time.Duration(e.GracePeriodSeconds) * time.Second, cgroup: b.victim.Located(),
			cache: e.PageCacheMatters(),
		},
	}
	v.inProgress[life] = u
	v.assignReclaim(u)
	v.decideLeftovers(u)
	v.recordBegin(d, u)
	if !e.Pod.Announced {
		v.o.Pods.Ask() // for its name in the log
	}
	if !e.Urgent() {
		//log: The agent begins to evict a pod with a grace period.
		v.o.Log.Info("evicting", append(v.fields(u), api.EventEviction.Attr(), "gracePeriodSeconds",
			e.GracePeriodSeconds,
			"message", e.Message)...)
	}
	v.carry(ctx, u)
}

// carry runs the rest of an eviction on its own goroutine.
func (v *Evictions) carry(ctx context.Context, u *progress) {
	ctx, u.cancel = context.WithCancel(ctx)
	job := u.job
	v.carriers.Go(func() { v.carrier.carryOut(ctx, job) })
}

// decideLeftovers decides which leftovers are removed. Without a kubelet only the agent frees the
// leftovers of a pod on disk or in memory volumes.
func (v *Evictions) decideLeftovers(u *progress) {
	disk, alone := u.life.Eviction().Disk(), !v.o.Kubelet()
	u.remove.Store(disk && alone)
	u.unmount.Store(!disk && alone)
	u.life.RemoveFiles = disk && alone
}

// strike is the result of Evictions.kill: the pinned victim, and the kill if the eviction is
// urgent.
type strike struct {
	victim *kill.Victim
	pinned kill.Stamp
	killed kill.Stamp // zero: stopped with a grace period, or the kernel rejects the kill
	err    error      // why the kernel rejects it
}

// kill pins the victim, starts its hold-off, and kills it if that is urgent and still needed. On
// success it does not allocate for a pod in its own cgroup.
func (v *Evictions) kill(d *eviction.Decision, e *eviction.Eviction) (b strike, ok bool) {
	var err error
	// an error usually means that the victim has ended since the ranking: the next look ranks again
	if b.victim, err = v.o.Pin(&e.Pod); err != nil {
		v.logPinError(&e.Pod, err)
		return b, false
	}
	b.pinned = kill.Now()
	if e.Urgent() && !v.o.StillMet(d.Signal.Threshold) {
		b.victim.Close()
		v.cancelUnneeded(d, e)
		return b, false
	}
	v.o.Gate.StartHoldOff(b.pinned.Time, e.Pod.PodRef.UID)
	if e.Urgent() {
		if b.err = b.victim.Kill(); b.err == nil {
			b.killed = b.victim.KilledAt()
		}
	}
	return b, true
}

func (v *Evictions) logPinError(pod *stats.PodStats, err error) {
	v.missed = pod.Located()
	v.o.Log.Repeat("pin: "+err.Error(), func() {
		//log: The victim could not be pinned or opened, usually because it ended meanwhile. The next look
		//  chooses again.
		//do: Nothing if it is rare. Otherwise see the key error.
		v.o.Log.Warn("eviction could not start", api.EventEviction.Attr(), "pod",
			v.o.Pods.Name(pod.PodRef), "error", err)
	})
	v.setAside(time.Now(), pod)
}

// setAside sets aside a pod that is known only from its object, so that pods that can be killed are
// tried first.
func (v *Evictions) setAside(now time.Time, pod *stats.PodStats) {
	if !pod.Located() {
		v.o.Manager.SetPodAside(now, pod.PodRef.UID)
	}
}

// cancelUnneeded cancels an eviction that a new measurement made unnecessary. The next look is made
// without delay.
func (v *Evictions) cancelUnneeded(d *eviction.Decision, e *eviction.Eviction) {
	v.o.Manager.HastenUnneeded()
	v.o.Log.Repeat("abandoned: "+e.Pod.PodRef.UID, func() {
		//log: The signal recovered between the decision and the kill. The agent evicts no pod.
		v.o.Log.Info("eviction cancelled", append(SignalFields(d.Signal),
			api.EventEviction.Attr(),
			"pod", v.o.Pods.Name(e.Pod.PodRef))...)
	})
}

// cutGracePeriod ends the grace period of a victim for a hard threshold. It returns false if the
// kernel rejects the kill and the eviction must begin again.
func (v *Evictions) cutGracePeriod(life *eviction.Life, d *eviction.Decision, i int) bool {
	u := v.inProgress[life]
	if u == nil {
		return false
	}
	e := &d.Evictions[i]
	if e.Urgent() && !v.o.StillMet(d.Signal.Threshold) {
		v.o.Manager.HastenUnneeded()
		return true
	}
	at := kill.Now()
	if err := u.victim.Kill(); err != nil {
		return v.o.Manager.HastenRefused(life)
	}
	if killed := u.victim.KilledAt(); killed.Monotonic > at.Monotonic {
		at = killed // otherwise it was killed at the end of its grace period, before the threshold was met
	}
	v.addTexts(d)
	e = &d.Evictions[i]
	v.o.Manager.Hasten(at, life, *e, d.Signal)
	if life.Eviction().Disk() && !e.Disk() {
		v.recordKilled(u)
		//log: A pod that was being stopped for a disk is killed, because the threshold in metThreshold is
		//  met, too.
		v.o.Log.Info("grace period cut short for another signal",
			append(v.fields(u), api.EventEviction.Attr(), "metThreshold", d.Signal.Threshold.String())...)
		return true
	}
	v.o.Gate.Evicted(time.Now(), e.Pod.PodRef.UID, e.Signal, e.Message)
	u.reason = d.Reason
	v.assignReclaim(u)
	if e.Disk() && !v.o.Kubelet() {
		u.remove.Store(true)
		life.RemoveFiles = true
	}
	v.recordBegin(d, u)
	//log: A hard threshold is met during the victim's grace period. The agent kills the victim now.
	v.o.Log.Info("grace period cut short", append(v.fields(u), api.EventEviction.Attr())...)
	return true
}

// assignReclaim assigns the preceding proactive reclaim to an eviction, after the kill.
func (v *Evictions) assignReclaim(u *progress) {
	e := u.life.Eviction()
	if e.Disk() || e.Planned() {
		return
	}
	effect, follows := v.o.Squeeze.AssignFollower(u.began, squeeze.Follower{ID: evictionID(u),
		Signal: e.Signal})
	if follows {
		v.afterReclaim = u
	}
	if effect != nil {
		u.reclaim = reclaimRecord(effect)
	}
}

// evictionID returns a unique identifier of an eviction.
func evictionID(u *progress) string {
	return u.life.Eviction().Pod.PodRef.UID + "/" + strconv.FormatInt(u.began.UnixNano(), 36)
}
