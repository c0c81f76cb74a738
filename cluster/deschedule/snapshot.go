package deschedule

import (
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// Snapshot is the state of a cluster at one time. Plan never changes its objects.
type Snapshot struct {
	model.Objects
	Budgets         []*policyv1.PodDisruptionBudget
	PriorityClasses []*schedulingv1.PriorityClass
	// NodeUsage and PodUsage are measured usage, by node name and by namespace/name of a pod; nil:
	// none available.
	NodeUsage map[string]v1.ResourceList
	PodUsage  map[string]v1.ResourceList
	// Queried are the answers to Prometheus queries in percent, by query and node name.
	Queried map[string]map[string]int64
	// Agents is the load that jettison agents report, by node name.
	Agents map[string]AgentLoad
	// EvictedFrom is the time of the last known eviction from a node. Plan ignores agent load
	// measured before that time.
	EvictedFrom map[string]time.Time
	// Pending are pods with an eviction in progress in the background, which are not evicted
	// again. true: this process requested the eviction, so it counts against limits.
	Pending map[types.UID]bool
	// Rejected are pods that stay, with the reason: the API server rejected their eviction recently,
	// or the caller knows only part of them.
	Rejected map[types.UID]string
	// Evicted are earlier evictions, for OwnerPause.
	Evicted []PastEviction
	// Moves are earlier evictions by preference or utilization. A move without effect is not
	// repeated for any pod of its owner.
	Moves []PastMove
}

// PastEviction is an earlier eviction of a pod of an owner.
type PastEviction struct {
	Namespace string
	Owner     types.UID
	At        time.Time
}

// Eviction is one planned eviction.
type Eviction struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Node      string    `json:"node"`
	Profile   string    `json:"profile"`
	Strategy  string    `json:"strategy"`
	Reason    string    `json:"reason"`

	// To is the node on which the model places the replacement; empty: no replacement, or no node
	// fits.
	To string `json:"-"`
	// Against lists the values that the decision was weighed against: thresholds, counts, other
	// pods. One line each.
	Against []string `json:"-"`
	// Pod is the object of the snapshot.
	Pod *v1.Pod `json:"-"`
	// Moves is added to the snapshots of later plans if the pod is evicted: it moves by preference
	// or utilization. There is one for each owner.
	Moves []PastMove `json:"-"`
}

// Skip is a pod that a rule kept.
type Skip struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"` // the first rule that kept it
}

// Stop is a strategy that ended early, had nothing to do, or left nodes out.
type Stop struct {
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
	// Continued: the strategy only left out nodes with unknown values.
	Continued bool `json:"-"`
	early     bool // the strategy had more to do
}

// Load is the requested part of a node's allocatable resources, in percent.
type Load map[v1.ResourceName]float64

// Result is a plan.
type Result struct {
	Evictions []Eviction      // in order
	Skipped   []Skip          // by namespace and name
	Stopped   []Stop          // in order, each once
	Warnings  []string        // assumptions of the plan that may be wrong
	Before    map[string]Load // by node
	After     map[string]Load
	// ResultingSnapshot is the cluster after the plan if the scheduler places pods as the model
	// does.
	ResultingSnapshot *Snapshot
}
