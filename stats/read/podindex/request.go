package podindex

import (
	"cmp"
	"math"
	"slices"

	"jettison/cri"
	"jettison/stats"
)

// A pod's request is the larger of two sums: its regular containers and sidecars together, or an
// init container with the sidecars before it. A pod-level request replaces it, and the overhead is
// added (k8s.io/component-helpers/resource PodRequests). The runtime does not report the kind of a
// container, nor containers that are not created yet, and an oom_score_adj is ambiguous
// (pkg/kubelet/qos/policy.go GetContainerOOMScoreAdjust, v1.37):
//
//   - a sidecar (a restartable init container) has the score of the smallest regular container, if
//     that score is lower than its own;
//   - the part of a pod-level request beyond the containers' requests is spread evenly over all
//     containers, including init containers.
//
// The request is therefore a range. Its bounds are valid for any pod that a kubelet runs and has
// not resized since, with one assumption. The CPU and the memory limit of the sandbox are those of
// the whole pod: if neither exceeds the sum of the reported containers, all containers were
// reported.

// parts holds the containers that make up a pod's request: the newest of each name. It is
// computed once for an Index.
type parts struct {
	// by oom_score_adj, lowest first, which means the largest request; containers without a score
	// last
	alive []*cri.Container
	dead  []*cri.Container
	// the sandbox has more resources than the reported containers: some are not created yet, or were
	// removed
	hidden bool
}

// arrange selects the parts of a pod's request from its containers.
func (p *Pod) arrange() {
	newest := make(map[string]*cri.Container, len(p.Containers)+len(p.Exited))
	// a live container replaces an exited one, regardless of creation times
	for _, from := range [][]cri.Container{p.Exited, p.Containers} {
		for i := range from {
			c := &from[i]
			name := cmp.Or(c.Name, c.ID)
			if old := newest[name]; old == nil || (old.State == cri.Exited) != (c.State == cri.Exited) ||
				isNewer(c, old) {
				newest[name] = c
			}
		}
	}
	for _, c := range newest {
		if c.State == cri.Exited {
			p.parts.dead = append(p.parts.dead, c)
		} else {
			p.parts.alive = append(p.parts.alive, c)
		}
	}
	slices.SortFunc(p.parts.alive, func(a, b *cri.Container) int {
		return cmp.Or(cmp.Compare(score(a), score(b)), cmp.Compare(a.ID, b.ID))
	})
	p.parts.hidden = p.parts.hidesContainers(&p.Sandboxes[0])
}

// isNewer reports whether a container was created after, or at the same time as, another one of its
// name. Without a creation time, the attempts decide.
func isNewer(c, than *cri.Container) bool {
	if c.CreatedAt.IsZero() || than.CreatedAt.IsZero() {
		return c.Attempt >= than.Attempt
	}
	return !c.CreatedAt.Before(than.CreatedAt)
}

func score(c *cri.Container) int64 {
	if c.OOMScoreAdj == nil {
		return math.MaxInt64
	}
	return *c.OOMScoreAdj
}

// hidesContainers reports whether the sandbox was created with more CPU, or a higher memory limit,
// than all reported containers together. Values that were not reported are ignored.
func (p *parts) hidesContainers(s *cri.PodSandbox) bool {
	cpu, limits := stats.Some(stats.Range{}), uint64(0)
	for _, list := range [][]*cri.Container{p.alive, p.dead} {
		for _, c := range list {
			cpu = sum(cpu, cpuRequest(c.CPUShares))
			if c.MemoryLimit != nil {
				limits = stats.SaturatingAdd(limits, *c.MemoryLimit)
			}
		}
	}
	of := cpuRequest(s.CPUShares)
	return of.OK && cpu.OK && of.V.Min > cpu.V.Max || s.MemoryLimit != nil && *s.MemoryLimit > limits
}

// overhead returns the pod's overhead in bytes. It is 0 for a pod without a RuntimeClass. known is
// false if the runtime did not report the overhead of a pod with one.
func (p *Pod) overhead() (bytes uint64, known bool) {
	s := &p.Sandboxes[0]
	if s.Overhead == nil {
		return 0, s.RuntimeHandler == ""
	}
	return *s.Overhead, true
}

