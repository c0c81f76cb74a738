package podindex

import (
	"jettison/cri"
	"jettison/stats"
)

// MemoryRequest returns the bounds of a pod's memory request by the runtime's data, given its class
// and the node's memory. It is absent without data about containers.
func (p *Pod) MemoryRequest(qos stats.QOSClass, capacity stats.Opt[uint64]) stats.Opt[stats.Range] {
	if len(p.Containers)+len(p.Exited) == 0 {
		return stats.Opt[stats.Range]{}
	}
	return p.memoryRequest(qos, capacity)
}

// ContainerMemoryRequest returns the bounds of the memory request of one container of a pod of the
// given class.
func ContainerMemoryRequest(qos stats.QOSClass, c *cri.Container,
	capacity stats.Opt[uint64]) stats.Opt[stats.Range] {
	return containerRequest(qos, c, capacity)
}

// CPURequest returns the CPU request behind the CPU shares of a pod or a container, in
// thousandths of a core. It is absent if the shares are unknown.
func CPURequest(shares *uint64) stats.Opt[stats.Range] { return cpuRequest(shares) }
