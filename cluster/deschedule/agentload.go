package deschedule

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Resource names in thresholds for the load that jettison agents report for their nodes. All values
// are percentages; higher is worse.
const (
	AgentWorkingSet v1.ResourceName = "jettison/working-set" // of the node's memory
	// 100 minus the percentage left until the node evicts
	AgentHeadroomUsed v1.ResourceName = "jettison/headroom-used"
	// share of the last minute in which some tasks waited for memory
	AgentMemorySome v1.ResourceName = "jettison/memory-some"
	AgentMemoryFull v1.ResourceName = "jettison/memory-full" // share in which all tasks waited
	AgentCPUSome    v1.ResourceName = "jettison/cpu-some"
	AgentCPUFull    v1.ResourceName = "jettison/cpu-full"
	AgentIOSome     v1.ResourceName = "jettison/io-some"
	AgentIOFull     v1.ResourceName = "jettison/io-full"
)

var agentResources = []v1.ResourceName{
	AgentWorkingSet, AgentHeadroomUsed, AgentMemorySome, AgentMemoryFull, AgentCPUSome, AgentCPUFull,
	AgentIOSome, AgentIOFull,
}

// agentScale is 100 % of an agent resource: values are integers in hundredths of a percent.
const agentScale = 100 * 100

// AgentLoad is the load of a node as its agent reported it.
type AgentLoad struct {
	At      time.Time
	Percent map[v1.ResourceName]float64 // unknown values are absent
}

// AgentLoadAge is the maximum age of a reported load. Agents report at least every five minutes.
const AgentLoadAge = 11 * time.Minute

func isAgentResource(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), "jettison/") && slices.Contains(agentResources, name)
}

// agentValue returns an agent resource of a node in hundredths of a percent. The value is unknown
// if the report is older than AgentLoadAge, as far in the future, or older than the last eviction
// from the node: such a report includes evicted pods.
func (p *planner) agentValue(node string, name v1.ResourceName) (value int64, known bool) {
	load, ok := p.input.Agents[node]
	if !ok || p.now.Sub(load.At) > AgentLoadAge || load.At.Sub(p.now) > AgentLoadAge ||
		load.At.Before(p.input.EvictedFrom[node]) {
		return 0, false
	}
	percent, ok := load.Percent[name]
	return int64(percent*agentScale/100 + 0.5), ok
}