// memoryRequest returns the bounds of a pod's request on a node with the given memory. It is absent
// if no part is known, or if the pod itself caused a part to be unknown.
func (p *Pod) memoryRequest(qos stats.QOSClass,
	capacity stats.Opt[uint64]) (out stats.Opt[stats.Range]) {
	overhead, known := p.overhead()
	// the kubelet's ranking ignores the overhead of a BestEffort pod, while the scheduler and
	// admission count it
	if qos == stats.BestEffort {
		return stats.Some(stats.Range{Max: overhead})
	}
	var b bounds
	for _, c := range p.parts.alive {
		b.add(c, containerRequest(qos, c, capacity), true)
	}
	for _, c := range p.parts.dead {
		b.add(c, containerRequest(qos, c, capacity), false)
	}
	r := stats.Range{Min: b.lower(), Max: stats.SaturatingAdd(b.upper, overhead)}
	if r.Min > 0 { // as in the kubelet's ranking
		r.Min = stats.SaturatingAdd(r.Min, overhead)
	}
	b.refused = b.refused || !known && p.Sandboxes[0].Refused
	if b.open || !known || p.parts.hidden || len(p.parts.alive) == 0 {
		if !capacity.OK {
			return out
		}
		r.Max = max(r.Max, capacity.V) // a pod with a larger request is not admitted
	}
	if b.known && !b.refused {
		out = stats.Some(r)
	}
	return out
}

// bounds accumulates the request of a pod, container by container: live containers by score, lowest
// first, then dead containers.
type bounds struct {
	known, open bool   // the request of some container is known; of some is unknown
	refused     bool   // the pod itself caused some request to be unknown
	exact       uint64 // sum of the live containers with an exact request
	largest     uint64 // largest lower bound of one container, live or dead
	upper       uint64

	// Live containers with only a score. Each score counts once, because a container with the same
	// score may be a sidecar that has the score of another container.
	scores        int
	last          int64
	first, second uint64 // lower bounds of the two lowest scores
	sum           uint64
}

func (b *bounds) add(c *cri.Container, r stats.Opt[stats.Range], alive bool) {
	if !r.OK {
		b.open, b.refused = true, b.refused || c.Refused
		return
	}
	b.known = true
	b.largest = max(b.largest, r.V.Min)
	b.upper = stats.SaturatingAdd(b.upper, r.V.Max)
	if r.V.Min == r.V.Max {
		if alive {
			b.exact = stats.SaturatingAdd(b.exact, r.V.Min)
		}
		return
	}
	// rounding: the pod-level request is spread in whole bytes
	b.upper = stats.SaturatingAdd(b.upper, 1)
	if at := score(c); alive && (b.scores == 0 || at != b.last) {
		switch b.last = at; b.scores {
		case 0:
			b.first = r.V.Min
		case 1:
			b.second = r.V.Min
		}
		b.scores++
		b.sum = stats.SaturatingAdd(b.sum, r.V.Min)
	}
}

// lower returns the lower bound of the pod's request. All live containers but one may be sidecars
// that have the score of an init container, which ends before the regular container starts. The
// requests of these two do not add up, so the second largest does not count.
func (b *bounds) lower() uint64 {
	scored := b.sum - b.second
	if b.scores == 0 {
		scored = 0
	}
	return max(b.exact, scored, b.largest)
}

// cpuMillis returns the bounds of a pod's CPU request in thousandths of a core. The lower bound is
// the sum of the live containers, the only value that reflects an in-place resize. The upper bound
// is the sandbox's CPU. If that was not reported, it is the sum of live and dead containers.
func (p *Pod) cpuMillis() stats.Opt[stats.Range] {
	out := stats.Some(stats.Range{})
	for _, c := range p.parts.alive {
		out = sum(out, cpuRequest(c.CPUShares))
	}
	if sandbox := cpuRequest(p.Sandboxes[0].CPUShares); sandbox.OK {
		out.V.Max = max(out.V.Max, sandbox.V.Max)
		return out
	}
	for _, c := range p.parts.dead {
		r := cpuRequest(c.CPUShares)
		out.V.Max = stats.SaturatingAdd(out.V.Max, r.V.Max)
	}
	return out
}
