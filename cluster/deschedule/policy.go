package deschedule

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind of a policy.
const (
	APIVersion = "descheduler/v1alpha2"
	Kind       = "DeschedulerPolicy"
)

// The strategies, and the evictor that filters for all of them.
const (
	RemoveDuplicates         = "RemoveDuplicates"
	LowNodeUtilization       = "LowNodeUtilization"
	HighNodeUtilization      = "HighNodeUtilization"
	InterPodAntiAffinity     = "RemovePodsViolatingInterPodAntiAffinity"
	NodeAffinity             = "RemovePodsViolatingNodeAffinity"
	NodeTaints               = "RemovePodsViolatingNodeTaints"
	TopologySpreadConstraint = "RemovePodsViolatingTopologySpreadConstraint"
	TooManyRestarts          = "RemovePodsHavingTooManyRestarts"
	PodLifeTime              = "PodLifeTime"
	RemoveFailedPods         = "RemoveFailedPods"
	DefaultEvictor           = "DefaultEvictor"
)

// Policy is a DeschedulerPolicy of descheduler/v1alpha2, field by field as 0.36.0 has it, and
// OwnerPause.
type Policy struct {
	metav1.TypeMeta `json:",inline"`

	Profiles []Profile `json:"profiles,omitempty"`
	// NodeSelector is a label selector: the nodes whose pods are looked at.
	NodeSelector                     *string           `json:"nodeSelector,omitempty"`
	MaxNoOfPodsToEvictPerNode        *uint             `json:"maxNoOfPodsToEvictPerNode,omitempty"`
	MaxNoOfPodsToEvictPerNamespace   *uint             `json:"maxNoOfPodsToEvictPerNamespace,omitempty"`
	MaxNoOfPodsToEvictTotal          *uint             `json:"maxNoOfPodsToEvictTotal,omitempty"`
	EvictionFailureEventNotification *bool             `json:"evictionFailureEventNotification,omitempty"`
	MetricsCollector                 *MetricsCollector `json:"metricsCollector,omitempty"`
	MetricsProviders                 []MetricsProvider `json:"metricsProviders,omitempty"`
	// GracePeriodSeconds of evicted pods; nil: their own.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	// OwnerPause is this project's own: how long after one of an owner's pods was evicted none of its
	// others is. nil or 0: no pause.
	OwnerPause *metav1.Duration `json:"ownerPause,omitempty"`
}

// Profile is strategies that share a DefaultEvictor.
type Profile struct {
	Name         string         `json:"name"`
	PluginConfig []PluginConfig `json:"pluginConfig,omitempty"`
	Plugins      Plugins        `json:"plugins"`
}

// PluginConfig is the arguments of one plugin: a pointer to one of the types of args.go, by its
// name.
type PluginConfig struct {
	Name string `json:"name"`
	Args any    `json:"args,omitempty"`
}

// Plugins are what a profile enables, by extension point.
type Plugins struct {
	PreSort           PluginSet `json:"presort,omitzero"`
	Sort              PluginSet `json:"sort,omitzero"`
	Deschedule        PluginSet `json:"deschedule,omitzero"`
	Balance           PluginSet `json:"balance,omitzero"`
	Filter            PluginSet `json:"filter,omitzero"`
	PreEvictionFilter PluginSet `json:"preevictionfilter,omitzero"`
}

// PluginSet is what is enabled. What is disabled is read and has no meaning, as in 0.36.0.
type PluginSet struct {
	Enabled  []string `json:"enabled,omitempty"`
	Disabled []string `json:"disabled,omitempty"`
}

// MetricsSource is where figures of real use come from.
type MetricsSource string

// The sources of 0.36.0.
const (
	KubernetesMetrics MetricsSource = "KubernetesMetrics"
	PrometheusMetrics MetricsSource = "Prometheus"
)

// MetricResource is the one resource of a policy that goes by a Prometheus query.
const MetricResource v1.ResourceName = "MetricResource"

// MetricsCollector is the older way to say KubernetesMetrics.
type MetricsCollector struct {
	Enabled bool `json:"enabled,omitempty"`
}

// MetricsProvider is one source.
type MetricsProvider struct {
	Source     MetricsSource `json:"source,omitempty"`
	Prometheus *Prometheus   `json:"prometheus,omitempty"`
}

// Prometheus is where a Prometheus is.
type Prometheus struct {
	URL       string     `json:"url,omitempty"`
	AuthToken *AuthToken `json:"authToken,omitempty"`
}

// AuthToken is where its token is.
type AuthToken struct {
	SecretReference *SecretReference `json:"secretReference,omitempty"`
}

// SecretReference names a secret.
type SecretReference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// args are those of a plugin; nil: the profile has none.
func (p *Profile) args(name string) any {
	for i := range p.PluginConfig {
		if p.PluginConfig[i].Name == name {
			return p.PluginConfig[i].Args
		}
	}
	return nil
}

// Figures are those of real use that a policy goes by.
type Figures struct {
	API     bool     // the metrics API's
	Agents  bool     // those of the nodes' own agents
	Queries []string // Prometheus', each once
}

// Figures that the enabled strategies go by.
func (p *Policy) Figures() (out Figures) {
	for i := range p.Profiles {
		profile := &p.Profiles[i]
		for _, name := range profile.Plugins.Balance.Enabled {
			var by *MetricsUtilization
			var thresholds Thresholds
			switch a := profile.args(name).(type) {
			case *LowNodeUtilizationArgs:
				by, thresholds = a.MetricsUtilization, a.Thresholds
			case *HighNodeUtilizationArgs:
				by, thresholds = a.MetricsUtilization, a.Thresholds
			}
			for resource := range thresholds {
				out.Agents = out.Agents || ofAgent(resource)
			}
			switch {
			case by == nil:
			case by.Source == PrometheusMetrics:
				if query := by.Prometheus.Query; !slices.Contains(out.Queries, query) {
					out.Queries = append(out.Queries, query)
				}
			default:
				out.API = true
			}
		}
	}
	return out
}

// Idle reports whether a policy enables no strategy. It is a policy all the same.
func (p *Policy) Idle() bool {
	return !slices.ContainsFunc(p.Profiles, func(p Profile) bool {
		return len(p.Plugins.Deschedule.Enabled)+len(p.Plugins.Balance.Enabled) > 0
	})
}

// Enable adds a strategy to a profile, at its extension point.
func (p *Profile) Enable(name string, args any) {
	p.PluginConfig = append(p.PluginConfig, PluginConfig{Name: name, Args: args})
	if plugins[name].points&balancePoint != 0 {
		p.Plugins.Balance.Enabled = append(p.Plugins.Balance.Enabled, name)
		return
	}
	p.Plugins.Deschedule.Enabled = append(p.Plugins.Deschedule.Enabled, name)
}
