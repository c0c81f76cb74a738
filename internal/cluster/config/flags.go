package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

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
	set.DurationVar(&c.NodeMonitorPeriod, "node-monitor-period", c.NodeMonitorPeriod,
		"how often all nodes are looked at, changed or not")
	set.DurationVar(&c.NodeMonitorGracePeriod, "node-monitor-grace-period", c.NodeMonitorGracePeriod,
		"how long a node may be silent before it is Unknown")
	set.DurationVar(&c.NodeStartupGracePeriod, "node-startup-grace-period", c.NodeStartupGracePeriod,
		"how long a new node may be silent before it is Unknown")
	set.Float64Var(&c.NodeEvictionRate, "node-eviction-rate", c.NodeEvictionRate,
		"nodes a second that are tainted in a zone")
	set.Float64Var(&c.SecondaryNodeEvictionRate, "secondary-node-eviction-rate",
		c.SecondaryNodeEvictionRate,
		"nodes a second that are tainted in a large zone that is partly disrupted; in a small one none are")
	set.Int32Var(&c.LargeClusterSizeThreshold, "large-cluster-size-threshold",
		c.LargeClusterSizeThreshold,
		"nodes above which a zone is large")
	set.Float32Var(&c.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.UnhealthyZoneThreshold,
		"share of nodes that are not ready from which a zone is partly disrupted")
	set.BoolVar(&c.Doubt, "doubt", c.Doubt, "taint no node while silence may be our own")
	set.StringVar(&c.PressureTaint, "pressure-taint", c.PressureTaint,
		"taint of nodes under pressure: prefer, hard or off")
	set.StringVar(&c.ExcludedNodes, "excluded-nodes", c.ExcludedNodes,
		"nodes that are excluded from disruption: taint or leave")
	set.StringVar(&c.ControlPlaneNodes, "control-plane-nodes", c.ControlPlaneNodes,
		"nodes of the control plane: count or exclude")
	set.Float64Var(&c.PodEvictionRate, "pod-eviction-rate", c.PodEvictionRate,
		"pods a second that leave a zone; 0: as many as have to")
	c.addProgram(set)
	return &Flags{set: set, values: c}
}

// addProgram adds the flags of what a replay does not need.
func (c *Cluster) addProgram(set *pflag.FlagSet) {
	set.StringVar(&c.Mode, "mode", c.Mode,
		"observe: say what would be done; fence: take nodes out of service that a check confirms dead; replace: act")
	set.DurationVar(&c.ReplaceQuiet, "replace-quiet", c.ReplaceQuiet,
		"begin to act once no other controller wrote taints of nodes for so long")
	set.BoolVar(&c.RespectPDB, "respect-pdb", c.RespectPDB,
		"evict pods as their disruption budgets allow before they are deleted")
	set.DurationVar(&c.PDBTimeout, "pdb-timeout", c.PDBTimeout,
		"delete a pod that no budget lets go so long after its deadline")
	set.StringArrayVar(&c.FenceCommand, "fence-command", c.FenceCommand,
		"program, and in further flags its arguments, that confirms a node dead; {node}, {providerID} "+
			"and {address} are filled in")
	set.StringVar(&c.FenceURL, "fence-url", c.FenceURL, "what is asked instead of a program")
	set.DurationVar(&c.FenceAfter, "fence-after", c.FenceAfter,
		"ask so long after a node became Unknown")
	set.DurationVar(&c.FenceEvery, "fence-every", c.FenceEvery,
		"ask again so long after an answer that did not confirm it")
	set.DurationVar(&c.FenceTimeout, "fence-timeout", c.FenceTimeout,
		"how long an answer is waited for")
	set.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect, "act in one replica at a time")
	set.DurationVar(&c.LeaderElectLeaseDuration, "leader-elect-lease-duration",
		c.LeaderElectLeaseDuration,
		"without a renewal for so long another replica takes over")
	set.DurationVar(&c.LeaderElectRenewDeadline, "leader-elect-renew-deadline",
		c.LeaderElectRenewDeadline,
		"a leader stops when it could not renew for so long")
	set.DurationVar(&c.LeaderElectRetryPeriod, "leader-elect-retry-period", c.LeaderElectRetryPeriod,
		"time between two tries, at most")
	set.StringVar(&c.LeaderElectResourceName, "leader-elect-resource-name", c.LeaderElectResourceName,
		"the Lease that replicas share")
	set.StringVar(&c.LeaderElectResourceNamespace, "leader-elect-resource-namespace",
		c.LeaderElectResourceNamespace, "its namespace")
	set.Float32Var(&c.KubeAPIQPS, "kube-api-qps", c.KubeAPIQPS, "writes a second to the API, at most")
	set.Int32Var(&c.KubeAPIBurst, "kube-api-burst", c.KubeAPIBurst, "writes at once")
	set.StringVar(&c.Address, "address", c.Address,
		"where health, metrics and status are served, and asked for; empty: nowhere")
}

// spelled are flags whose names do not follow from their fields'.
var flagNames = map[string]string{
	"kubeAPIQPS": "kube-api-qps", "kubeAPIBurst": "kube-api-burst", "respectPDB": "respect-pdb",
	"fenceURL": "fence-url",
}

// flagOf is the flag of a field.
func flagName(field string) string {
	if name, ok := flagNames[field]; ok {
		return name
	}
	var b strings.Builder
	for _, r := range field {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Over puts the flags that were given over a configuration.
func (f *Flags) Apply(c *Cluster) error {
	from, to := reflect.ValueOf(f.values).Elem(), reflect.ValueOf(c).Elem()
	for i := range to.NumField() {
		if f.set.Changed(flagName(to.Type().Field(i).Tag.Get("yaml"))) {
			to.Field(i).Set(from.Field(i))
		}
	}
	if wrong := c.check(); wrong != nil {
		return fmt.Errorf("flags: %w", wrong)
	}
	return nil
}
