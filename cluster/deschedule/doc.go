// Package deschedule plans evictions of pods that would be better placed on other nodes. Plan is a
// pure function of a policy, a snapshot of the cluster and the time; it does no I/O. It returns the
// evictions in order, each with its reason. Policy format, strategies and limits are those of
// descheduler/v1alpha2 (sigs.k8s.io/descheduler 0.36.0). docs/operate/descheduling.md lists the
// intended differences.
//
// Plan works on a model of the cluster (package model). It removes each evicted pod from the model
// and puts its replacement on the node that a scheduler would likely choose. So each disruption
// budget is spent once and limits apply across strategies. A plan is stable: planning again on the
// resulting snapshot evicts nothing.
//
//	policy.go        Policy, profiles, the names of strategies
//	args.go          arguments of each strategy and of DefaultEvictor
//	validate.go      defaults and validation of a policy
//	snapshot.go      Snapshot (input) and Result (output)
//	plan.go          Plan: passes over the strategies until a pass evicts nothing
//	rewind.go        restart of a plan from the first point where it changes
//	evict.go         one eviction: limits, budgets, placement of the replacement
//	scheduler.go     profiles of the scheduler, where it would place a replacement
//	moves.go         earlier moves without effect
//	evictor.go       DefaultEvictor: which pods are protected
//	order.go         eviction order of pods
//	filter.go        filters that strategies share: namespaces, labels, container states
//	podlifetime.go   PodLifeTime
//	restarts.go      RemovePodsHavingTooManyRestarts
//	failed.go        RemoveFailedPods
//	taints.go        RemovePodsViolatingNodeTaints
//	nodeaffinity.go  RemovePodsViolatingNodeAffinity
//	antiaffinity.go  RemovePodsViolatingInterPodAntiAffinity
//	duplicates.go    RemoveDuplicates
//	agentload.go     load that jettison agents report for their nodes
//	utilization.go   code shared by LowNodeUtilization and HighNodeUtilization
//	low.go           LowNodeUtilization
//	high.go          HighNodeUtilization
//	spread.go        RemovePodsViolatingTopologySpreadConstraint
//	spreadenabler.go pods whose move enables that of another one
package deschedule
