package evictions

import (
	"slices"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/stats/read"
)

// A pod that was evicted is followed for so long, and no more of them than that.
const (
	followFor  = time.Hour
	mostFollow = 64
)

// follow has a pod watched for containers that start after its end. Who tells a cluster of the
// eviction has to know: a pod that has come back is not to be called failed.
func (v *Evictions) follow(r *api.Record) {
	if r.DryRun {
		return
	}
	v.returns[r.Pod.UID] = r
	for len(v.returns) > mostFollow {
		oldest := r
		for _, other := range v.returns {
			if other.ID < oldest.ID {
				oldest = other
			}
		}
		delete(v.returns, oldest.Pod.UID)
	}
}

// followKept goes on with those of the process before this one.
func (v *Evictions) followKept(now time.Time) {
	for _, kept := range v.o.Keeper.Recent() {
		if now.Sub(kept.Began.Time) >= followFor || !kept.Restarted.IsZero() ||
			kept.Outcome == api.OutcomeAbandoned {
			continue
		}
		r := *kept
		for _, u := range v.underway {
			if u.record != nil && u.record.ID == r.ID { // which is written again
				v.follow(u.record)
				kept = nil
			}
		}
		if kept != nil {
			v.follow(&r)
		}
	}
}

// OnPods takes the runtime's pods: one of those that were evicted may be back.
func (v *Evictions) OnPods(now time.Time, pods read.Index) {
	for uid, r := range v.returns {
		if now.Sub(r.Began.Time) >= followFor {
			delete(v.returns, uid)
			continue
		}
		if !r.Emptied.Known() && !r.Over {
			continue // what is started anew while others of the pod are still being stopped ends with these
		}
		end := r.EndBegan().Time
		if r.Emptied.Known() {
			end = r.Emptied.Time
		}
		if at := startedAfter(pods[uid], end); !at.IsZero() {
			r.Restarted = at
			v.o.Keeper.Update(r)
			delete(v.returns, uid)
		}
	}
}

// startedAfter is when the first container of a pod was made that was made after an instant and has
// run; zero: there is none.
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
