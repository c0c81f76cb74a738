// Package read makes a stats.Summary of what the kernel and the container runtime say. What could not be read is absent in it,
// never zero.
//
//	reader.go      Reader: cgroupfs and /proc into a Summary; the cheap look, the memory view
//	node.go        the full look at the node
//	podset.go      the pods of the hierarchy, kept between looks
//	lister.go      who lists and opens them: the kernel may hold that up; beside.go: how long a look waits for him
//	podlook.go     the files of one pod and its containers
//	blame.go       who in a pod uses its memory, for the words of an eviction
//	below.go       what containers make below their own cgroups, within bounds
//	self.go        which pod this process runs in
//	stallshare.go  the share of time stalled, from totals
//	background.go  Background: what may block, each source on its own
//	source.go      one source: last answer, age, error
//	hostroot.go    the node's root directory as seen from a container
//	statfs.go      file systems, Layout
//	storage.go     what a pod takes of the disks
//	storageloop.go measuring that for all pods, the oldest figures first; storagekeep.go: what stays of the figures before
//	storagefiles.go what counts for no limit: files of the kubelet's that containers write to, layers of containers that have exited
//	walk.go        directory trees, at a bounded share of a core; walkdeep.go: what lies very deep
//	unnamed.go     files without a name that a pod's processes keep; unnamedproc.go: of one process, by /proc;
//	               unnamedmounts.go: by what is mounted; unnamedguard.go: calls that a pod can hold up
//	quota.go       project quotas
//	network.go     interfaces of pods, over netlink
//	pod.go         Pod: what the runtime tells of a pod, from a cri.Listing
//	told.go        Told: a pod by the runtime's word alone
//	podroots.go    where pods' cgroups lie, both drivers
//	podrequest.go  what a pod requests: a range, of its containers; request.go: theirs, out of oom_score_adj and cpu.shares;
//	               asked.go: both, apart from a look
//	toplevel.go    what cgroups at the top of the hierarchy use
//	proc.go        /proc
//	meminfo.go     /proc/meminfo
//	zoneinfo.go    /proc/zoneinfo: what MemAvailable does not count
//
// What cannot block is read in the caller's goroutine; what may block has one for each source (Background), and Fill never waits for it.
// Where figures differ from the kubelet's: logs and volumes count the blocks of their directories, containerfs is measured where the
// runtime has a store of its own for containers, and pods on the host's network have no network figures.
package read
