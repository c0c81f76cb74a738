package evictions

import (
	"slices"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/stats/read"
)

// Limits of watching evicted pods: the time, and the number of pods.
const (
	watchPeriod = time.Hour
	maxWatched  = 64
)

// watch watches a pod for containers that start after its eviction. The bridge must not mark a pod
// that has come back as failed.
func (v *Evictions) watch(r *api.Record) {
	if r.DryRun {
		return
	}
	v.watched[r.Pod.UID] = r
	for len(v.watched) > maxWatched {
		oldest := r
		for _, other := range v.watched {
			if other.ID < oldest.ID {
				oldest = other
			}
		}
		delete(v.watched, oldest.Pod.UID)
	}
}

// watchRecorded continues to watch the pods that the previous process evicted.
func (v *Evictions) watchRecorded(now time.Time) {
	for _, kept := range v.o.Keeper.Recent() {
		if now.Sub(kept.Began.Time) >= watchPeriod || !kept.Restarted.IsZero() ||
			kept.Outcome == api.OutcomeAbandoned {
			continue
		}
		r := *kept
		for _, u := range v.inProgress {
			if u.record != nil && u.record.ID == r.ID { // this version is updated later
				v.watch(u.record)
				kept = nil
			}
		}
		if kept != nil {
			v.watch(&r)
		}
	}
}

// OnPods receives the runtime's pods: an evicted one may be back.
func (v *Evictions) OnPods(now time.Time, pods read.Index) {
	for uid, r := range v.watched {
		if now.Sub(r.Began.Time) >= watchPeriod {
			delete(v.watched, uid)
			continue
		}
		if !r.Emptied.Known() && !r.Complete {
			continue // a container that starts while the pod is being stopped ends with it
		}
		end := r.EndBegan().Time
		if r.Emptied.Known() {
			end = r.Emptied.Time
		}
		if at := startedAfter(pods[uid], end); !at.IsZero() {
			r.Restarted = at
			v.o.Keeper.Update(r)
			delete(v.watched, uid)
		}
	}
}

// startedAfter returns the creation time of the pod's first container that was created after an
// instant and has run; zero without one.
func startedAfter(pod *read.Pod, end time.Time) (first time.Time) {
	if pod == nil {
		return first
	}
	for _, c := range slices.Concat(pod.Containers, pod.Exited) {
		ran := c.Running || c.State == cri.Exited && !c.StartedAt.IsZero()
		if ran && c.CreatedAt.After(end) && (first.IsZero() || c.CreatedAt.Before(first)) {
			first = c.CreatedAt
		}
	}
	return first
}
