package disk

import (
	"errors"
	"fmt"
	"time"

	"jettison/stats"
)

// Status says how the walk as a whole stands.
func (l *Loop) Status() stats.SourceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if err == nil && l.listed.IsZero() {
		err = errors.New("the folders of pods are not listed yet: their file system may hang")
	}
	if now := time.Now(); l.doing != "" && now.Sub(l.until) > walkPatience {
		err = errors.Join(err, fmt.Errorf("pod %s has been walked for %v: a file system that hangs",
			l.doing, now.Sub(l.since).Round(time.Second)))
	}
	return stats.SourceStatus{Name: "disk usage of pods", Time: l.listed,
		Err: errors.Join(err, l.missing())}
}

// missing says how many pods' figures there are, unless all are: while the first round is under
// way, too. Of several errors it tells the one of the lowest UID, so that it stays the same from
// look to look.
func (l *Loop) missing() error {
	now := time.Now()
	measured, failed, old, first := 0, 0, 0, ""
	for uid := range l.known {
		s := l.pods[uid]
		switch {
		case s == nil:
		case s.err != nil:
			if failed++; first == "" || uid < first {
				first = uid
			}
		case now.Sub(s.time) > l.limit(now):
			old++
		default:
			measured++
		}
	}
	of := fmt.Sprintf("%d of %d pods measured", measured, len(l.known))
	switch {
	case failed > 0:
		return fmt.Errorf("%s, %d with errors: %w", of, failed, l.pods[first].err)
	case old > 0:
		return fmt.Errorf("%s, the figures of %d are too old", of, old)
	case len(l.known) > 0 && (measured == 0 || !l.settled):
		return fmt.Errorf("%s so far", of)
	}
	return nil
}

// count times rounds: one ends when nothing is due, or a pod is that was measured in it already.
func (l *Loop) count(next string, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.pods[next]
	switch again := due && s != nil && !s.time.Before(l.began); {
	case l.began.IsZero():
		if due {
			l.began = now
		}
	case !due:
		l.round, l.began = now.Sub(l.began), time.Time{}
	case again:
		l.round, l.began = now.Sub(l.began), now
	}
}

// walkPatience is how long after the end of its turn a pod may be walked before it is called out:
// something hangs then.
const walkPatience = 30 * time.Second
