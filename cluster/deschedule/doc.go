// Package deschedule finds the pods that should not be where they are. Plan takes a policy, what
// the cluster holds and the time, and returns the evictions in order, each with its reason; it
// reads nothing else and waits for nothing. The policy is the descheduler's v1alpha2, and so are
// its strategies and limits (sigs.k8s.io/descheduler 0.36.0); where a plan differs on purpose,
// docs/operate/descheduling.md says so.
//
// A plan is made on a model of the cluster (package model): each evicted pod is thought away, and
// one like it is put where a scheduler would likely put it. So budgets are spent once, limits hold
// across strategies, and a plan is stable: planning again on what it leads to gives nothing.
//
//	policy.go      Policy, profiles, the names of strategies
//	args.go        the arguments of each strategy and of DefaultEvictor
//	validate.go    defaults, and what a policy may not say
//	snapshot.go    Snapshot, Result
//	plan.go        Plan: passes over the strategies until nothing moves
//	rewind.go      a plan that is made anew begins where it differs
//	evict.go       one eviction: limits, budgets, where its successor goes
//	evictor.go     DefaultEvictor: who is protected
//	order.go       who goes first
//	filter.go      namespaces, labels, states: the filters that strategies share
//	podlifetime.go PodLifeTime
//	restarts.go    RemovePodsHavingTooManyRestarts
//	failed.go      RemoveFailedPods
//	taints.go      RemovePodsViolatingNodeTaints
//	nodeaffinity.go RemovePodsViolatingNodeAffinity
//	antiaffinity.go RemovePodsViolatingInterPodAntiAffinity
//	duplicates.go  RemoveDuplicates
//	agentload.go   figures of the nodes' own agents
//	utilization.go what LowNodeUtilization and HighNodeUtilization have in common
//	low.go         LowNodeUtilization
//	high.go        HighNodeUtilization
//	spread.go      RemovePodsViolatingTopologySpreadConstraint
package deschedule
