package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"jettison/internal/base/commandline"
)

// Flags holds the flags for the fields, named like kube-controller-manager's where it has them.
type Flags struct {
	set    *pflag.FlagSet
	values *Cluster
}

// AddFlags adds the flags for all fields to a command.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := AddPolicyFlags(set)
	f.values.addProgram(set)
	return f
}

// AddPolicyFlags adds the flags for the fields that a replay uses.
func AddPolicyFlags(set *pflag.FlagSet) *Flags {
	c := Default()
	set.DurationVar(&c.NodeMonitorPeriod, "node-monitor-period", c.NodeMonitorPeriod,
		"no effect; kept for compatibility")
	set.DurationVar(&c.NodeMonitorGracePeriod, "node-monitor-grace-period", c.NodeMonitorGracePeriod,
		"silence before a node is Unknown")
	set.DurationVar(&c.NodeStartupGracePeriod, "node-startup-grace-period", c.NodeStartupGracePeriod,
		"silence before a new node is Unknown")
	set.Float64Var(&c.NodeEvictionRate, "node-eviction-rate", c.NodeEvictionRate,
		"nodes tainted per second in a zone")
	set.Float64Var(&c.SecondaryNodeEvictionRate, "secondary-node-eviction-rate",
		c.SecondaryNodeEvictionRate,
		"the rate in partial disruption")
	set.Int32Var(&c.LargeClusterSizeThreshold, "large-cluster-size-threshold",
		c.LargeClusterSizeThreshold,
		"zones with more nodes are large")
	set.Float32Var(&c.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.UnhealthyZoneThreshold,
		"partial disruption from this share")
	set.BoolVar(&c.Doubt, "doubt", c.Doubt, "no taints or pod marks while silence is in doubt")
	set.StringVar(&c.PressureTaint, "pressure-taint", c.PressureTaint,
		"prefer, hard or off")
	set.StringVar(&c.ExcludedNodes, "excluded-nodes", c.ExcludedNodes,
		"excluded nodes: taint or leave")
	set.StringVar(&c.ControlPlaneNodes, "control-plane-nodes", c.ControlPlaneNodes,
		"control plane: count or exclude")
	commandline.Values(set, "pressure-taint", "prefer", "hard", "off")
	commandline.Values(set, "excluded-nodes", "taint", "leave")
	commandline.Values(set, "control-plane-nodes", "count", "exclude")
	set.Float64Var(&c.PodEvictionRate, "pod-eviction-rate", c.PodEvictionRate,
		"pods evicted per second in a zone; 0: no limit")
	return &Flags{set: set, values: c}
}

// addProgram adds the flags for the fields that a replay ignores.
func (c *Cluster) addProgram(set *pflag.FlagSet) {
	set.StringVar(&c.Mode, "mode", c.Mode,
		"observe, fence or replace")
	set.BoolVar(&c.OthersDisabled, "others-disabled", c.OthersDisabled,
		"kube-controller-manager's two controllers are off")
	commandline.Values(set, "mode", Observe, Fence, Replace)
	set.DurationVar(&c.ReplaceQuiet, "replace-quiet", c.ReplaceQuiet,
		"wait after taint writes by others")
	set.BoolVar(&c.RespectPDB, "respect-pdb", c.RespectPDB,
		"respect disruption budgets before pods are deleted")
	set.DurationVar(&c.PDBTimeout, "pdb-timeout", c.PDBTimeout,
		"time before budgets are overridden")
	set.StringArrayVar(&c.FenceCommand, "fence-command", c.FenceCommand,
		"check program; repeat the flag for arguments")
	set.StringVar(&c.FenceURL, "fence-url", c.FenceURL, "URL to check instead of a program")
	set.DurationVar(&c.FenceAfter, "fence-after", c.FenceAfter,
		"from node Unknown to the first check")
	set.DurationVar(&c.FenceEvery, "fence-every", c.FenceEvery,
		"time between checks of a silent node")
	set.DurationVar(&c.FenceInterval, "fence-interval", c.FenceInterval,
		"minimum time between two fenced nodes")
	set.DurationVar(&c.FenceTimeout, "fence-timeout", c.FenceTimeout,
		"timeout of a check")
	set.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect, "elect a leader among the replicas")
	set.DurationVar(&c.LeaderElectLeaseDuration, "leader-elect-lease-duration",
		c.LeaderElectLeaseDuration,
		"Lease expiry without a renewal")
	set.DurationVar(&c.LeaderElectRenewDeadline, "leader-elect-renew-deadline",
		c.LeaderElectRenewDeadline,
		"leader stops if not renewed within")
	set.DurationVar(&c.LeaderElectRetryPeriod, "leader-elect-retry-period", c.LeaderElectRetryPeriod,
		"maximum time between two tries")
	set.StringVar(&c.LeaderElectResourceName, "leader-elect-resource-name", c.LeaderElectResourceName,
		"Lease name")
	set.StringVar(&c.LeaderElectResourceNamespace, "leader-elect-resource-namespace",
		c.LeaderElectResourceNamespace, "Lease namespace")
	set.Float32Var(&c.KubeAPIQPS, "kube-api-qps", c.KubeAPIQPS, "writes per second to the API server")
	set.Int32Var(&c.KubeAPIBurst, "kube-api-burst", c.KubeAPIBurst, "maximum burst of writes")
	set.StringVar(&c.Address, "address", c.Address,
		"status server address")
	for _, name := range []string{"fence-url", "leader-elect-resource-name",
		"leader-elect-resource-namespace", "address"} {
		commandline.Values[string](set, name)
	}
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
	c.ModeSet = c.ModeSet || f.set.Changed("mode")
	if fault := c.check(); fault != nil {
		return fmt.Errorf("--%s: %w", flagName(fault.Field), fault.Err)
	}
	return nil
}
