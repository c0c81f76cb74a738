package deschedule

import (
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// Snapshot is what a cluster holds at one time. Its objects are read and never changed.
type Snapshot struct {
	model.Objects
	Budgets []*policyv1.PodDisruptionBudget
	Classes []*schedulingv1.PriorityClass
	// NodeUse and PodUse are figures of real use, by the name of a node and by namespace/name of a
	// pod; nil: there are none.
	NodeUse map[string]v1.ResourceList
	PodUse  map[string]v1.ResourceList
	// Queried are the answers to Prometheus queries, in percent: by query, by the name of a node.
	Queried map[string]map[string]int64
	// Agents are what the nodes' own agents tell, by the name of a node.
	Agents map[string]AgentLoad
	// EvictedFrom is when a pod was last evicted from a node, as far as that is known: what agents
	// told before does not count any more.
	EvictedFrom map[string]time.Time
	// Pending are pods whose eviction goes on in the background, and are not evicted again; true: it
	// was asked for, and counts against limits.
	Pending map[types.UID]bool
	// Refused are pods whose eviction the API refused lately, with why: they stay.
	Refused map[types.UID]string
	// Evicted are evictions of before, for the pause between those of one owner.
	Evicted []Past
}

// Past is an eviction that was.
type Past struct {
	Namespace string
	Owner     types.UID
	At        time.Time
}

// Eviction is one that a plan makes.
type Eviction struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Node      string    `json:"node"`
	Profile   string    `json:"profile"`
	Strategy  string    `json:"strategy"`
	Reason    string    `json:"reason"`

	// To is the node that the model puts its successor on; empty: it has none, or none takes it.
	To string `json:"-"`
	// Against are the figures that it was weighed against: thresholds, counts, other pods. One line
	// each.
	Against []string `json:"-"`
	// Pod is the object that it was made of.
	Pod *v1.Pod `json:"-"`
}

// Skip is a pod that a rule kept.
type Skip struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"` // the first rule that kept it
}

// Stop is a strategy that ended before it had looked at everything, or that had nothing to look at.
type Stop struct {
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
}

// Load is how much of what a node has for pods they request, in percent.
type Load map[v1.ResourceName]float64

// Result is a plan.
type Result struct {
	Evictions []Eviction      // in order
	Skipped   []Skip          // by namespace and name
	Stopped   []Stop          // in order, each once
	Before    map[string]Load // by node
	After     map[string]Load
	// Leads is what the plan leads to where a scheduler does what the model does.
	Leads *Snapshot
}
