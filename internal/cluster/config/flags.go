package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Flags are the flags of the same names as kube-controller-manager has, and of our own.
type Flags struct {
	set    *pflag.FlagSet
	values *Cluster
}

// AddFlags adds them to a command.
func AddFlags(set *pflag.FlagSet) *Flags {
	c := Default()
	set.DurationVar(&c.NodeMonitorPeriod, "node-monitor-period", c.NodeMonitorPeriod, "how often all nodes are looked at, changed or not")
	set.DurationVar(&c.NodeMonitorGracePeriod, "node-monitor-grace-period", c.NodeMonitorGracePeriod,
		"how long a node may be silent before it is Unknown")
	set.DurationVar(&c.NodeStartupGracePeriod, "node-startup-grace-period", c.NodeStartupGracePeriod,
		"how long a new node may be silent before it is Unknown")
	set.Float64Var(&c.NodeEvictionRate, "node-eviction-rate", c.NodeEvictionRate, "nodes a second that are tainted in a zone")
	set.Float64Var(&c.SecondaryNodeEvictionRate, "secondary-node-eviction-rate", c.SecondaryNodeEvictionRate,
		"nodes a second that are tainted in a large zone that is partly disrupted; in a small one none are")
	set.Int32Var(&c.LargeClusterSizeThreshold, "large-cluster-size-threshold", c.LargeClusterSizeThreshold,
		"nodes above which a zone is large")
	set.Float32Var(&c.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.UnhealthyZoneThreshold,
		"share of nodes that are not ready from which a zone is partly disrupted")
	set.BoolVar(&c.Doubt, "doubt", c.Doubt, "taint no node while silence may be our own")
	set.StringVar(&c.PressureTaint, "pressure-taint", c.PressureTaint, "taint of nodes under pressure: prefer, hard or off")
	set.StringVar(&c.ExcludedNodes, "excluded-nodes", c.ExcludedNodes, "nodes that are excluded from disruption: taint or leave")
	set.StringVar(&c.ControlPlaneNodes, "control-plane-nodes", c.ControlPlaneNodes, "nodes of the control plane: count or exclude")
	set.Float64Var(&c.PodEvictionRate, "pod-eviction-rate", c.PodEvictionRate, "pods a second that leave a zone; 0: as many as have to")
	return &Flags{set: set, values: c}
}

// Over puts the flags that were given over a configuration.
func (f *Flags) Over(c *Cluster) error {
	for name, put := range map[string]func(){
		"node-monitor-period":          func() { c.NodeMonitorPeriod = f.values.NodeMonitorPeriod },
		"node-monitor-grace-period":    func() { c.NodeMonitorGracePeriod = f.values.NodeMonitorGracePeriod },
		"node-startup-grace-period":    func() { c.NodeStartupGracePeriod = f.values.NodeStartupGracePeriod },
		"node-eviction-rate":           func() { c.NodeEvictionRate = f.values.NodeEvictionRate },
		"secondary-node-eviction-rate": func() { c.SecondaryNodeEvictionRate = f.values.SecondaryNodeEvictionRate },
		"large-cluster-size-threshold": func() { c.LargeClusterSizeThreshold = f.values.LargeClusterSizeThreshold },
		"unhealthy-zone-threshold":     func() { c.UnhealthyZoneThreshold = f.values.UnhealthyZoneThreshold },
		"doubt":                        func() { c.Doubt = f.values.Doubt },
		"pressure-taint":               func() { c.PressureTaint = f.values.PressureTaint },
		"excluded-nodes":               func() { c.ExcludedNodes = f.values.ExcludedNodes },
		"control-plane-nodes":          func() { c.ControlPlaneNodes = f.values.ControlPlaneNodes },
		"pod-eviction-rate":            func() { c.PodEvictionRate = f.values.PodEvictionRate },
	} {
		if f.set.Changed(name) {
			put()
		}
	}
	if wrong := c.check(); wrong != nil {
		return fmt.Errorf("flags: %w", wrong)
	}
	return nil
}
