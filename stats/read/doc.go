// Package read makes a stats.Summary from the kernel and the container runtime. A value that
// could not be read is absent, never zero.
//
//	reader.go       Reader: cgroupfs and /proc into a Summary; the cheap look, the memory view
//	node.go         the full look at the node
//	podset.go       the pods of the hierarchy, kept between looks
//	lister.go       the thread that lists and opens cgroups, which the kernel may block
//	listclient.go   requests to the lister, and the limits of a look's wait for it
//	podlook.go      the files of one pod and its containers
//	outside.go      OutsideFinder: containers outside their pods' cgroups
//	processmeter.go memory of processes in shared cgroups
//	blame.go        memory use of a pod's containers, for eviction messages
//	groupbudget.go  cgroups that containers create below their own, within bounds
//	self.go         the pod that this process runs in
//	stallshare.go   the share of time stalled, from totals
//	background.go   Background: sources that may block, each in its own goroutine
//	filesystems.go  the node's file systems, Layout
//	arc.go          ZFS' cache, on a goroutine of its own
//	source.go       one source: last answer, age, error
//	toplevel.go     memory use of the cgroups at the top of the hierarchy
//	names.go        names for types of the packages below that callers need
//
// The packages below do not depend on Reader: podindex (the runtime's pods and their requests),
// procfs and hostroot (/proc, and the node's directories), disk (pods' disk usage, with walk and
// quota), openfiles (files that no walk finds), mounts and network.
//
// Sources that cannot block are read in the caller's goroutine. Each source that may block has its
// own goroutine (Background), and Fill never waits for it. The values differ from the kubelet's in
// these points: the usage of logs and volumes includes the blocks of their directories, containerfs
// is measured if the runtime has a separate store for containers, and pods on the host's network
// have no network values.
package read
