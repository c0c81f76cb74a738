// Package config is the configuration of jettison-cluster: one YAML file, and flags that go before it.
//
//	config.go  Cluster, its defaults, what is wrong with it
//	load.go    reads a file: each error with its line
//	flags.go   the flags of the same names
package config

import (
	"fmt"
	"time"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
)

// What the file says that it is.
const (
	APIVersion = "jettison/v1alpha1"
	Kind       = "ClusterConfiguration"
)

// Cluster is the configuration. Names and defaults of what kube-controller-manager has flags for are its (1.36.3:
// cmd/kube-controller-manager, pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
type Cluster struct {
	NodeMonitorGracePeriod    time.Duration `yaml:"nodeMonitorGracePeriod"`
	NodeStartupGracePeriod    time.Duration `yaml:"nodeStartupGracePeriod"`
	NodeMonitorPeriod         time.Duration `yaml:"nodeMonitorPeriod"` // replay: a frame is a pass, whatever this is
	NodeEvictionRate          float64       `yaml:"nodeEvictionRate"`
	SecondaryNodeEvictionRate float64       `yaml:"secondaryNodeEvictionRate"`
	LargeClusterSizeThreshold int32         `yaml:"largeClusterSizeThreshold"`
	UnhealthyZoneThreshold    float32       `yaml:"unhealthyZoneThreshold"`

	Doubt             bool    `yaml:"doubt"`
	PressureTaint     string  `yaml:"pressureTaint"`     // prefer, hard or off
	ExcludedNodes     string  `yaml:"excludedNodes"`     // taint or leave
	ControlPlaneNodes string  `yaml:"controlPlaneNodes"` // count or exclude
	PodEvictionRate   float64 `yaml:"podEvictionRate"`   // pods a second, in each zone; 0: no limit
}

// Default is what holds where nothing else is said.
func Default() *Cluster {
	return &Cluster{
		NodeMonitorGracePeriod: 50 * time.Second, NodeStartupGracePeriod: time.Minute, NodeMonitorPeriod: 5 * time.Second,
		NodeEvictionRate: 0.1, SecondaryNodeEvictionRate: 0.01, LargeClusterSizeThreshold: 50, UnhealthyZoneThreshold: 0.55,
		Doubt: true, PressureTaint: string(lifecycle.PressurePrefer), ExcludedNodes: "taint", ControlPlaneNodes: "count",
	}
}

// fieldError is what is wrong with a value.
type fieldError struct{ field, what string }

func (e *fieldError) Error() string { return e.field + ": " + e.what }

// check finds what is wrong with the values, field by field.
func (c *Cluster) check() *fieldError {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"nodeMonitorGracePeriod", c.NodeMonitorGracePeriod}, {"nodeStartupGracePeriod", c.NodeStartupGracePeriod},
		{"nodeMonitorPeriod", c.NodeMonitorPeriod},
	} {
		if d.value <= 0 {
			return &fieldError{d.field, fmt.Sprintf("%v is not above 0: want a duration as 50s", d.value)}
		}
	}
	for _, r := range []struct {
		field string
		value float64
	}{
		{"nodeEvictionRate", c.NodeEvictionRate}, {"secondaryNodeEvictionRate", c.SecondaryNodeEvictionRate},
		{"podEvictionRate", c.PodEvictionRate},
	} {
		if !(r.value >= 0 && r.value <= 1e9) {
			return &fieldError{r.field, fmt.Sprintf("%v is no rate: want 0 or more, a second", r.value)}
		}
	}
	if c.LargeClusterSizeThreshold < 0 {
		return &fieldError{"largeClusterSizeThreshold", fmt.Sprintf("%d is negative: want a number of nodes", c.LargeClusterSizeThreshold)}
	}
	if !(c.UnhealthyZoneThreshold >= 0 && c.UnhealthyZoneThreshold <= 1) {
		return &fieldError{"unhealthyZoneThreshold", fmt.Sprintf("%v is no share: want 0 to 1", c.UnhealthyZoneThreshold)}
	}
	for _, w := range []struct {
		field, value string
		of           [3]string
	}{
		{"pressureTaint", c.PressureTaint, [3]string{"prefer", "hard", "off"}}, {"excludedNodes", c.ExcludedNodes, [3]string{"taint", "leave"}},
		{"controlPlaneNodes", c.ControlPlaneNodes, [3]string{"count", "exclude"}},
	} {
		if w.value == "" || w.value != w.of[0] && w.value != w.of[1] && w.value != w.of[2] {
			return &fieldError{w.field, fmt.Sprintf("%.64q is none of its values: want %s", w.value, anyOf(w.of))}
		}
	}
	return nil
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
		NodeMonitorGracePeriod: c.NodeMonitorGracePeriod, NodeStartupGracePeriod: c.NodeStartupGracePeriod,
		NodeEvictionRate: c.NodeEvictionRate, SecondaryNodeEvictionRate: c.SecondaryNodeEvictionRate,
		LargeClusterSizeThreshold: c.LargeClusterSizeThreshold, UnhealthyZoneThreshold: c.UnhealthyZoneThreshold,
		Doubt: c.Doubt, PressureTaint: lifecycle.PressureTaint(c.PressureTaint),
		LeaveExcluded: c.ExcludedNodes == "leave", ExcludeControlPlane: c.ControlPlaneNodes == "exclude",
	}
}

// Taint is what pods are judged by.
func (c *Cluster) Taint() taint.Config { return taint.Config{PodEvictionRate: c.PodEvictionRate} }
