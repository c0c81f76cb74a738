package bridge

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/stats"
)

// The node gets jettison's conditions, a Lease with its load, and events of findings.
func TestNodeIsWritten(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	a.state = &api.State{
		Time: time.Now(), Kubelet: true, BreakerOpen: "three pods died, and nothing came back",
		Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}},
		Load:       load(300),
		Signals:    []api.SignalState{{Signal: stats.SignalMemoryAvailable, Observed: true, Available: 300, Capacity: 1000, Limits: []uint64{100}}},
	}
	stop := start(t, c, a, nil)
	c.await("conditions, load and event are written", func() bool { return len(c.node.Status.Conditions) == 3 && len(c.leases) == 1 && len(c.events) == 1 })
	stop()
	got := map[string]string{}
	for _, k := range c.node.Status.Conditions {
		got[string(k.Type)] = string(k.Status) + " " + k.Reason
	}
	if got["JettisonMemoryPressure"] != "True AgentFindsPressure" || got["JettisonDiskPressure"] != "False AgentFindsNoPressure" || len(got) != 3 {
		t.Errorf("conditions are %v, want the agent's", got)
	}
	lease := c.leases["jettison-system/n1"]
	var load api.NodeLoad
	if err := json.Unmarshal([]byte(lease.Annotations[api.LoadAnnotation]), &load); err != nil || *load.WorkingSetPercent != 70 || *load.HeadroomBytes != 200 {
		t.Errorf("lease annotations %v, error %v, want the load", lease.Annotations, err)
	}
	if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("lease owners %v, want the node", lease.OwnerReferences)
	}
	if e := c.reasons()[0]; e[len(e)-16:] != "EvictionsStopped" {
		t.Errorf("event is %+v, want the finding", e)
	}
	stop = start(t, c, a, nil) // it writes the load, but no condition: nothing has changed
	c.await("the next bridge has written the load", func() bool { return c.counted["PATCH namespaces n1"] == 2 })
	stop()
	if n := len(c.written["node"]); n != 1 {
		t.Errorf("conditions written %d times, want no repetition", n)
	}
}

// Without a kubelet no condition is written.
func TestNodeWithoutAKubelet(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	a.state = &api.State{
		Time: time.Now(), Load: load(1),
	}
	stop := start(t, c, a, nil)
	c.await("the load is written", func() bool { return len(c.leases) == 1 })
	stop()
	if len(c.written["node"]) != 0 || slices.ContainsFunc(c.node.Status.Conditions, func(v1.NodeCondition) bool { return true }) {
		t.Errorf("conditions %v without a kubelet, want none", c.node.Status.Conditions)
	}
}

// load returns a load of a thousand bytes with the given amount available.
func load(available uint64) *api.LoadState {
	whole, used := uint64(1000), 1000-available
	return &api.LoadState{Time: time.Now(), Memory: api.MemoryLoad{CapacityBytes: &whole, WorkingSetBytes: &used}}
}
