// Package model is what a scheduler knows of a cluster: where a pod may go, where it likely goes,
// and what a disruption budget lets go. It is a value that is changed in place: pods leave nodes,
// and others take their room. What the API server has checked is not checked again; what cannot be
// read (a selector, a quantity) matches nothing.
//
// The rules are those of kube-scheduler's default plugins
// (k8s.io/kubernetes/pkg/scheduler/framework/plugins, 1.36) that a pod can be refused by: NodeName
// aside, NodeUnschedulable, NodeAffinity, TaintToleration, NodePorts, NodeResourcesFit,
// InterPodAffinity, PodTopologySpread, VolumeBinding and VolumeZone as far as claims and volumes
// are known.
//
//	cluster.go   Cluster, Node, Pod: who is where
//	template.go  what pods of one owner have in common
//	undo.go      back to who was where
//	resources.go what is requested of what there is
//	index.go     pods by their labels and their owners
//	terms.go     affinity between pods
//	spread.go    spread constraints
//	volumes.go   where the volumes of a pod are
//	fit.go       whether a node takes a pod, and why not
//	place.go     which of those that take it a scheduler likes best
//	budget.go    disruption budgets
package model
