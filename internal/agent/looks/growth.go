package looks

import (
	"time"

	"jettison/eviction"
	"jettison/stats/read"
)

// growthEvery is the time between two looks at what the top of the hierarchy uses.
const growthEvery = 10 * time.Second

// growth remembers what the cgroups at the top of the hierarchy used before memory became short:
// where evictions do not help, one of them is what eats it.
type growth struct {
	before map[string]uint64
	at     time.Time
}

// watch remembers what is used now, now and then, as long as memory is not short.
func (g *growth) watch(now time.Time, r *read.Reader, short bool) {
	if short && g.before != nil || now.Sub(g.at) < growthEvery {
		return
	}
	g.at, g.before = now, map[string]uint64{}
	// what cannot be read is not named
	_ = r.TopLevel(func(path string, bytes uint64) { g.before[path] = bytes })
}

// since is what each has grown by.
func (g *growth) since(r *read.Reader) (out []eviction.Growth) {
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
