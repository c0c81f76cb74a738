package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// When silence is doubted, and for how long.
const (
	staleAfter = 10 * time.Second // since the newest successful read
	doubtFor   = 60 * time.Second
)

// doubt is that what looks like nodes falling silent may be us who do not hear: zones are apart so
// that they do not fail together.
type doubt struct {
	until time.Time // rates are 0 before that
	why   string
	fell  time.Time // up to where falls were doubted once: none is doubted for ever
}

// doubts says whether rates are 0 because of it.
func (s *step) doubts() {
	if !s.config.Doubt {
		return
	}
	d := &s.doubt
	if read := s.seen.Read; !read.IsZero() && s.now.Sub(read) > staleAfter {
		d.until = s.now.Add(doubtFor)
		d.why = fmt.Sprintf("nodes or leases were not read since %s", read.UTC().Format(time.RFC3339))
	} else if !read.IsZero() {
		s.again(read.Add(staleAfter))
	}
	if fell, names := s.fellTogether(); fell.After(d.fell) {
		d.fell, d.until = fell, s.now.Add(doubtFor)
		d.why = fmt.Sprintf("all nodes of the zones %s and %s fell silent within one grace period",
			names[0], names[1])
	}
	if s.now.Before(d.until) {
		s.out.Doubt = d.why
		s.again(d.until)
	}
}

// fellTogether finds two zones of which all nodes fell silent within one grace period, those that
// did last, and when the last of their nodes did. The zero time: there are none.
func (s *step) fellTogether() (at time.Time, names [2]string) {
	var silent []string
	for _, key := range slices.Sorted(maps.Keys(s.zones)) {
		if z := s.zones[key]; z.silent > 0 && z.silent == z.ready+z.notReady {
			silent = append(silent, key)
		}
	}
	for i, a := range silent {
		for _, b := range silent[i+1:] {
			za, zb := s.zones[a], s.zones[b]
			from, to := za.from, latest(za.to, zb.to)
			if zb.from.Before(from) {
				from = zb.from
			}
			if to.Sub(from) <= s.config.NodeMonitorGracePeriod && to.After(at) {
				at, names = to, [2]string{a, b}
			}
		}
	}
	return at, names
}
