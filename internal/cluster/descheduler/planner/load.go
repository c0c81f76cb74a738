package planner

import (
	"encoding/json"
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/cluster/deschedule"
)

// leaseNamespace is where bridges tell the load of their nodes, each in the Lease of its node's
// name.
const leaseNamespace = "jettison-system"

// pressures are what a load calls the shares of time in which tasks waited.
var pressures = map[string]v1.ResourceName{
	"memorySome": deschedule.AgentMemorySome, "memoryFull": deschedule.AgentMemoryFull,
	"cpuSome": deschedule.AgentCPUSome,
	"cpuFull": deschedule.AgentCPUFull, "ioSome": deschedule.AgentIOSome,
	"ioFull": deschedule.AgentIOFull,
}

// AgentLoad reads a load as a bridge writes it. Figures that cannot be are absent.
func AgentLoad(text string) (out deschedule.AgentLoad, err error) {
	var l api.NodeLoad
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return out, fmt.Errorf("annotation %s: %w", api.LoadAnnotation, err)
	}
	if l.Time.IsZero() {
		return out, fmt.Errorf("annotation %s: time is missing", api.LoadAnnotation)
	}
	out = deschedule.AgentLoad{At: l.Time, Percent: map[v1.ResourceName]float64{}}
	set := func(name v1.ResourceName, percent float64) {
		if percent >= 0 && percent <= 100 {
			out.Percent[name] = percent
		}
	}
	if l.WorkingSetPercent != nil {
		set(deschedule.AgentWorkingSet, *l.WorkingSetPercent)
	}
	if l.HeadroomPercent != nil {
		// below zero: the node evicts already
		set(deschedule.AgentHeadroomUsed, math.Min(100-*l.HeadroomPercent, 100))
	}
	for name, percent := range l.Pressure {
		if to, ok := pressures[name]; ok {
			set(to, percent)
		}
	}
	return out, nil
}
