// Package api is what the agent tells other programs: the State that its socket serves, the Records
// of evictions that it writes to disk, and a Client for the socket. The agent serves these types,
// and the commands, the tests and other programs read them.
//
//	state.go    State: what the agent knows and does at one moment
//	record.go   Record: one eviction, as the file of records has it
//	outlook.go  Outlook: whom each threshold would have evicted
//	records.go  Client: Records, the last of them; FollowRecords, all that are kept, and what comes
//	client.go   Client: State, PutPods, ReplacePods and DeletePod
//	nodeload.go NodeLoad: the load of a node, as the bridge writes it to the node's Lease
//	admit.go    Client: Admit and Preempt
//	event.go    Event: something that the agent found, decided or did; Client: Events
//	health.go   Client: Health and Ready
//	failure.go  what a Client's errors say, and what to do about it
//
// Fields are only added. A reader ignores those that it does not know.
package api
