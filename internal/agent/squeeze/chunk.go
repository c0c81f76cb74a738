package squeeze

import (
	"errors"
	"time"

	"jettison/cgroup"
	"jettison/reclaim"
	"jettison/stats"
)

// carryOut asks one pod after the other, chunk by chunk, until it is stopped or the time is over,
// and measures what they gave.
func (s *Squeezer) carryOut(j *job, e *reclaim.MemoryEffect, asks []reclaim.MemoryAsk,
	targets map[string]*target) {
	end := j.began.Add(min(j.Time, reclaim.MaxMemoryTime))
	chunk := uint64(reclaim.FirstMemoryChunk)
	for _, ask := range asks {
		if over(j, end) {
			break
		}
		t := targets[ask.Cgroup]
		asked, err := s.ask(j, end, t, ask.Bytes, &chunk)
		if err != nil {
			e.Err = described(ask.Cgroup, err)
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
		// One that is gone gave back nothing because of this.
		if now, err := t.group.MemoryCurrent(s.buf); err == nil {
			freed := t.current - min(now, t.current)
			if j.stop.Load() { // the rest is its death: it may be who is killed
				freed = min(freed, t.asked)
			}
			e.Freed = stats.Some(e.Freed.V + freed)
		}
		if t.group.ReclaimStat(s.buf, &t.after) != nil {
			t.after = cgroup.ReclaimStat{}
		}
	}
}

// over: a pod is killed, or soon will be.
func over(j *job, end time.Time) bool { return j.stop.Load() || !time.Now().Before(end) }

// ask asks one pod. asked is what the kernel was asked for, whatever it found. A pod that has
// nothing left, or is gone, is no error.
func (s *Squeezer) ask(j *job, end time.Time, t *target, bytes uint64, chunk *uint64) (asked uint64,
	err error) {
	r, err := t.group.OpenReclaim()
	if gone(err) {
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
	for asked < bytes && !over(j, end) {
		size := min(*chunk, bytes-asked)
		began := time.Now()
		err := r.Reclaim(size, swappiness)
		if size == *chunk {
			*chunk = reclaim.NextMemoryChunk(size, time.Since(began))
		}
		switch {
		case gone(err):
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
