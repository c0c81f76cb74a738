package deschedule

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespaces are those that a strategy is for: some, or all but some.
type Namespaces struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// OwnerKinds are kinds of owners that pods have to have one of, or none of.
type OwnerKinds struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// Selected is what most strategies have: whom they look at.
type Selected struct {
	Namespaces    *Namespaces           `json:"namespaces,omitempty"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// Thresholds are percents of what is allocatable, by resource.
type Thresholds map[v1.ResourceName]float64

// PodLifeTimeArgs: all fields that are set have to match, one entry of each is enough.
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

// PodConditionFilter matches a condition of a pod; what is not set matches any.
type PodConditionFilter struct {
	Type                              string `json:"type,omitempty"`
	Status                            string `json:"status,omitempty"`
	Reason                            string `json:"reason,omitempty"`
	MinTimeSinceLastTransitionSeconds *uint  `json:"minTimeSinceLastTransitionSeconds,omitempty"`
}

// TooManyRestartsArgs are those of RemovePodsHavingTooManyRestarts.
type TooManyRestartsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	PodRestartThreshold     int32    `json:"podRestartThreshold,omitempty"`
	IncludingInitContainers bool     `json:"includingInitContainers,omitempty"`
	States                  []string `json:"states,omitempty"`
}

// RemoveFailedPodsArgs are those of RemoveFailedPods.
type RemoveFailedPodsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	ExcludeOwnerKinds       []string `json:"excludeOwnerKinds,omitempty"`
	MinPodLifetimeSeconds   *uint    `json:"minPodLifetimeSeconds,omitempty"`
	Reasons                 []string `json:"reasons,omitempty"`
	ExitCodes               []int32  `json:"exitCodes,omitempty"`
	IncludingInitContainers bool     `json:"includingInitContainers,omitempty"`
}

// NodeTaintsArgs are those of RemovePodsViolatingNodeTaints. A taint is named by its key, or by
// key=value.
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

// NodeAffinityArgs are those of RemovePodsViolatingNodeAffinity.
type NodeAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	NodeAffinityType []string `json:"nodeAffinityType,omitempty"`
}

// AntiAffinityArgs are those of RemovePodsViolatingInterPodAntiAffinity.
type AntiAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`
}

// RemoveDuplicatesArgs are those of RemoveDuplicates.
type RemoveDuplicatesArgs struct {
	metav1.TypeMeta `json:",inline"`

	Namespaces        *Namespaces `json:"namespaces,omitempty"`
	ExcludeOwnerKinds []string    `json:"excludeOwnerKinds,omitempty"`
}

// SpreadArgs are those of RemovePodsViolatingTopologySpreadConstraint.
type SpreadArgs struct {
	metav1.TypeMeta `json:",inline"`
	Selected        `json:",inline"`

	Constraints            []v1.UnsatisfiableConstraintAction `json:"constraints,omitempty"`
	TopologyBalanceNodeFit *bool                              `json:"topologyBalanceNodeFit,omitempty"`
}

// LowNodeUtilizationArgs are those of LowNodeUtilization.
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

// MetricsUtilization says by which figures nodes are judged; nil: by requests.
type MetricsUtilization struct {
	MetricsServer bool             `json:"metricsServer,omitempty"`
	Source        MetricsSource    `json:"source,omitempty"`
	Prometheus    *PrometheusQuery `json:"prometheus,omitempty"`
}

// PrometheusQuery gives a number from 0 to 1 for each node, by its label instance.
type PrometheusQuery struct {
	Query string `json:"query,omitempty"`
}

// EvictionLimits of one strategy.
type EvictionLimits struct {
	Node *uint `json:"node,omitempty"`
}

// OnlyThresholdingResources is the one eviction mode.
const OnlyThresholdingResources = "OnlyThresholdingResources"

// HighNodeUtilizationArgs are those of HighNodeUtilization.
type HighNodeUtilizationArgs struct {
	metav1.TypeMeta `json:",inline"`

	Thresholds    Thresholds `json:"thresholds"`
	NumberOfNodes int        `json:"numberOfNodes,omitempty"`
	// MetricsUtilization is this project's own here.
	MetricsUtilization  *MetricsUtilization `json:"metricsUtilization,omitempty"`
	EvictionModes       []string            `json:"evictionModes,omitempty"`
	EvictableNamespaces *Namespaces         `json:"evictableNamespaces,omitempty"`
}

// The protections of pods: the first four hold unless they are disabled, the others where they are
// enabled.
const (
	PodsWithLocalStorage   = "PodsWithLocalStorage"
	SystemCriticalPods     = "SystemCriticalPods"
	FailedBarePods         = "FailedBarePods"
	DaemonSetPods          = "DaemonSetPods"
	PodsWithPVC            = "PodsWithPVC"
	PodsWithoutPDB         = "PodsWithoutPDB"
	PodsWithResourceClaims = "PodsWithResourceClaims"
)

// What noEvictionPolicy may be.
const (
	PreferredNoEviction = "Preferred"
	MandatoryNoEviction = "Mandatory"
)

// DefaultEvictorArgs say whom no strategy of a profile evicts.
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

	// The older words for PodProtections.
	EvictLocalStoragePods   bool `json:"evictLocalStoragePods,omitempty"`
	EvictDaemonSetPods      bool `json:"evictDaemonSetPods,omitempty"`
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods,omitempty"`
	IgnorePvcPods           bool `json:"ignorePvcPods,omitempty"`
	IgnorePodsWithoutPDB    bool `json:"ignorePodsWithoutPDB,omitempty"`
	EvictFailedBarePods     bool `json:"evictFailedBarePods,omitempty"`
}

// PriorityThreshold is a priority, or the name of a class that has one.
type PriorityThreshold struct {
	Value *int32 `json:"value,omitempty"`
	Name  string `json:"name,omitempty"`
}

// PodProtections change which protections hold.
type PodProtections struct {
	ExtraEnabled    []string              `json:"extraEnabled,omitempty"`
	DefaultDisabled []string              `json:"defaultDisabled,omitempty"`
	Config          *PodProtectionsConfig `json:"config,omitempty"`
}

// PodProtectionsConfig is what a protection of its name wants to know.
type PodProtectionsConfig struct {
	PodsWithPVC *PodsWithPVCConfig `json:"PodsWithPVC,omitempty"`
}

// PodsWithPVCConfig: only pods with claims of these storage classes are protected; none: all with
// claims.
type PodsWithPVCConfig struct {
	ProtectedStorageClasses []ProtectedStorageClass `json:"protectedStorageClasses,omitempty"`
}

// ProtectedStorageClass is a storage class by its name.
type ProtectedStorageClass struct {
	Name string `json:"name"`
}

// NewArgs is a pointer to the empty arguments of a plugin; nil: there is none of that name.
func NewArgs(plugin string) any {
	if p, ok := plugins[plugin]; ok {
		return p.args()
	}
	return nil
}
