// Package config reads the configuration of jettison-cluster nodes: one YAML file, and flags that
// override it.
//
//	config.go  Cluster, its defaults and validation
//	load.go    reads a file; errors name the line
//	flags.go   flags for the fields
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

// The apiVersion and kind of the file.
const (
	APIVersion = "jettison/v1alpha1"
	Kind       = "ClusterConfiguration"
)

// Cluster is the configuration. Fields with a flag of kube-controller-manager have its name and
// default (1.37.2: cmd/kube-controller-manager,
// pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
type Cluster struct {
	NodeMonitorGracePeriod time.Duration `yaml:"nodeMonitorGracePeriod"`
	NodeStartupGracePeriod time.Duration `yaml:"nodeStartupGracePeriod"`
	// NodeMonitorPeriod has no effect. It exists because kube-controller-manager has its flag.
	NodeMonitorPeriod         time.Duration `yaml:"nodeMonitorPeriod"`
	NodeEvictionRate          float64       `yaml:"nodeEvictionRate"`
	SecondaryNodeEvictionRate float64       `yaml:"secondaryNodeEvictionRate"`
	LargeClusterSizeThreshold int32         `yaml:"largeClusterSizeThreshold"`
	UnhealthyZoneThreshold    float32       `yaml:"unhealthyZoneThreshold"`

	Doubt             bool   `yaml:"doubt"`
	PressureTaint     string `yaml:"pressureTaint"`     // prefer, hard or off
	ExcludedNodes     string `yaml:"excludedNodes"`     // taint or leave
	ControlPlaneNodes string `yaml:"controlPlaneNodes"` // count or exclude
	// pods per second in each zone; 0: no limit
	PodEvictionRate float64 `yaml:"podEvictionRate"`

	// A replay ignores the fields below.

	Mode    string `yaml:"mode"` // observe, fence or replace
	ModeSet bool   `yaml:"-"`    // by the file or the flag; false: Mode is the default
	// kube-controller-manager's two controllers are off; needed where its pod cannot be read
	OthersDisabled bool `yaml:"othersDisabled"`
	// replace starts after this time without taint writes by another controller
	ReplaceQuiet time.Duration `yaml:"replaceQuiet"`
	RespectPDB   bool          `yaml:"respectPDB"`
	// a pod is deleted despite its budgets at this time after its deadline
	PDBTimeout time.Duration `yaml:"pdbTimeout"`

	// the placeholders {node}, {providerID} and {address} are replaced
	FenceCommand []string `yaml:"fenceCommand"`
	FenceURL     string   `yaml:"fenceURL"` // with the same placeholders
	// from the transition to Unknown to the first check
	FenceAfter    time.Duration `yaml:"fenceAfter"`
	FenceEvery    time.Duration `yaml:"fenceEvery"`
	FenceInterval time.Duration `yaml:"fenceInterval"` // between two fenced nodes
	FenceTimeout  time.Duration `yaml:"fenceTimeout"`

	LeaderElect                  bool          `yaml:"leaderElect"`
	LeaderElectLeaseDuration     time.Duration `yaml:"leaderElectLeaseDuration"`
	LeaderElectRenewDeadline     time.Duration `yaml:"leaderElectRenewDeadline"`
	LeaderElectRetryPeriod       time.Duration `yaml:"leaderElectRetryPeriod"`
	LeaderElectResourceName      string        `yaml:"leaderElectResourceName"`
	LeaderElectResourceNamespace string        `yaml:"leaderElectResourceNamespace"`

	KubeAPIQPS   float32 `yaml:"kubeAPIQPS"`
	KubeAPIBurst int32   `yaml:"kubeAPIBurst"`
	// for health, metrics and status; empty: no server
	Address string `yaml:"address"`
}

// DefaultAddress is the default address of the status server.
const DefaultAddress = "127.0.0.1:10270"

// Values of Mode.
const (
	Observe = "observe" // write nothing, log planned writes
	Fence   = "fence"   // only take nodes out of service, after a check confirmed them dead
	Replace = "replace" // do the work of kube-controller-manager's two controllers
)

// Default returns the default configuration.
func Default() *Cluster {
	return &Cluster{
		NodeMonitorGracePeriod: 50 * time.Second, NodeStartupGracePeriod: time.Minute,
		NodeMonitorPeriod: 5 * time.Second,
		NodeEvictionRate:  0.1, SecondaryNodeEvictionRate: 0.01, LargeClusterSizeThreshold: 50,
		UnhealthyZoneThreshold: 0.55,
		Doubt:                  true, PressureTaint: string(lifecycle.PressurePrefer),
		ExcludedNodes:     "taint",
		ControlPlaneNodes: "count",
		Mode:              Observe, ReplaceQuiet: 5 * time.Minute, PDBTimeout: 5 * time.Minute,
		FenceAfter: time.Minute, FenceEvery: 30 * time.Second, FenceInterval: time.Minute,
		FenceTimeout: 10 * time.Second,
		LeaderElect:  true, LeaderElectLeaseDuration: 15 * time.Second,
		LeaderElectRenewDeadline: 10 * time.Second,
		LeaderElectRetryPeriod:   2 * time.Second, LeaderElectResourceName: "jettison-cluster-nodes",
		LeaderElectResourceNamespace: metav1.NamespaceSystem,
		KubeAPIQPS:                   100, KubeAPIBurst: 200, Address: DefaultAddress,
	}
}

