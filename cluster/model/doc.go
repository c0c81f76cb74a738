// Package model models a cluster as a scheduler sees it: which nodes a pod fits on, which node it
// likely gets, and which evictions disruption budgets allow. A Cluster is changed in place: pods
// are removed from nodes and others use the freed capacity. The package relies on the validation of
// the API server; an invalid selector or quantity matches nothing.
//
// The rules are those of kube-scheduler's default plugins that can make a pod unschedulable
// (k8s.io/kubernetes/pkg/scheduler/framework/plugins, 1.37), except NodeName: NodeUnschedulable,
// NodeAffinity, TaintToleration, NodePorts, NodeResourcesFit, InterPodAffinity, PodTopologySpread.
// VolumeBinding and VolumeZone apply to the claims and volumes among the objects.
//
//	cluster.go   Cluster, Node, Pod
//	template.go  scheduling terms shared by the pods of an owner
//	undo.go      undoing changes of a cluster
//	resources.go requested and allocatable resources
//	index.go     index of pods by labels and owners
//	terms.go     inter-pod affinity and anti-affinity
//	spread.go    topology spread constraints
//	taints.go    taints of nodes that a pod tolerates
//	volumes.go   nodes that reach the volumes of a pod
//	fit.go       feasibility: whether a pod fits on a node, and why not
//	place.go     the nodes that a scheduler likely chooses
//	score.go     scores of the scheduler's plugins
//	budget.go    disruption budgets
package model
