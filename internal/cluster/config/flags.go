package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// Flags holds the flags for the fields, named like kube-controller-manager's where it has them.
type Flags struct {
	set    *pflag.FlagSet
	values *Cluster
}

// AddFlags adds the flags to a command.
func AddFlags(set *pflag.FlagSet) *Flags {
	c := Default()
	set.DurationVar(&c.NodeMonitorPeriod, "node-monitor-period", c.NodeMonitorPeriod,
		"how often all nodes are evaluated, changed or not")
	set.DurationVar(&c.NodeMonitorGracePeriod, "node-monitor-grace-period", c.NodeMonitorGracePeriod,
		"how long a node may be silent before it becomes Unknown")
	set.DurationVar(&c.NodeStartupGracePeriod, "node-startup-grace-period", c.NodeStartupGracePeriod,
		"how long a new node may be silent before it becomes Unknown")
	set.Float64Var(&c.NodeEvictionRate, "node-eviction-rate", c.NodeEvictionRate,
		"nodes per second that are tainted in a zone")
	set.Float64Var(&c.SecondaryNodeEvictionRate, "secondary-node-eviction-rate",
		c.SecondaryNodeEvictionRate,
		"the same in partial disruption of a large zone; small zones: 0")
	set.Int32Var(&c.LargeClusterSizeThreshold, "large-cluster-size-threshold",
		c.LargeClusterSizeThreshold,
		"zones with more nodes are large")
	set.Float32Var(&c.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.UnhealthyZoneThreshold,
		"share of nodes not ready for partial disruption of a zone")
	set.BoolVar(&c.Doubt, "doubt", c.Doubt, "suspend tainting while node silence is in doubt")
	set.StringVar(&c.PressureTaint, "pressure-taint", c.PressureTaint,
		"taint for nodes under pressure: prefer, hard or off")
	set.StringVar(&c.ExcludedNodes, "excluded-nodes", c.ExcludedNodes,
		"nodes excluded from disruption: taint or leave")
	set.StringVar(&c.ControlPlaneNodes, "control-plane-nodes", c.ControlPlaneNodes,
		"control plane nodes in the zones' states: count or exclude")
	set.Float64Var(&c.PodEvictionRate, "pod-eviction-rate", c.PodEvictionRate,
		"pods per second that are evicted in a zone; 0: no limit")
	c.addProgram(set)
	return &Flags{set: set, values: c}
}

// addProgram adds the flags for the fields that a replay ignores.
func (c *Cluster) addProgram(set *pflag.FlagSet) {
	set.StringVar(&c.Mode, "mode", c.Mode,
		"observe: log planned writes; fence: fence dead nodes; replace: act")
	set.DurationVar(&c.ReplaceQuiet, "replace-quiet", c.ReplaceQuiet,
		"start to act after this time without another controller's taint writes")
	set.BoolVar(&c.RespectPDB, "respect-pdb", c.RespectPDB,
		"respect disruption budgets before pods are deleted")
	set.DurationVar(&c.PDBTimeout, "pdb-timeout", c.PDBTimeout,
		"delete a pod with a blocked eviction this long after its deadline")
	set.StringArrayVar(&c.FenceCommand, "fence-command", c.FenceCommand,
		"program that confirms a node dead; repeat the flag for its arguments; {node}, "+
			"{providerID} and {address} are replaced")
	set.StringVar(&c.FenceURL, "fence-url", c.FenceURL, "URL to query instead of a program, with the same placeholders")
	set.DurationVar(&c.FenceAfter, "fence-after", c.FenceAfter,
		"time from a node's transition to Unknown to its first check")
	set.DurationVar(&c.FenceEvery, "fence-every", c.FenceEvery,
		"time from a check that did not confirm a node dead to the next")
	set.DurationVar(&c.FenceTimeout, "fence-timeout", c.FenceTimeout,
		"timeout of a check")
	set.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect, "elect a leader among the replicas")
	set.DurationVar(&c.LeaderElectLeaseDuration, "leader-elect-lease-duration",
		c.LeaderElectLeaseDuration,
		"time without a renewal after which another replica takes over")
	set.DurationVar(&c.LeaderElectRenewDeadline, "leader-elect-renew-deadline",
		c.LeaderElectRenewDeadline,
		"time without a renewal after which the leader stops")
	set.DurationVar(&c.LeaderElectRetryPeriod, "leader-elect-retry-period", c.LeaderElectRetryPeriod,
		"maximum time between two tries")
	set.StringVar(&c.LeaderElectResourceName, "leader-elect-resource-name", c.LeaderElectResourceName,
		"name of the Lease")
	set.StringVar(&c.LeaderElectResourceNamespace, "leader-elect-resource-namespace",
		c.LeaderElectResourceNamespace, "namespace of the Lease")
	set.Float32Var(&c.KubeAPIQPS, "kube-api-qps", c.KubeAPIQPS, "maximum writes per second to the API server")
	set.Int32Var(&c.KubeAPIBurst, "kube-api-burst", c.KubeAPIBurst, "maximum burst of writes")
	set.StringVar(&c.Address, "address", c.Address,
		"address of health, metrics and status; empty: no server")
}

// flagNames lists the flags with names that do not follow from the field.
var flagNames = map[string]string{
	"kubeAPIQPS": "kube-api-qps", "kubeAPIBurst": "kube-api-burst", "respectPDB": "respect-pdb",
	"fenceURL": "fence-url",
}

// flagName returns the flag of a field.
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

// Apply overrides a configuration with the flags that were set, and validates it.
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
