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

// OnDecided carries out a decision's evictions. begun: one was.
func (v *Evictions) OnDecided(ctx context.Context, d *eviction.Decision) (begun bool) {
	v.missed = false
	for i := range d.Evictions {
		begun = v.begin(ctx, d, i) || begun
	}
	return begun
}

// begin begins one eviction: it pins the victim, measures once more where that takes no time, and
// kills, or has it stopped. false: nothing was done.
func (v *Evictions) begin(ctx context.Context, d *eviction.Decision, i int) bool {
	e := &d.Evictions[i]
	uid := e.Pod.PodRef.UID
	v.o.Squeeze.Stop()
	v.carrier.begun.Add(1)
	if v.o.DryRun {
		v.complete(d)
		v.wouldGo(d, &d.Evictions[i])
		return false
	}
	old := v.o.Manager.Life(uid)
	if old != nil && e.Hastens && !old.Dead() && v.hasten(old, d, i) {
		return true
	}
	if old != nil && old.Resting(time.Now()) {
		return false // no other pod is left to try; not at every look
	}
	b, ok := v.strike(d, e)
	if !ok {
		return false
	}
	// From here on there is time for words.
	v.complete(d)
	v.begun(ctx, d, i, old, &b)
	return true
}

// complete adds the words to a decision that was made without any, by a look that did not look into
// the pods, either.
func (v *Evictions) complete(d *eviction.Decision) {
	if len(d.Evictions) == 1 && d.Evictions[0].Message == "" && len(d.Ranking) > 0 &&
		v.o.Blame != nil {
		v.o.Blame(d.Ranking[0].Pod)
	}
	d.Words()
}

// wouldGo says and keeps what a dry run would have done.
func (v *Evictions) wouldGo(d *eviction.Decision, e *eviction.Eviction) {
	v.o.Log.Repeat("dry run: "+e.Pod.PodRef.UID,
		func() { v.o.Log.Info("would evict", append(v.describe(d, e), api.EventEviction.Attr())...) })
	v.recordWould(d, e)
}