// check validates the values and returns the first fault.
func (c *Cluster) check() *strict.FieldError {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"nodeMonitorGracePeriod", c.NodeMonitorGracePeriod},
		{"nodeStartupGracePeriod", c.NodeStartupGracePeriod},
		{"nodeMonitorPeriod", c.NodeMonitorPeriod}, {"replaceQuiet", c.ReplaceQuiet},
		{"pdbTimeout", c.PDBTimeout},
		{"fenceAfter", c.FenceAfter}, {"fenceEvery", c.FenceEvery},
		{"fenceInterval", c.FenceInterval}, {"fenceTimeout", c.FenceTimeout},
	} {
		if d.value <= 0 {
			return strict.NewFieldError(d.field, fmt.Sprintf("%v is not above 0: want a duration such as 50s", d.value))
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
			return strict.NewFieldError(r.field, fmt.Sprintf("%v is not a rate: want 0 or more per second", r.value))
		}
	}
	if c.LargeClusterSizeThreshold < 0 {
		what := fmt.Sprintf("%d is negative: want a number of nodes", c.LargeClusterSizeThreshold)
		return strict.NewFieldError("largeClusterSizeThreshold", what)
	}
	if !(c.UnhealthyZoneThreshold >= 0 && c.UnhealthyZoneThreshold <= 1) {
		return strict.NewFieldError("unhealthyZoneThreshold", fmt.Sprintf("%v is not a share: want 0 to 1",
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
			return strict.NewFieldError(w.field, fmt.Sprintf("unknown value %.64q: want %s", w.value,
				anyOf(w.of)))
		}
	}
	return c.checkProgram()
}

// checkProgram validates the fields that a replay ignores.
func (c *Cluster) checkProgram() *strict.FieldError {
	if c.LeaderElectResourceName == "" {
		return strict.NewFieldError("leaderElectResourceName", "empty: want the name of a Lease")
	}
	if c.LeaderElectResourceNamespace == "" {
		return strict.NewFieldError("leaderElectResourceNamespace", "empty: want the Lease's namespace")
	}
	election := c.Election()
	err := election.Check()
	fenced := len(c.FenceCommand) > 0 || c.FenceURL != ""
	target, urlErr := url.Parse(c.FenceURL)
	switch {
	case c.LeaderElect && err != nil:
		return strict.NewFieldError("leaderElectLeaseDuration", err.Error())
	case len(c.FenceCommand) > 0 && c.FenceURL != "":
		return strict.NewFieldError("fenceURL", "fenceCommand is also set: set only one of them")
	case c.FenceURL != "" && (urlErr != nil || target.Scheme != "http" && target.Scheme != "https" ||
		target.Host == ""):
		return strict.NewFieldError("fenceURL", fmt.Sprintf("%.128q: want http://HOST/... or https://HOST/...",
			c.FenceURL))
	case len(c.FenceCommand) > 0 && !filepath.IsAbs(c.FenceCommand[0]):
		return strict.NewFieldError("fenceCommand", fmt.Sprintf("%.128q: want the absolute path of the program",
			c.FenceCommand[0]))
	case c.Mode == Fence && !fenced:
		return strict.NewFieldError("mode", "fence needs a check: set fenceCommand or fenceURL")
	case fenced && c.FenceTimeout > c.FenceAfter:
		// a check must not take longer than the silence that it confirms
		return strict.NewFieldError("fenceTimeout", fmt.Sprintf("%v is above fenceAfter, %v: want at most that",
			c.FenceTimeout, c.FenceAfter))
	case !(c.KubeAPIQPS > 0 && c.KubeAPIQPS <= 1e6):
		return strict.NewFieldError("kubeAPIQPS", fmt.Sprintf("%v is not a rate: want more than 0 per second",
			c.KubeAPIQPS))
	case c.KubeAPIBurst < 1:
		return strict.NewFieldError("kubeAPIBurst", fmt.Sprintf("%d: want 1 or more", c.KubeAPIBurst))
	}
	if c.Address == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(c.Address); err != nil || port == "" {
		return strict.NewFieldError("address", fmt.Sprintf("%.64q: want HOST:PORT, such as %s", c.Address,
			DefaultAddress))
	}
	return nil
}

// Election returns the settings of leader election.
func (c *Cluster) Election() kubeclient.Election {
	return kubeclient.Election{
		Namespace: c.LeaderElectResourceNamespace, Name: c.LeaderElectResourceName,
		LeaseDuration: c.LeaderElectLeaseDuration,
		RenewDeadline: c.LeaderElectRenewDeadline, RetryPeriod: c.LeaderElectRetryPeriod,
	}
}

// Fence returns the settings of fencing; ok is false if no check is configured.
func (c *Cluster) Fence() (f fence.Config, ok bool) {
	f = fence.Config{Delay: c.FenceAfter, RetryPeriod: c.FenceEvery, Interval: c.FenceInterval}
	return f, len(c.FenceCommand) > 0 || c.FenceURL != ""
}

// PDBPeriod returns how long after a pod's deadline disruption budgets are respected; 0: not at
// all.
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

// Lifecycle returns the settings of package lifecycle.
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

// Taint returns the settings of package taint.
func (c *Cluster) Taint() taint.Config { return taint.Config{PodEvictionRate: c.PodEvictionRate} }
