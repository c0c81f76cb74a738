package podindex

import (
	"cmp"
	"math"
	"slices"

	"jettison/cri"
	"jettison/stats"
)

// What a pod requests is the greater of what its regular containers and sidecars ask for together
// and of what each init container asks for with the sidecars before it; or what the pod asks for
// itself; and its overhead (k8s.io/component-helpers/resource PodRequests). The runtime tells
// containers, but not of which kind they are, nor which are still to come, and their oom_score_adj
// says less than it seems to (pkg/kubelet/qos/policy.go GetContainerOOMScoreAdjust, v1.36):
//
//   - a sidecar (a restartable init container) carries the score of the smallest regular container,
//     if that is lower than its own;
//   - what a pod asks for itself beyond its containers is spread evenly over all of them, init
//     containers included.
//
// So the request is a range. Its bounds hold for any pod that a kubelet runs and has not resized
// since, with one assumption: if neither the CPU nor the memory limit of the sandbox, which are
// those of the whole pod, tells of a container that was not seen, there is none.

// parts are the containers that a pod's request is made of: the newest of each name. They are found
// once for an Index.
type parts struct {
	// by oom_score_adj, lowest first, which is the largest request; one without a score last
	alive []*cri.Container
	dead  []*cri.Container
	// the sandbox was made for more than was seen: there are containers that are still to come, or
	// were removed
	hidden bool
}

// arrange finds the parts of a pod's request among its containers.
func (p *Pod) arrange() {
	newest := make(map[string]*cri.Container, len(p.Containers)+len(p.Exited))
	// who lives counts, whatever the clock said
	for _, from := range [][]cri.Container{p.Exited, p.Containers} {
		for i := range from {
			c := &from[i]
			name := cmp.Or(c.Name, c.ID)
			if old := newest[name]; old == nil || (old.State == cri.Exited) != (c.State == cri.Exited) ||
				!c.CreatedAt.Before(old.CreatedAt) {
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
	p.parts.hidden = p.parts.unseen(&p.Sandboxes[0])
}

func score(c *cri.Container) int64 {
	if c.OOMScoreAdj == nil {
		return math.MaxInt64
	}
	return *c.OOMScoreAdj
}

// unseen reports whether a sandbox was made for more CPU, or for higher limits on memory, than the
// containers have that were seen. Of limits that were not told nothing follows.
func (p *parts) unseen(s *cri.PodSandbox) bool {
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

// overhead of a pod in bytes; told is false where it may have one that the runtime did not tell.
// Without a RuntimeClass there is none.
func (p *Pod) overhead() (bytes uint64, told bool) {
	s := &p.Sandboxes[0]
	if s.Overhead == nil {
		return 0, s.RuntimeHandler == ""
	}
	return *s.Overhead, true
}

// memoryRequest is what a pod requests of a node with so much memory. Absent: nothing is known of
// it, or the pod keeps a part of it from being known.
func (p *Pod) memoryRequest(qos stats.QOSClass,
	capacity stats.Opt[uint64]) (out stats.Opt[stats.Range]) {
	overhead, told := p.overhead()
	// which the kubelet's ranking does not count it in, and everything else does
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
	r := stats.Range{Min: b.least(), Max: stats.SaturatingAdd(b.most, overhead)}
	if r.Min > 0 { // as the kubelet's ranking has it
		r.Min = stats.SaturatingAdd(r.Min, overhead)
	}
	b.refused = b.refused || !told && p.Sandboxes[0].Refused
	if b.open || !told || p.parts.hidden || len(p.parts.alive) == 0 {
		if !capacity.OK {
			return out
		}
		r.Max = max(r.Max, capacity.V) // a pod that requests more is not admitted
	}
	if b.known && !b.refused {
		out = stats.Some(r)
	}
	return out
}

// bounds gather the request of a pod, container by container: those alive by their score, lowest
// first, before the dead.
type bounds struct {
	known, open bool   // something is known; something is not
	refused     bool   // something is not by the pod's own doing
	exact       uint64 // the sum of those alive whose request is known exactly
	single      uint64 // the least that the largest one has, be it dead
	most        uint64

	// Of those alive that only have a score, each score once: who shares one may be a sidecar that
	// only carries it.
	scores        int
	last          int64
	first, second uint64 // of the two lowest scores
	sum           uint64
}

func (b *bounds) add(c *cri.Container, r stats.Opt[stats.Range], alive bool) {
	if !r.OK {
		b.open, b.refused = true, b.refused || c.Refused
		return
	}
	b.known = true
	b.single = max(b.single, r.V.Min)
	b.most = stats.SaturatingAdd(b.most, r.V.Max)
	if r.V.Min == r.V.Max {
		if alive {
			b.exact = stats.SaturatingAdd(b.exact, r.V.Min)
		}
		return
	}
	b.most = stats.SaturatingAdd(b.most, 1) // what a pod asks for itself is spread in whole bytes
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

// least is what the pod requests at least. Of those alive all may be sidecars but one, an init
// container that is done before the regular one starts whose score they carry: then these two do
// not add up. So the second largest does not count.
func (b *bounds) least() uint64 {
	scored := b.sum - b.second
	if b.scores == 0 {
		scored = 0
	}
	return max(b.exact, scored, b.single)
}

// cpuMillis is a pod's request for CPU in thousandths of a core: that of the containers alive, and
// at most what the sandbox was made for, or where that was not told, what the dead ones asked for
// besides. Only the former follows a resize in place.
func (p *Pod) cpuMillis() stats.Opt[stats.Range] {
	out := stats.Some(stats.Range{})
	for _, c := range p.parts.alive {
		out = sum(out, cpuRequest(c.CPUShares))
	}
	if told := cpuRequest(p.Sandboxes[0].CPUShares); told.OK {
		out.V.Max = max(out.V.Max, told.V.Max)
		return out
	}
	for _, c := range p.parts.dead {
		r := cpuRequest(c.CPUShares)
		out.V.Max = stats.SaturatingAdd(out.V.Max, r.V.Max)
	}
	return out
}
