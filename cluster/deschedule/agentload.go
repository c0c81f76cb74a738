package deschedule

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// The figures of the nodes' own agents that thresholds may name beside resources: what a node
// really does, whatever its pods request. All are percents; a higher one is worse.
const (
	AgentWorkingSet v1.ResourceName = "jettison/working-set" // of the node's memory
	// 100 less what is left until the node evicts
	AgentHeadroomUsed v1.ResourceName = "jettison/headroom-used"
	// of the last minute: some tasks waited for memory
	AgentMemorySome v1.ResourceName = "jettison/memory-some"
	AgentMemoryFull v1.ResourceName = "jettison/memory-full" // all did
	AgentCPUSome    v1.ResourceName = "jettison/cpu-some"
	AgentCPUFull    v1.ResourceName = "jettison/cpu-full"
	AgentIOSome     v1.ResourceName = "jettison/io-some"
	AgentIOFull     v1.ResourceName = "jettison/io-full"
)

var agentNames = []v1.ResourceName{
	AgentWorkingSet, AgentHeadroomUsed, AgentMemorySome, AgentMemoryFull, AgentCPUSome, AgentCPUFull,
	AgentIOSome, AgentIOFull,
}

// agentWhole is what of such a figure is 100 %: they are reckoned with in hundredths of a percent.
const agentWhole = 100 * 100

// AgentLoad is what the agent of a node has told of it.
type AgentLoad struct {
	At      time.Time
	Percent map[v1.ResourceName]float64 // what is not known is not there
}

// AgentLoadAge is how old such figures may be. An agent tells them every five minutes at the least.
const AgentLoadAge = 11 * time.Minute

func ofAgent(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), "jettison/") && slices.Contains(agentNames, name)
}

// agent is a figure of a node, in hundredths of a percent. One that is too old, of the future, or
// of before the last eviction from the node is not known: it tells of pods that are gone.
func (p *planner) agent(node string, name v1.ResourceName) (figure int64, known bool) {
	load, ok := p.input.Agents[node]
	if !ok || p.now.Sub(load.At) > AgentLoadAge || load.At.Sub(p.now) > AgentLoadAge ||
		load.At.Before(p.input.EvictedFrom[node]) {
		return 0, false
	}
	percent, ok := load.Percent[name]
	return int64(percent*agentWhole/100 + 0.5), ok
}

// unheard names the first figure of thresholds that the node's agent has not told; empty: it has
// told all.
func (m *meter) unheard(n *model.Node, t Thresholds) v1.ResourceName {
	for _, name := range agentNames {
		if _, ok := t[name]; ok {
			if _, known := m.agent(n.Name, name); !known {
				return name
			}
		}
	}
	return ""
}

// heard are the nodes that are judged by thresholds: those of which every figure is known that an
// agent tells. Where there are none the reason says what is missing.
func (r *run) heard(m *meter, t Thresholds) (nodes []*model.Node, why string) {
	for _, n := range r.nodes {
		if missing := m.unheard(n, t); missing == "" {
			nodes = append(nodes, n)
		} else if why == "" {
			why = "no node's agent has lately told " + string(missing) +
				" (annotation jettison/load of its Lease), " + n.Name + "'s neither"
		}
	}
	return nodes, why
}
