// Package cri is a client of a container runtime over the CRI (k8s.io/cri-api, runtime v1). It
// lists and inspects pods and stops them. Its types hold only the fields that the agent needs.
// Every call has a deadline. The client has no subscriptions. It reads a streamed list to its end
// or cancels the stream, so that a runtime never waits for the client.
//
//	client.go         Client: dial, lists as streams or as one message
//	connection.go     one socket: error texts, detection of a restarted runtime
//	list.go           Lister: all sandboxes and containers, with cached details
//	listparts.go      lists of containers that exceed one answer
//	ended.go          limit for the listed sandboxes and containers of ended pods
//	largepods.go      lists of sandboxes that exceed one answer; sandboxes of one pod
//	allcontainers.go  all sandboxes and all containers, item by item
//	stream.go         a streamed list, with limits
//	incremental.go    a large list, decoded while it is received
//	exclusive.go      serializes complete lists and large answers
//	prune.go          decodes only the needed fields of an answer
//	prunejson.go      decodes only the needed parts of JSON within answers
//	schema.go         the needed fields of each answer
//	sandbox.go        PodSandbox
//	container.go      Container and its status
//	verbose.go        fields of the verbose status outside the protocol
//	image.go          Image, image file systems, writable layers
//	runtime.go        name, version, conditions, cgroup driver
//	stop.go           stopping containers and sandboxes
//	remove.go         removing containers, sandboxes and images; status of images and sandboxes
//	reopen.go         reopening a container's log
package cri
