// Package cgroup reads and acts on a cgroup v2 hierarchy directly: a root is a value, a Group is
// held by the file descriptor of its directory, files are read with pread on kept descriptors into
// reused buffers, and every parser takes bytes. It never uses package os on cgroup files: those
// would go to the netpoller, where a file that answers EAGAIN (memory.reclaim) blocks for ever
// (os/file_unix.go, newFile).
//
//	fs.go            FS: the root
//	dir.go           Dir: the groups below one, listed again and again
//	group.go         Group: descriptor, identity
//	groupinto.go     a Group opened where no memory may be asked for
//	read.go          reading and writing a group's files
//	memory.go        memory.current, memory.stat, memory.events, the limits, swap
//	memorydetail.go  more of memory.stat than the hot path reads
//	cpu.go           cpu.stat's usage, cpu.weight, cpu.max
//	io.go            io.stat, summed over all devices
//	pids.go          pids.current
//	psi.go           cpu.pressure, memory.pressure, io.pressure
//	events.go        cgroup.events, waiting until a group is empty
//	procs.go         cgroup.procs
//	kill.go          cgroup.kill
//	killprocs.go     killing process by process
//	pidfd.go         process descriptors: signals, reaping memory
//	cpuwrite.go      cpu.max, cpu.weight, cpu.idle as they are written
//	limitwrite.go    memory.min, low, high and max, pids.max, cpu.weight as they are written
//	memorywrite.go   memory.min as it is written, and notes on a group (extended attributes)
//	remove.go        removing empty groups
//	walk.go          a group and all below it
//	thread.go        the priority of a thread
//	watch.go         Watcher: waiting for all that the kernel tells by itself
//	watchadd.go      what it watches: groups, the node's pressure
//	watchtrigger.go  pressure triggers
//	watchslot.go     Wake: what happened since the last look
//	watchfile.go     an event descriptor in the place of a group, for tests
//	reclaim.go       memory.reclaim
//	reclaimstat.go   what memory.stat tells of what could be reclaimed
//	feature.go       what the kernel, the mount and the node can do
//	mountinfo.go     how the hierarchy is mounted
//	recordtree.go    what a recorded tree is made of
//	parse.go         numbers and "key value" lines
package cgroup
