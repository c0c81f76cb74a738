package podindex

import (
	"jettison/cri"
	"jettison/stats"
)

// MemoryRequest is what a pod of a class requests of a node with so much memory, by the runtime's
// word: it lies between these bounds. Absent: nothing is known of it.
func (p *Pod) MemoryRequest(qos stats.QOSClass, capacity stats.Opt[uint64]) stats.Opt[stats.Range] {
	if len(p.Containers)+len(p.Exited) == 0 {
		return stats.Opt[stats.Range]{}
	}
	return p.memoryRequest(qos, capacity)
}

// ContainerMemoryRequest is what one container of a pod of that class requests, likewise.
func ContainerMemoryRequest(qos stats.QOSClass, c *cri.Container,
	capacity stats.Opt[uint64]) stats.Opt[stats.Range] {
	return containerRequest(qos, c, capacity)
}

// CPURequest is what a pod or a container with those CPU shares requests of the CPU, in thousandths
// of a core. Absent: nothing is known.
func CPURequest(shares *uint64) stats.Opt[stats.Range] { return cpuRequest(shares) }
