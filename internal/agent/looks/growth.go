package looks

import (
	"time"

	"jettison/eviction"
	"jettison/stats/read"
)

// growthInterval is the interval between two readings of the cgroups at the top of the hierarchy.
const growthInterval = 10 * time.Second

// growth stores the usage of the cgroups at the top of the hierarchy before memory became short. If
// evictions do not help, one of these cgroups uses up the memory.
type growth struct {
	before map[string]uint64
	at     time.Time
}

// record stores the current usage once per growthInterval while memory is not short.
func (g *growth) record(now time.Time, r *read.Reader, short bool) {
	if short && g.before != nil || now.Sub(g.at) < growthInterval {
		return
	}
	g.at, g.before = now, map[string]uint64{}
	// a cgroup that cannot be read is omitted
	_ = r.TopLevel(func(path string, bytes uint64) { g.before[path] = bytes })
}

// grown returns the growth of each cgroup.
func (g *growth) grown(r *read.Reader) (out []eviction.Growth) {
	if g.before == nil {
		return nil
	}
	_ = r.TopLevel(func(path string, bytes uint64) {
		if grown := int64(bytes) - int64(g.before[path]); grown > 0 {
			out = append(out, eviction.Growth{Cgroup: path, Bytes: grown})
		}
	})
	return out
}
