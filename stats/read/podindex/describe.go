package podindex

import (
	"path"
	"strings"

	"jettison/stats"
)

// FromRuntime returns PodStats from the runtime's data alone: the pod's identity and request,
// without usage. self is the cgroup of this process; empty: unknown.
func (p *Pod) FromRuntime(self string) stats.PodStats {
	out := stats.PodStats{Cgroup: p.Cgroup}
	if dir, base := path.Split(p.Cgroup); base != "" {
		if c, ok := stats.ParsePodCgroup(strings.Trim(dir, "/"), base); ok && c.UID == p.PodRef.UID {
			out.QOSClass = c.QOSClass
		}
	}
	p.Describe(&out, stats.Opt[uint64]{})
	out.Self = p.Self || self != "" && p.Cgroup != "" && Within(self, p.Cgroup)
	return out
}
