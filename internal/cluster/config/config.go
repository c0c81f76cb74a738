// Package config is the configuration of jettison-cluster: one YAML file, and flags that go before
// it.
//
//	config.go  Cluster, its defaults, what is wrong with it
//	load.go    reads a file: each error with its line
//	flags.go   the flags of the same names
package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/fence"
	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/base/strict"
	"jettison/internal/cluster/kubeclient"
)

// What the file says that it is.
const (
	APIVersion = "jettison/v1alpha1"
	Kind       = "ClusterConfiguration"
)

// Cluster is the configuration. Names and defaults of what kube-controller-manager has flags for
// are its (1.36.3: cmd/kube-controller-manager,
// pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
type Cluster struct {
	NodeMonitorGracePeriod time.Duration `yaml:"nodeMonitorGracePeriod"`
	NodeStartupGracePeriod time.Duration `yaml:"nodeStartupGracePeriod"`
	// replay: a frame is a pass, whatever this is
	NodeMonitorPeriod         time.Duration `yaml:"nodeMonitorPeriod"`
	NodeEvictionRate          float64       `yaml:"nodeEvictionRate"`
	SecondaryNodeEvictionRate float64       `yaml:"secondaryNodeEvictionRate"`
	LargeClusterSizeThreshold int32         `yaml:"largeClusterSizeThreshold"`
	UnhealthyZoneThreshold    float32       `yaml:"unhealthyZoneThreshold"`

	Doubt             bool    `yaml:"doubt"`
	PressureTaint     string  `yaml:"pressureTaint"`     // prefer, hard or off
	ExcludedNodes     string  `yaml:"excludedNodes"`     // taint or leave
	ControlPlaneNodes string  `yaml:"controlPlaneNodes"` // count or exclude
	PodEvictionRate   float64 `yaml:"podEvictionRate"`   // pods a second, in each zone; 0: no limit

	// What follows does not matter to a replay.

	Mode string `yaml:"mode"` // observe, fence or replace
	// replace begins once no other controller wrote taints for so long
	ReplaceQuiet time.Duration `yaml:"replaceQuiet"`
	RespectPDB   bool          `yaml:"respectPDB"`
	PDBTimeout   time.Duration `yaml:"pdbTimeout"` // after a pod's deadline it is deleted all the same

	// with {node}, {providerID} and {address} filled in
	FenceCommand []string      `yaml:"fenceCommand"`
	FenceURL     string        `yaml:"fenceURL"`   // likewise
	FenceAfter   time.Duration `yaml:"fenceAfter"` // so long after a node became Unknown
	FenceEvery   time.Duration `yaml:"fenceEvery"`
	FenceTimeout time.Duration `yaml:"fenceTimeout"`

	LeaderElect                  bool          `yaml:"leaderElect"`
	LeaderElectLeaseDuration     time.Duration `yaml:"leaderElectLeaseDuration"`
	LeaderElectRenewDeadline     time.Duration `yaml:"leaderElectRenewDeadline"`
	LeaderElectRetryPeriod       time.Duration `yaml:"leaderElectRetryPeriod"`
	LeaderElectResourceName      string        `yaml:"leaderElectResourceName"`
	LeaderElectResourceNamespace string        `yaml:"leaderElectResourceNamespace"`

	KubeAPIQPS   float32 `yaml:"kubeAPIQPS"`
	KubeAPIBurst int32   `yaml:"kubeAPIBurst"`
	// where health, metrics and the status are served; empty: nowhere
	Address string `yaml:"address"`
}

// DefaultAddress is where the status is served, and asked for.
const DefaultAddress = "127.0.0.1:10270"

// Modes.
const (
	Observe = "observe" // nothing is written: it is said what would be
	Fence   = "fence"   // only nodes that a check confirms dead are taken out of service
	Replace = "replace" // it does what kube-controller-manager's two controllers do
)

