package squeeze

import (
	"errors"
	"time"

	"jettison/cgroup"
	"jettison/reclaim"
	"jettison/stats"
)

// carryOut reclaims from one pod after the other, chunk by chunk, until it is stopped or the time
// is over, and measures the freed memory.
func (s *Worker) carryOut(j *job, e *reclaim.MemoryEffect, asks []reclaim.MemoryRequest,
	targets map[string]*target) {
	end := j.began.Add(min(j.Time, reclaim.MaxMemoryTime))
	chunk := uint64(reclaim.FirstMemoryChunk)
	for _, ask := range asks {
		if stopped(j, end) {
			break
		}
		t := targets[ask.Cgroup]
		asked, err := s.reclaimPod(j, end, t, ask.Bytes, &chunk)
		if err != nil {
			e.Err = describe(ask.Cgroup, err)
		}
		if asked > 0 {
			t.asked += asked
			e.Asked += asked
			ask.Bytes = asked
			e.Pods = append(e.Pods, ask)
		}
	}
	for _, t := range targets {
		if t.asked == 0 {
			continue
		}
		// A pod that is gone freed nothing because of the reclaim.
		if now, err := t.group.MemoryCurrent(s.buf); err == nil {
			freed := t.current - min(now, t.current)
			if j.stop.Load() { // any further decrease is from the kill of the pod
				freed = min(freed, t.asked)
			}
			e.Freed = stats.Some(e.Freed.V + freed)
		}
		if t.group.ReclaimStat(s.buf, &t.after) != nil {
			t.after = cgroup.ReclaimStat{}
		}
	}
}

// stopped reports whether to stop: a kill is in progress, or the time is over.
func stopped(j *job, end time.Time) bool { return j.stop.Load() || !time.Now().Before(end) }

// reclaimPod reclaims from one pod. asked is the amount requested from the kernel, regardless of
// the amount reclaimed. A pod without reclaimable memory, or one that is gone, is no error.
func (s *Worker) reclaimPod(j *job, end time.Time, t *target, bytes uint64,
	chunk *uint64) (asked uint64, err error) {
	r, err := t.group.OpenReclaim()
	if vanished(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer r.Close()
	swappiness := cgroup.SwappinessAnon
	if j.Kind == reclaim.PageCache {
		swappiness = cgroup.SwappinessFile
	}
	for asked < bytes && !stopped(j, end) {
		size := min(*chunk, bytes-asked)
		began := time.Now()
		err := r.Reclaim(size, swappiness)
		if size == *chunk {
			*chunk = reclaim.NextMemoryChunk(size, time.Since(began))
		}
		switch {
		case vanished(err):
			return asked, nil
		case err != nil && !errors.Is(err, cgroup.ErrNothingLeft):
			return asked, err
		}
		asked += size
		if err != nil {
			return asked, nil
		}
	}
	return asked, nil
}
