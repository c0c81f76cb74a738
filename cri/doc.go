// Package cri asks a container runtime about its pods over the CRI (k8s.io/cri-api, runtime v1) and
// has it stop them. Its types hold what the agent needs, and nothing that the protocol merely
// carries along. Every call has a deadline. Nothing is subscribed to, and a list that comes as a
// stream is read to its end or cancelled, so that no runtime ever waits for this client.
//
//	client.go      Client: dial, lists as streams or not
//	connection.go  one socket: errors in words, whether another runtime may be behind it
//	list.go        Lister: all sandboxes and containers, with details remembered
//	parts.go       a list that is too large for one answer
//	ended.go       pods that have ended, of which a list tells no more than fits the memory
//	largepods.go   sandboxes that are too large for one answer, and those of one pod
//	everything.go  all sandboxes and all containers, one by one
//	stream.go      a list that comes as a stream, within bounds
//	arrive.go      a large list, taken while it comes
//	turn.go        lists of everything, and large answers, come one after another
//	thin.go        answers of which only what is taken is decoded
//	thinjson.go    likewise, JSON within them
//	taken.go       what is taken of which answer
//	sandbox.go     PodSandbox
//	container.go   Container, its status
//	verbose.go     what the verbose status says beyond the protocol
//	image.go       Image, image file systems, writable layers
//	runtime.go     name, version, conditions, cgroup driver
//	stop.go        stopping containers and sandboxes
//	remove.go      removing containers, sandboxes and images; what the runtime itself keeps
//	reopen.go      reopening a container's log
package cri
