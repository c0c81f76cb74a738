// Package disk measures each pod's disk usage: logs, volumes, writable layers, and the files
// that the kubelet and the runtime keep for it. Loop measures all pods repeatedly, each for a
// bounded turn, and keeps the results.
//
//	loop.go      Loop, Options: the round over all pods
//	demand.go    the choice of the next pod, and its time
//	schedule.go  the length of a pod's turn; hurry while a disk is short
//	fill.go      the latest values, for a Summary
//	status.go    the state of the loop, as a source
//	storage.go   one pod: its directories and logs; volumes.go: its volumes; layers.go: its writable
//	             layers; layerquery.go: queries of the runtime for them
//	files.go     usage outside all limits: the kubelet's files that containers write to, layers of
//	             containers that have exited
//	keep.go      values kept from earlier measurements
//
// Package quota reads the file system's own counts, package walk walks directories, and package
// openfiles finds files that no walk finds.
package disk
