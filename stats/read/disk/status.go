package disk

import (
	"errors"
	"fmt"
	"time"

	"jettison/stats"
)

// Status returns the state of the loop as a source.
func (l *Loop) Status() stats.SourceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if err == nil && l.listed.IsZero() {
		err = errors.New("pod directories not listed yet: their file system may hang")
	}
	if now := time.Now(); l.walking != "" && now.Sub(l.turnEnd) > walkHangAfter {
		err = errors.Join(err, fmt.Errorf("walk of pod %s has taken %v: its file system hangs",
			l.walking, now.Sub(l.walkStart).Round(time.Second)))
	}
	return stats.SourceStatus{Name: "disk usage of pods", Time: l.listed,
		Err: errors.Join(err, l.missing())}
}

// missing returns an error with the number of measured pods, unless all pods are measured and the
// first round has ended. Of several errors it contains the one of the lowest UID, so that the text
// stays the same from look to look.
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
		case now.Sub(s.time) > l.maxAge(now):
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
		return fmt.Errorf("%s, the measurements of %d are too old", of, old)
	case len(l.known) > 0 && (measured == 0 || !l.settled):
		return fmt.Errorf("%s so far", of)
	}
	return nil
}

// count measures the duration of rounds. A round ends when no pod is due, or when the next pod was
// already measured in that round.
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

// walkHangAfter is the time after the end of a turn at which the walk is reported as hanging.
const walkHangAfter = 30 * time.Second
