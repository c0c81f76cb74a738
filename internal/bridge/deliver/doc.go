// Package deliver carries evictions from an agent's records to a cluster's API, in order, none lost and none twice. It keeps nothing: the
// records are the queue, and what the API says of a pod is how far it has come.
//
//	deliver.go  Deliverer: the loop
//	follow.go   the records, as the agent tells them
//	entry.go    one record, and how far it has come
//	status.go   what of an entry is written to its pod's status
//	beside.go   writes that are not waited for
//	events.go   the events of an entry
package deliver
