// Package cgroup reads and controls a cgroup v2 hierarchy. A root is a value, and a Group refers to
// a cgroup by the file descriptor of its directory. Files are read with pread on kept descriptors
// into reused buffers, and every parser takes bytes. The package never uses package os on cgroup
// files: os.File uses the netpoller, where a file that returns EAGAIN (memory.reclaim) blocks
// forever (os/file_unix.go, newFile).
//
//	fs.go            FS: the root
//	dir.go           Dir: repeated listing of a group's children
//	group.go         Group: descriptor, identity
//	groupinto.go     opening a Group without allocating memory
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
//	limitwrite.go    writing memory.min, low, high and max, pids.max, cpu.weight
//	memorywrite.go   writing memory.min, and notes on a group (extended attributes)
//	remove.go        removing empty groups
//	walk.go          a group and its descendants
//	thread.go        the priority of a thread
//	watch.go         Watcher: waiting for events from the kernel
//	watchadd.go      adding watches: groups, the node's pressure
//	watchtrigger.go  pressure triggers
//	watchslot.go     Wake: the events since the last look
//	watchfile.go     an event descriptor instead of a group, for tests
//	reclaim.go       memory.reclaim
//	reclaimstat.go   reclaimable memory from memory.stat
//	feature.go       features of the kernel, the mount and the node
//	mountinfo.go     mount options of the hierarchy
//	recordtree.go    the files of a recorded tree
//	parse.go         numbers and "key value" lines
package cgroup