// Default is what holds where nothing else is said.
func Default() *Cluster {
	return &Cluster{
		NodeMonitorGracePeriod: 50 * time.Second, NodeStartupGracePeriod: time.Minute,
		NodeMonitorPeriod: 5 * time.Second,
		NodeEvictionRate:  0.1, SecondaryNodeEvictionRate: 0.01, LargeClusterSizeThreshold: 50,
		UnhealthyZoneThreshold: 0.55,
		Doubt:                  true, PressureTaint: string(lifecycle.PressurePrefer),
		ExcludedNodes:     "taint",
		ControlPlaneNodes: "count",
		Mode:              Replace, ReplaceQuiet: 5 * time.Minute, PDBTimeout: 5 * time.Minute,
		FenceAfter: time.Minute, FenceEvery: 30 * time.Second, FenceTimeout: 10 * time.Second,
		LeaderElect: true, LeaderElectLeaseDuration: 15 * time.Second,
		LeaderElectRenewDeadline: 10 * time.Second,
		LeaderElectRetryPeriod:   2 * time.Second, LeaderElectResourceName: "jettison-cluster-nodes",
		LeaderElectResourceNamespace: metav1.NamespaceSystem,
		KubeAPIQPS:                   100, KubeAPIBurst: 200, Address: DefaultAddress,
	}
}

// check finds what is wrong with the values, field by field.
func (c *Cluster) check() *strict.FieldError {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"nodeMonitorGracePeriod", c.NodeMonitorGracePeriod},
		{"nodeStartupGracePeriod", c.NodeStartupGracePeriod},
		{"nodeMonitorPeriod", c.NodeMonitorPeriod}, {"replaceQuiet", c.ReplaceQuiet},
		{"pdbTimeout", c.PDBTimeout},
		{"fenceAfter", c.FenceAfter}, {"fenceEvery", c.FenceEvery}, {"fenceTimeout", c.FenceTimeout},
	} {
		if d.value <= 0 {
			return strict.Fault(d.field, fmt.Sprintf("%v is not above 0: want a duration as 50s", d.value))
		}
	}
	for _, r := range []struct {
		field string
		value float64
	}{
		{"nodeEvictionRate", c.NodeEvictionRate},
		{"secondaryNodeEvictionRate", c.SecondaryNodeEvictionRate},
		{"podEvictionRate", c.PodEvictionRate},
	} {
		if !(r.value >= 0 && r.value <= 1e9) {
			return strict.Fault(r.field, fmt.Sprintf("%v is no rate: want 0 or more, a second", r.value))
		}
	}
	if c.LargeClusterSizeThreshold < 0 {
		what := fmt.Sprintf("%d is negative: want a number of nodes", c.LargeClusterSizeThreshold)
		return strict.Fault("largeClusterSizeThreshold", what)
	}
	if !(c.UnhealthyZoneThreshold >= 0 && c.UnhealthyZoneThreshold <= 1) {
		return strict.Fault("unhealthyZoneThreshold", fmt.Sprintf("%v is no share: want 0 to 1",
			c.UnhealthyZoneThreshold))
	}
	for _, w := range []struct {
		field, value string
		of           [3]string
	}{
		{"pressureTaint", c.PressureTaint, [3]string{"prefer", "hard", "off"}},
		{"excludedNodes", c.ExcludedNodes, [3]string{"taint", "leave"}},
		{"controlPlaneNodes", c.ControlPlaneNodes, [3]string{"count", "exclude"}},
		{"mode", c.Mode, [3]string{Observe, Fence, Replace}},
	} {
		if w.value == "" || w.value != w.of[0] && w.value != w.of[1] && w.value != w.of[2] {
			return strict.Fault(w.field, fmt.Sprintf("%.64q is none of its values: want %s", w.value,
				anyOf(w.of)))
		}
	}
	return c.checkProgram()
}

