// Package openfiles finds files without a name: unlinked, but kept by a process of a pod or by a
// mount. No walk of directories finds them. A Finder looks at one pod at a time, for a bounded
// turn.
//
//	finder.go    Finder: a look at a pod, and its bounds
//	processes.go the pod's processes, in which order they are looked at
//	process.go   one process: the descriptors of its threads; threads.go: which of these share theirs
//	mapped.go    the files that a process maps, and its program
//	mounted.go   files that a thread has mounted; host.go: that the host has
//	count.go     whether a file counts, and for which disk
//	kept.go      Kept: what was found, and what stays of the look before
//	guard.go     calls that a pod can hold up
package openfiles
