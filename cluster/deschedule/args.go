package deschedule

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespaces selects namespaces: only those in Include, or all but those in Exclude.
type Namespaces struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// OwnerKinds selects pods by the kinds of their owners: at least one in Include, or none in
// Exclude.
type OwnerKinds struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// Selected holds the pod selection that most strategies have.
type Selected struct {
	Namespaces    *Namespaces           `json:"namespaces,omitempty"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// Thresholds are percentages of the allocatable amount, by resource.
type Thresholds map[v1.ResourceName]float64

// PodLifeTimeArgs are the arguments of PodLifeTime. A pod must match all fields that are set; one
// entry of each list is enough.
type PodLifeTimeArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	OwnerKinds                   *OwnerKinds          `json:"ownerKinds,omitempty"`
	MaxPodLifeTimeSeconds        *uint                `json:"maxPodLifeTimeSeconds,omitempty"`
	States                       []string             `json:"states,omitempty"`
	Conditions                   []PodConditionFilter `json:"conditions,omitempty"`
	ExitCodes                    []int32              `json:"exitCodes,omitempty"`
	IncludingInitContainers      bool                 `json:"includingInitContainers,omitempty"`
	IncludingEphemeralContainers bool                 `json:"includingEphemeralContainers,omitempty"`
}

// PodConditionFilter matches a condition of a pod. An unset field matches any value.
type PodConditionFilter struct {
	Type                              string `json:"type,omitempty"`
	Status                            string `json:"status,omitempty"`
	Reason                            string `json:"reason,omitempty"`
	MinTimeSinceLastTransitionSeconds *uint  `json:"minTimeSinceLastTransitionSeconds,omitempty"`
}

// TooManyRestartsArgs are the arguments of RemovePodsHavingTooManyRestarts.
type TooManyRestartsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	PodRestartThreshold     int32    `json:"podRestartThreshold,omitempty"`
	IncludingInitContainers bool     `json:"includingInitContainers,omitempty"`
	States                  []string `json:"states,omitempty"`
}

// RemoveFailedPodsArgs are the arguments of RemoveFailedPods.
type RemoveFailedPodsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	ExcludeOwnerKinds       []string `json:"excludeOwnerKinds,omitempty"`
	MinPodLifetimeSeconds   *uint    `json:"minPodLifetimeSeconds,omitempty"`
	Reasons                 []string `json:"reasons,omitempty"`
	ExitCodes               []int32  `json:"exitCodes,omitempty"`
	IncludingInitContainers bool     `json:"includingInitContainers,omitempty"`
}

// NodeTaintsArgs are the arguments of RemovePodsViolatingNodeTaints. An entry of the lists is a
// taint's key, or key=value.
type NodeTaintsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	IncludePreferNoSchedule bool     `json:"includePreferNoSchedule,omitempty"`
	ExcludedTaints          []string `json:"excludedTaints,omitempty"`
	IncludedTaints          []string `json:"includedTaints,omitempty"`
}

// The kinds of node affinity that RemovePodsViolatingNodeAffinity knows.
const (
	RequiredAffinity  = "requiredDuringSchedulingIgnoredDuringExecution"
	PreferredAffinity = "preferredDuringSchedulingIgnoredDuringExecution"
)

// NodeAffinityArgs are the arguments of RemovePodsViolatingNodeAffinity.
type NodeAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	NodeAffinityType []string `json:"nodeAffinityType,omitempty"`
}

// AntiAffinityArgs are the arguments of RemovePodsViolatingInterPodAntiAffinity.
type AntiAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`
}

// RemoveDuplicatesArgs are the arguments of RemoveDuplicates.
type RemoveDuplicatesArgs struct {
	metav1.TypeMeta `json:",inline"`

	Namespaces        *Namespaces `json:"namespaces,omitempty"`
	ExcludeOwnerKinds []string    `json:"excludeOwnerKinds,omitempty"`
}

// SpreadArgs are the arguments of RemovePodsViolatingTopologySpreadConstraint.
type SpreadArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	Constraints            []v1.UnsatisfiableConstraintAction `json:"constraints,omitempty"`
	TopologyBalanceNodeFit *bool                              `json:"topologyBalanceNodeFit,omitempty"`
}

// LowNodeUtilizationArgs are the arguments of LowNodeUtilization.
type LowNodeUtilizationArgs struct {
	metav1.TypeMeta `json:",inline"`

	UseDeviationThresholds bool                `json:"useDeviationThresholds,omitempty"`
	Thresholds             Thresholds          `json:"thresholds"`
	TargetThresholds       Thresholds          `json:"targetThresholds"`
	NumberOfNodes          int                 `json:"numberOfNodes,omitempty"`
	MetricsUtilization     *MetricsUtilization `json:"metricsUtilization,omitempty"`
	EvictableNamespaces    *Namespaces         `json:"evictableNamespaces,omitempty"`
	EvictionLimits         *EvictionLimits     `json:"evictionLimits,omitempty"`
}

