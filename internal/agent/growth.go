package agent

import (
	"time"

	"jettison/eviction"
	"jettison/stats/read"
)

// growth remembers what the cgroups at the top of the hierarchy used before memory became short: where evictions do not help, one
// of them is what eats it.
type growth struct {
	before map[string]uint64
	at     time.Time
}

// watch remembers what is used now, now and then, as long as memory is not short.
func (g *growth) watch(now time.Time, c *read.Reader, short bool) {
	if short && g.before != nil || now.Sub(g.at) < period {
		return
	}
	g.at, g.before = now, map[string]uint64{}
	_ = c.TopLevel(func(path string, bytes uint64) { g.before[path] = bytes }) // what cannot be read is not named
}

// since is what each has grown by.
func (g *growth) since(c *read.Reader) (out []eviction.Growth) {
	if g.before == nil {
		return nil
	}
	_ = c.TopLevel(func(path string, bytes uint64) {
		if grown := int64(bytes) - int64(g.before[path]); grown > 0 {
			out = append(out, eviction.Growth{Cgroup: path, Bytes: grown})
		}
	})
	return out
}
