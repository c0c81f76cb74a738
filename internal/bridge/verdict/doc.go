// Package verdict decides on the bridge's writes to the Kubernetes API: for an eviction from its
// record and its pod, for the node and its load from the agent's state. It is pure: records, pods
// and states go in, patches and events come out.
//
//	podstatus.go  Judge: the action that is due for a record, given its pod
//	endedpod.go   the action that is due for a pod that has ended
//	patch.go      Patch: the patch of the pod's status
//	event.go      the events of a record
//	finding.go    events of other findings of the agent
//	name.go       names of events, which make them unique; the start time in a record's ID
//	condition.go  conditions of the node
//	load.go       the node's load
package verdict
