package lifecycle

import (
	"fmt"
	"slices"
	"time"
)

// staleAfter and doubtPeriod define when node silence is in doubt, and for how long.
const (
	staleAfter  = 10 * time.Second // maximum age of the newest successful read
	doubtPeriod = 60 * time.Second
)

// Silent zones raise doubt if they have at least one in doubtShare nodes of the cluster, and at
// most maxDoubts times in doubtWindow. Otherwise a few kubelets could suspend all evictions.
const (
	doubtShare  = 10
	maxDoubts   = 10
	doubtWindow = time.Hour
)

// doubt is the suspicion that the controller has lost contact with healthy nodes. Zones are meant
// to fail independently: two that fall silent together raise the suspicion. While all nodes are
// silent, it does not end.
type doubt struct {
	until       time.Time // rates are 0 and no silence is marked on pods until then
	reason      string
	lastSilence time.Time   // zones that were silent until then have raised doubt
	raised      []time.Time // by silent zones, within doubtWindow
}

// raise extends the doubt.
func (d *doubt) raise(now time.Time, format string, args ...any) {
	d.until, d.reason = now.Add(doubtPeriod), fmt.Sprintf(format, args...)
}

// updateDoubt sets the doubt from the age of the reads and from zones that fell silent together.
func (s *step) updateDoubt() {
	if !s.config.Doubt {
		return
	}
	d := &s.doubt
	if read := s.seen.Read; !read.IsZero() && s.now.Sub(read) > staleAfter {
		d.raise(s.now, "no successful read of nodes or Leases since %s", read.UTC().Format(time.RFC3339))
	} else if !read.IsZero() {
		s.wakeAt(read.Add(staleAfter))
	}
	silent, all := 0, 0
	for _, z := range s.zones {
		silent += z.silent
		all += z.ready + z.notReady
	}
	at, zones := s.silentZones(all)
	isNew := at.After(d.lastSilence)
	d.lastSilence = latest(d.lastSilence, at)
	switch {
	case all > 1 && silent == all:
		d.raise(s.now, "all nodes are silent")
	case isNew:
		d.raised = slices.DeleteFunc(d.raised,
			func(at time.Time) bool { return s.now.Sub(at) >= doubtWindow })
		if len(d.raised) < maxDoubts {
			d.raised = append(d.raised, s.now)
			d.raise(s.now, "all nodes of the zones %s and %s fell silent within one grace period",
				zones[0], zones[1])
		}
	}
	if s.now.Before(d.until) {
		s.out.Doubt = d.reason
		s.wakeAt(d.until)
	}
}

// silentZones returns the silent zones, sorted, of which the last node fell silent within the grace
// period before that of the last such zone, and that time. It returns the zero time if they are
// fewer than two or have too few of all nodes that count.
func (s *step) silentZones(all int) (at time.Time, zones []string) {
	isSilent := func(z *zone) bool { return z.silent > 0 && z.silent == z.ready+z.notReady }
	for _, z := range s.zones {
		if isSilent(z) {
			at = latest(at, z.lastSilent)
		}
	}
	nodes := 0
	for key, z := range s.zones {
		if isSilent(z) && at.Sub(z.lastSilent) <= s.config.NodeMonitorGracePeriod {
			zones = append(zones, key)
			nodes += z.silent
		}
	}
	if len(zones) < 2 || nodes*doubtShare < all {
		return time.Time{}, nil
	}
	slices.Sort(zones)
	return at, zones
}