// begun takes note of an eviction that was begun, and has it carried out.
func (v *Evictions) begun(ctx context.Context, d *eviction.Decision, i int, old *eviction.Life,
	b *blow) {
	e := &d.Evictions[i]
	if u := v.underway[old]; u != nil {
		u.cancel() // it did not die then; this attempt cleans up too
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
	u := &underway{
		life: life, reason: d.Reason, counts: [2]int{len(d.Ranking), len(d.Protected)},
		ranking: v.ranking(d), // before the next look
		job: &job{
			victim: b.victim, began: b.pinned.Time, urgent: e.Urgent(), killErr: b.err,
			grace: time.Duration(e.GracePeriodSeconds) * time.Second, cgroup: e.Pod.Cgroup != "",
			cache: e.TakesMemory(),
		},
	}
	v.underway[life] = u
	v.afterSqueeze(u)
	v.leftovers(u)
	v.recordBegin(d, u)
	if !e.Pod.Announced {
		v.o.Pods.Ask() // for its name in the log
	}
	if !e.Urgent() {
		v.o.Log.Info("evicting", append(v.fields(u), api.EventEviction.Attr(), "gracePeriodSeconds",
			e.GracePeriodSeconds,
			"message", e.Message)...)
	}
	v.carry(ctx, u)
}

// carry has an eviction carried out on a goroutine of its own.
func (v *Evictions) carry(ctx context.Context, u *underway) {
	ctx, u.cancel = context.WithCancel(ctx)
	job := u.job
	v.beside.Go(func() { v.carrier.carryOut(ctx, job) })
}

// leftovers says what of it is removed: without a kubelet nothing else gives back what lies on
// disk, or in volumes in memory.
func (v *Evictions) leftovers(u *underway) {
	disk, alone := u.life.Eviction().Disk(), !v.o.Kubelet()
	u.remove.Store(disk && alone)
	u.unmount.Store(!disk && alone)
	u.life.RemoveFiles = disk && alone
}

// blow is the beginning of an eviction, as far as it cannot wait.
type blow struct {
	victim *kill.Victim
	pinned kill.Stamp
	killed kill.Stamp // zero: it is to be stopped gently, or the kernel refuses the kill
	err    error      // why it does
}

// strike pins the victim, keeps it out, and kills it if that is urgent and still needed. Where
// nothing is wrong it does not allocate.
func (v *Evictions) strike(d *eviction.Decision, e *eviction.Eviction) (b blow, ok bool) {
	var err error
	// most likely it went away since it was ranked: the next look ranks again
	if b.victim, err = v.o.Pin(&e.Pod); err != nil {
		v.unpinned(&e.Pod, err)
		return b, false
	}
	b.pinned = kill.Now()
	if e.Urgent() && !v.o.StillMet(d.Signal.Threshold) {
		b.victim.Close()
		v.abandoned(d, e)
		return b, false
	}
	v.o.Gate.AtOnce(b.pinned.Time, e.Pod.PodRef.UID)
	if e.Urgent() {
		if b.err = b.victim.Kill(); b.err == nil {
			b.killed = kill.Now()
		}
	}
	return b, true
}

func (v *Evictions) unpinned(pod *stats.PodStats, err error) {
	v.missed = pod.Cgroup != ""
	v.o.Log.Repeat("pin: "+err.Error(), func() {
		v.o.Log.Warn("the victim cannot be evicted", api.EventEviction.Attr(), "pod",
			v.o.Pods.Name(pod.PodRef), "error", err)
	})
	v.cannotGo(time.Now(), pod)
}

// cannotGo sets a pod aside that is known by its object only, and for long perhaps: a pod that can
// be killed goes before it.
func (v *Evictions) cannotGo(now time.Time, pod *stats.PodStats) {
	if pod.Cgroup == "" {
		v.o.Manager.Aside(now, pod.PodRef.UID)
	}
}

// abandoned: the look that asked for it was not in vain, and the next one does not wait.
func (v *Evictions) abandoned(d *eviction.Decision, e *eviction.Eviction) {
	v.o.Manager.Unneeded()
	v.o.Log.Repeat("abandoned: "+e.Pod.PodRef.UID, func() {
		v.o.Log.Info("eviction abandoned: enough is available again", append(SignalFields(d.Signal),
			api.EventEviction.Attr(),
			"pod", v.o.Pods.Name(e.Pod.PodRef))...)
	})
}

// hasten ends the grace period of a pod that is being stopped gently: a hard threshold does not
// wait for it. false: the kernel refuses that, so the eviction has to begin anew.
func (v *Evictions) hasten(life *eviction.Life, d *eviction.Decision, i int) bool {
	u := v.underway[life]
	if u == nil {
		return false
	}
	e := &d.Evictions[i]
	if e.Urgent() && !v.o.StillMet(d.Signal.Threshold) {
		v.o.Manager.Unneeded()
		return true
	}
	if err := u.victim.Kill(); err != nil {
		return v.o.Manager.HastenRefused(life)
	}
	at := kill.Now()
	v.complete(d)
	e = &d.Evictions[i]
	v.o.Manager.Hasten(at, life, *e, d.Signal)
	if life.Eviction().Disk() && !e.Disk() {
		v.recordKilled(u)
		v.o.Log.Info("the stop of a disk's victim is cut short, for something else is short, too",
			append(v.fields(u), api.EventEviction.Attr(), "short", d.Signal.Threshold.String())...)
		return true
	}
	v.o.Gate.Evicted(time.Now(), e.Pod.PodRef.UID, e.Signal, e.Message)
	u.reason = d.Reason
	v.afterSqueeze(u)
	if e.Disk() && !v.o.Kubelet() {
		u.remove.Store(true)
		life.RemoveFiles = true
	}
	v.recordBegin(d, u)
	v.o.Log.Info("the grace period is cut short", append(v.fields(u), api.EventEviction.Attr())...)
	return true
}

// afterSqueeze finds out which reclaim of memory an eviction follows, after the kill.
func (v *Evictions) afterSqueeze(u *underway) {
	e := u.life.Eviction()
	if e.Disk() || e.Planned() {
		return
	}
	effect, follows := v.o.Squeeze.Followed(u.began, squeeze.Follower{ID: follower(u),
		Signal: e.Signal})
	if follows {
		v.squeezed = u
	}
	if effect != nil {
		u.squeeze = squeezeRecord(effect)
	}
}

// follower tells an eviction from any other.
func follower(u *underway) string {
	return u.life.Eviction().Pod.PodRef.UID + "/" + strconv.FormatInt(u.began.UnixNano(), 36)
}
