package deschedule

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind identify a policy file.
const (
	APIVersion = "descheduler/v1alpha2"
	Kind       = "DeschedulerPolicy"
)

// Names of the strategies, and of DefaultEvictor, which filters pods for all of them.
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

// Policy is a DeschedulerPolicy of descheduler/v1alpha2 with the fields of 0.36.0, plus
// OwnerPause and SchedulerProfiles.
type Policy struct {
	metav1.TypeMeta `json:",inline"`

	Profiles []Profile `json:"profiles,omitempty"`
	// NodeSelector is a label selector for the nodes that strategies consider.
	NodeSelector                     *string           `json:"nodeSelector,omitempty"`
	MaxNoOfPodsToEvictPerNode        *uint             `json:"maxNoOfPodsToEvictPerNode,omitempty"`
	MaxNoOfPodsToEvictPerNamespace   *uint             `json:"maxNoOfPodsToEvictPerNamespace,omitempty"`
	MaxNoOfPodsToEvictTotal          *uint             `json:"maxNoOfPodsToEvictTotal,omitempty"`
	EvictionFailureEventNotification *bool             `json:"evictionFailureEventNotification,omitempty"`
	MetricsCollector                 *MetricsCollector `json:"metricsCollector,omitempty"`
	MetricsProviders                 []MetricsProvider `json:"metricsProviders,omitempty"`
	// GracePeriodSeconds of evicted pods; nil: each pod's own.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	// OwnerPause is the minimum time between two evictions of pods with the same owner. It is an
	// extension of jettison. nil or 0: no pause.
	OwnerPause *metav1.Duration `json:"ownerPause,omitempty"`
	// SchedulerProfiles are the profiles of the scheduler that differ from its defaults. It is an
	// extension of jettison.
	SchedulerProfiles []SchedulerProfile `json:"schedulerProfiles,omitempty"`
}

// Profile is a set of strategies that share a DefaultEvictor.
type Profile struct {
	Name         string         `json:"name"`
	PluginConfig []PluginConfig `json:"pluginConfig,omitempty"`
	Plugins      Plugins        `json:"plugins"`
}

// PluginConfig holds the arguments of one plugin. Args is a pointer to one of the types in
// args.go.
type PluginConfig struct {
	Name string `json:"name"`
	Args any    `json:"args,omitempty"`
}

// Plugins lists the plugins that a profile enables, by extension point.
type Plugins struct {
	PreSort           PluginSet `json:"presort,omitzero"`
	Sort              PluginSet `json:"sort,omitzero"`
	Deschedule        PluginSet `json:"deschedule,omitzero"`
	Balance           PluginSet `json:"balance,omitzero"`
	Filter            PluginSet `json:"filter,omitzero"`
	PreEvictionFilter PluginSet `json:"preevictionfilter,omitzero"`
}

// PluginSet lists enabled plugins. Disabled is decoded but has no effect, as in 0.36.0.
type PluginSet struct {
	Enabled  []string `json:"enabled,omitempty"`
	Disabled []string `json:"disabled,omitempty"`
}

// MetricsSource is a source of measured usage.
type MetricsSource string

// The metrics sources of 0.36.0.
const (
	KubernetesMetrics MetricsSource = "KubernetesMetrics"
	PrometheusMetrics MetricsSource = "Prometheus"
)

// MetricResource is the resource name of a threshold that is compared with a Prometheus query.
const MetricResource v1.ResourceName = "MetricResource"

// MetricsCollector is the deprecated form of the source KubernetesMetrics.
type MetricsCollector struct {
	Enabled bool `json:"enabled,omitempty"`
}

// MetricsProvider configures one metrics source.
type MetricsProvider struct {
	Source     MetricsSource `json:"source,omitempty"`
	Prometheus *Prometheus   `json:"prometheus,omitempty"`
}

// Prometheus configures a Prometheus server.
type Prometheus struct {
	URL       string     `json:"url,omitempty"`
	AuthToken *AuthToken `json:"authToken,omitempty"`
}

// AuthToken locates the token for Prometheus.
type AuthToken struct {
	SecretReference *SecretReference `json:"secretReference,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// args returns the arguments of a plugin; nil: not in pluginConfig.
func (p *Profile) args(name string) any {
	for i := range p.PluginConfig {
		if p.PluginConfig[i].Name == name {
			return p.PluginConfig[i].Args
		}
	}
	return nil
}

// RequiredMetrics lists the measured values that a policy needs.
type RequiredMetrics struct {
	MetricsAPI bool     // usage from the metrics API
	Agents     bool     // load from the jettison agents
	Queries    []string // Prometheus queries, without duplicates
}

// RequiredMetrics returns the measured values that the enabled strategies need.
func (p *Policy) RequiredMetrics() (out RequiredMetrics) {
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
				out.Agents = out.Agents || isAgentResource(resource)
			}
			switch {
			case by == nil:
			case by.Source == PrometheusMetrics:
				if query := by.Prometheus.Query; !slices.Contains(out.Queries, query) {
					out.Queries = append(out.Queries, query)
				}
			default:
				out.MetricsAPI = true
			}
		}
	}
	return out
}

// Idle reports whether a policy enables no strategy. Such a policy is valid.
func (p *Policy) Idle() bool {
	return !slices.ContainsFunc(p.Profiles, func(p Profile) bool {
		return len(p.Plugins.Deschedule.Enabled)+len(p.Plugins.Balance.Enabled) > 0
	})
}

// Enable adds a strategy with its arguments to a profile, at the extension point of the strategy.
func (p *Profile) Enable(name string, args any) {
	p.PluginConfig = append(p.PluginConfig, PluginConfig{Name: name, Args: args})
	if plugins[name].points&balancePoint != 0 {
		p.Plugins.Balance.Enabled = append(p.Plugins.Balance.Enabled, name)
		return
	}
	p.Plugins.Deschedule.Enabled = append(p.Plugins.Deschedule.Enabled, name)
}