// checkProgram finds what is wrong with what a replay does not need.
func (c *Cluster) checkProgram() *strict.FieldError {
	election := c.Election()
	err := election.Check()
	fenced := len(c.FenceCommand) > 0 || c.FenceURL != ""
	where, wrongURL := url.Parse(c.FenceURL)
	switch {
	case c.LeaderElect && err != nil:
		return strict.Fault("leaderElectLeaseDuration", err.Error())
	case len(c.FenceCommand) > 0 && c.FenceURL != "":
		return strict.Fault("fenceURL", "fenceCommand is set, too: want one of them")
	case c.FenceURL != "" && (wrongURL != nil || where.Scheme != "http" && where.Scheme != "https" ||
		where.Host == ""):
		return strict.Fault("fenceURL", fmt.Sprintf("%.128q: want http://HOST/... or https://HOST/...",
			c.FenceURL))
	case len(c.FenceCommand) > 0 && !filepath.IsAbs(c.FenceCommand[0]):
		return strict.Fault("fenceCommand", fmt.Sprintf("%.128q: want the program's whole path",
			c.FenceCommand[0]))
	case c.Mode == Fence && !fenced:
		return strict.Fault("mode", "fence needs a check: set fenceCommand or fenceURL")
	case !(c.KubeAPIQPS > 0 && c.KubeAPIQPS <= 1e6):
		return strict.Fault("kubeAPIQPS", fmt.Sprintf("%v is no rate: want more than 0, a second",
			c.KubeAPIQPS))
	case c.KubeAPIBurst < 1:
		return strict.Fault("kubeAPIBurst", fmt.Sprintf("%d: want 1 or more", c.KubeAPIBurst))
	}
	if c.Address == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(c.Address); err != nil || port == "" {
		return strict.Fault("address", fmt.Sprintf("%.64q: want HOST:PORT, as %s", c.Address,
			DefaultAddress))
	}
	return nil
}

// Election is by what it is decided which replica acts.
func (c *Cluster) Election() kubeclient.Election {
	return kubeclient.Election{
		Namespace: c.LeaderElectResourceNamespace, Name: c.LeaderElectResourceName,
		LeaseDuration: c.LeaderElectLeaseDuration,
		RenewDeadline: c.LeaderElectRenewDeadline, RetryPeriod: c.LeaderElectRetryPeriod,
	}
}

// Fence is what nodes are taken out of service by; !ok: nothing is.
func (c *Cluster) Fence() (f fence.Config, ok bool) {
	return fence.Config{Delay: c.FenceAfter, RetryPeriod: c.FenceEvery}, len(c.FenceCommand) > 0 ||
		c.FenceURL != ""
}

// Budget is how long disruption budgets are asked after a pod's deadline; 0: they are not.
func (c *Cluster) PDBPeriod() time.Duration {
	if !c.RespectPDB {
		return 0
	}
	return c.PDBTimeout
}

func anyOf(words [3]string) string {
	if words[2] == "" {
		return words[0] + " or " + words[1]
	}
	return words[0] + ", " + words[1] + " or " + words[2]
}

// Lifecycle is what the nodes are judged by.
func (c *Cluster) Lifecycle() lifecycle.Config {
	return lifecycle.Config{
		NodeMonitorGracePeriod:    c.NodeMonitorGracePeriod,
		NodeStartupGracePeriod:    c.NodeStartupGracePeriod,
		NodeEvictionRate:          c.NodeEvictionRate,
		SecondaryNodeEvictionRate: c.SecondaryNodeEvictionRate,
		LargeClusterSizeThreshold: c.LargeClusterSizeThreshold,
		UnhealthyZoneThreshold:    c.UnhealthyZoneThreshold,
		Doubt:                     c.Doubt, PressureTaint: lifecycle.PressureTaint(c.PressureTaint),
		SkipExcluded: c.ExcludedNodes == "leave", ExcludeControlPlane: c.ControlPlaneNodes == "exclude",
	}
}

// Taint is what pods are judged by.
func (c *Cluster) Taint() taint.Config { return taint.Config{PodEvictionRate: c.PodEvictionRate} }
