// Package verdict decides what a cluster's API has to be told: of an eviction by its record and its
// pod, of the node and of its load by the agent's state. Records, pods and states go in, and
// patches and events come out. It is pure.
//
//	judge.go     Judge: what is due for a record, by what the API says of its pod
//	endedpod.go  what is due for a pod that has ended
//	patch.go      Patch: what of a pod's status is written for it
//	event.go      the events of a record
//	finding.go    events of what else the agent found
//	name.go       names of events, by which nothing is said twice; when a record began, by its ID
//	condition.go  conditions of the node
//	load.go       what is told of the node's load
package verdict
