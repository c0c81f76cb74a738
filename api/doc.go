// Package api defines the interface of the agent for other programs: the State that its socket
// serves, the Records of evictions that it writes to disk, and a Client for the socket. The agent
// serves these types. The commands, the tests and other programs read them.
//
//	state.go    State: a snapshot of the agent
//	record.go   Record: one eviction, as stored in the file of records
//	outlook.go  Outlook: the pods that each threshold would evict
//	records.go  Client: Records, the latest; FollowRecords, stored and new records
//	client.go   Client: State, PutPods, ReplacePods and DeletePod
//	nodeload.go NodeLoad: the load of a node, as the bridge writes it to the node's Lease
//	admit.go    Client: Admit and Preempt
//	event.go    Event: a line of the agent's log; Client: Events
//	health.go   Client: Health and Ready
//	failure.go  the errors of a Client
//
// New versions only add fields. A reader ignores fields that it does not know.
package api
