package planner

import (
	"encoding/json"
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/cluster/deschedule"
)

// leaseNamespace is the namespace in which bridges report node load, in Leases named after the
// nodes.
const leaseNamespace = "jettison-system"

// pressures maps the names of pressures in a load to resources of thresholds.
var pressures = map[string]v1.ResourceName{
	"memorySome": deschedule.AgentMemorySome, "memoryFull": deschedule.AgentMemoryFull,
	"cpuSome": deschedule.AgentCPUSome,
	"cpuFull": deschedule.AgentCPUFull, "ioSome": deschedule.AgentIOSome,
	"ioFull": deschedule.AgentIOFull,
}

// ParseAgentLoad parses the annotation in which a bridge reports node load. Values out of range
// are absent from the result.
func ParseAgentLoad(text string) (out deschedule.AgentLoad, err error) {
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
		// negative headroom: the node is already evicting
		set(deschedule.AgentHeadroomUsed, math.Min(100-*l.HeadroomPercent, 100))
	}
	for name, percent := range l.Pressure {
		if to, ok := pressures[name]; ok {
			set(to, percent)
		}
	}
	return out, nil
}
