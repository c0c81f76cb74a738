package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// staleAfter and doubtPeriod define when node silence is in doubt, and for how long.
const (
	staleAfter  = 10 * time.Second // maximum age of the newest successful read
	doubtPeriod = 60 * time.Second
)

// doubt is the suspicion that the controller has lost contact with healthy nodes. Zones are meant
// to fail independently: two that fall silent together raise the suspicion.
type doubt struct {
	until       time.Time // rates are 0 until then
	reason      string
	lastSilence time.Time // silence that began until then has raised doubt and does not again
}

// updateDoubt sets the doubt from the age of the reads and from zones that fell silent together.
func (s *step) updateDoubt() {
	if !s.config.Doubt {
		return
	}
	d := &s.doubt
	if read := s.seen.Read; !read.IsZero() && s.now.Sub(read) > staleAfter {
		d.until = s.now.Add(doubtPeriod)
		d.reason = fmt.Sprintf("no successful read of nodes or Leases since %s", read.UTC().Format(time.RFC3339))
	} else if !read.IsZero() {
		s.wakeAt(read.Add(staleAfter))
	}
	if silentSince, names := s.silentZones(); silentSince.After(d.lastSilence) {
		d.lastSilence, d.until = silentSince, s.now.Add(doubtPeriod)
		d.reason = fmt.Sprintf("all nodes of the zones %s and %s fell silent within one grace period",
			names[0], names[1])
	}
	if s.now.Before(d.until) {
		s.out.Doubt = d.reason
		s.wakeAt(d.until)
	}
}

// silentZones finds two zones whose nodes all fell silent within one grace period. It returns the
// latest such pair and the time at which the last of its nodes fell silent, or the zero time.
func (s *step) silentZones() (at time.Time, names [2]string) {
	var silent []string
	for _, key := range slices.Sorted(maps.Keys(s.zones)) {
		if z := s.zones[key]; z.silent > 0 && z.silent == z.ready+z.notReady {
			silent = append(silent, key)
		}
	}
	for i, a := range silent {
		for _, b := range silent[i+1:] {
			za, zb := s.zones[a], s.zones[b]
			from, to := za.firstSilent, latest(za.lastSilent, zb.lastSilent)
			if zb.firstSilent.Before(from) {
				from = zb.firstSilent
			}
			if to.Sub(from) <= s.config.NodeMonitorGracePeriod && to.After(at) {
				at, names = to, [2]string{a, b}
			}
		}
	}
	return at, names
}
