// Package read makes a stats.Summary of what the kernel and the container runtime say. What could
// not be read is absent in it, never zero.
//
//	reader.go      Reader: cgroupfs and /proc into a Summary; the cheap look, the memory view
//	node.go        the full look at the node
//	podset.go      the pods of the hierarchy, kept between looks
//	lister.go      who lists and opens them: the kernel may hold that up; beside.go: how long a look
//	               waits for him
//	podlook.go     the files of one pod and its containers
//	blame.go       who in a pod uses its memory, for the words of an eviction
//	below.go       what containers make below their own cgroups, within bounds
//	self.go        which pod this process runs in
//	stallshare.go  the share of time stalled, from totals
//	background.go  Background: what may block, each source on its own
//	filesystems.go the node's file systems, Layout
//	source.go      one source: last answer, age, error
//	toplevel.go    what cgroups at the top of the hierarchy use
//	names.go       what callers need of the packages below
//
// What it is made of lies below, and knows nothing of a Reader: podindex (the runtime's pods and
// what they request), procfs and hostroot (/proc, and the node's directories), disk (what pods take
// of the disks, by way of walk and quota), openfiles (files that no walk finds), mounts and
// network.
//
// What cannot block is read in the caller's goroutine; what may block has one for each source
// (Background), and Fill never waits for it. Where figures differ from the kubelet's: logs and
// volumes count the blocks of their directories, containerfs is measured where the runtime has a
// store of its own for containers, and pods on the host's network have no network figures.
package read
