package apiconvert

import (
	"jettison/api"
	"jettison/stats"
)

// Load converts the load and capacity of a node.
func Load(n *stats.NodeStats) *api.LoadState {
	return &api.LoadState{
		Time: n.Memory.Time, CPUs: n.CPUs,
		Memory: api.MemoryLoad{
			CapacityBytes: known(n.Memory.Ordinary()), WorkingSetBytes: known(n.Memory.WorkingSetBytes),
			AvailableBytes: known(n.Memory.KernelAvailableBytes),
		},
		Swap: api.SwapLoad{TotalBytes: known(n.Swap.TotalBytes), FreeBytes: known(n.Swap.FreeBytes)},
		Pods: api.PodsLoad{
			WorkingSetBytes: known(n.Pods.WorkingSetBytes), SwapBytes: known(n.Pods.SwapBytes),
			Tasks: known(n.Pods.Tasks),
		},
		Pressure: api.PressureSet{CPU: pressure(&n.Pressure.CPU), Memory: pressure(&n.Pressure.Memory),
			IO: pressure(&n.Pressure.IO)},
	}
}

func known(value stats.Opt[uint64]) *uint64 {
	if !value.OK {
		return nil
	}
	return &value.V
}

func pressure(p *stats.Pressure) *api.PressureState {
	if !p.Stats.OK {
		return nil
	}
	v, out := &p.Stats.V, &api.PressureState{}
	if v.HasSome {
		out.Some = &api.StallState{Avg10: v.Some.Avg10, Avg60: v.Some.Avg60, Avg300: v.Some.Avg300}
	}
	if v.HasFull {
		out.Full = &api.StallState{Avg10: v.Full.Avg10, Avg60: v.Full.Avg60, Avg300: v.Full.Avg300}
	}
	return out
}