// MetricsUtilization selects the measured usage that thresholds are compared with; nil: requests
// of pods.
type MetricsUtilization struct {
	MetricsServer bool             `json:"metricsServer,omitempty"`
	Source        MetricsSource    `json:"source,omitempty"`
	Prometheus    *PrometheusQuery `json:"prometheus,omitempty"`
}

// PrometheusQuery is a query whose result has a value from 0 to 1 for each node, by the label
// instance.
type PrometheusQuery struct {
	Query string `json:"query,omitempty"`
}

// EvictionLimits limits the evictions of one strategy.
type EvictionLimits struct {
	Node *uint `json:"node,omitempty"`
}

// OnlyThresholdingResources is the only eviction mode: evict only pods that request a resource of
// thresholds.
const OnlyThresholdingResources = "OnlyThresholdingResources"

// HighNodeUtilizationArgs are the arguments of HighNodeUtilization.
type HighNodeUtilizationArgs struct {
	metav1.TypeMeta `json:",inline"`

	Thresholds    Thresholds `json:"thresholds"`
	NumberOfNodes int        `json:"numberOfNodes,omitempty"`
	// MetricsUtilization is an extension of jettison.
	MetricsUtilization  *MetricsUtilization `json:"metricsUtilization,omitempty"`
	EvictionModes       []string            `json:"evictionModes,omitempty"`
	EvictableNamespaces *Namespaces         `json:"evictableNamespaces,omitempty"`
}

// Names of pod protections. The first four are enabled by default, the others are disabled by
// default.
const (
	PodsWithLocalStorage   = "PodsWithLocalStorage"
	SystemCriticalPods     = "SystemCriticalPods"
	FailedBarePods         = "FailedBarePods"
	DaemonSetPods          = "DaemonSetPods"
	PodsWithPVC            = "PodsWithPVC"
	PodsWithoutPDB         = "PodsWithoutPDB"
	PodsWithResourceClaims = "PodsWithResourceClaims"
)

// Values of noEvictionPolicy.
const (
	PreferredNoEviction = "Preferred"
	MandatoryNoEviction = "Mandatory"
)

// DefaultEvictorArgs are the arguments of DefaultEvictor, which decides which pods the strategies
// of a profile may evict.
type DefaultEvictorArgs struct {
	metav1.TypeMeta `json:",inline"`

	NodeSelector           string                `json:"nodeSelector,omitempty"`
	LabelSelector          *metav1.LabelSelector `json:"labelSelector,omitempty"`
	NamespaceLabelSelector *metav1.LabelSelector `json:"namespaceLabelSelector,omitempty"`
	PriorityThreshold      *PriorityThreshold    `json:"priorityThreshold,omitempty"`
	NodeFit                bool                  `json:"nodeFit,omitempty"`
	MinReplicas            uint                  `json:"minReplicas,omitempty"`
	MinPodAge              *metav1.Duration      `json:"minPodAge,omitempty"`
	NoEvictionPolicy       string                `json:"noEvictionPolicy,omitempty"`
	PodProtections         PodProtections        `json:"podProtections,omitzero"`

	// Deprecated fields, replaced by PodProtections.
	EvictLocalStoragePods   bool `json:"evictLocalStoragePods,omitempty"`
	EvictDaemonSetPods      bool `json:"evictDaemonSetPods,omitempty"`
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods,omitempty"`
	IgnorePvcPods           bool `json:"ignorePvcPods,omitempty"`
	IgnorePodsWithoutPDB    bool `json:"ignorePodsWithoutPDB,omitempty"`
	EvictFailedBarePods     bool `json:"evictFailedBarePods,omitempty"`
}

// PriorityThreshold is a priority, or the name of a PriorityClass.
type PriorityThreshold struct {
	Value *int32 `json:"value,omitempty"`
	Name  string `json:"name,omitempty"`
}

// PodProtections enables and disables protections.
type PodProtections struct {
	ExtraEnabled    []string              `json:"extraEnabled,omitempty"`
	DefaultDisabled []string              `json:"defaultDisabled,omitempty"`
	Config          *PodProtectionsConfig `json:"config,omitempty"`
}

// PodProtectionsConfig holds the settings of protections, by their name.
type PodProtectionsConfig struct {
	PodsWithPVC *PodsWithPVCConfig `json:"PodsWithPVC,omitempty"`
}

// PodsWithPVCConfig limits PodsWithPVC to claims of these storage classes; empty: all claims.
type PodsWithPVCConfig struct {
	ProtectedStorageClasses []ProtectedStorageClass `json:"protectedStorageClasses,omitempty"`
}

// ProtectedStorageClass names a storage class.
type ProtectedStorageClass struct {
	Name string `json:"name"`
}

// NewArgs returns a pointer to empty arguments of a plugin; nil: unknown plugin.
func NewArgs(plugin string) any {
	if p, ok := plugins[plugin]; ok {
		return p.args()
	}
	return nil
}
