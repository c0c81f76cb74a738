// Package openfiles finds files without a name: unlinked files that a process of a pod, or a mount,
// keeps. No directory walk finds them. A Finder searches one pod at a time, for a bounded turn.
//
//	finder.go    Finder: the search of a pod, and its bounds
//	processes.go the pod's processes and their order
//	process.go   one process: the descriptors of its threads; threads.go: shared descriptors
//	mapped.go    the files that a process maps, and its program
//	mounted.go   files that a thread has mounted; host.go: files that the host has mounted
//	count.go     whether a file counts, and for which disk
//	kept.go      Kept: the result, with values kept from the previous look
//	guard.go     calls that a pod can block
package openfiles
