// Package disk measures what each pod takes of the disks: logs, volumes, writable layers, and the
// files that the kubelet and the runtime keep for it. Loop measures all pods again and again, each
// for a bounded turn, and keeps what it found.
//
//	loop.go    Loop, Options: the round over all pods
//	due.go     which pod is measured next, and when
//	turns.go   how long a pod's turn is; hurry while a disk is short
//	fill.go    what is known, for a Summary
//	status.go  how the loop stands, as a source
//	storage.go one pod: its directories and logs; volumes.go: its volumes; layers.go: its writable
//	           layers
//	files.go   what counts for no limit: files of the kubelet's that containers write to, layers of
//	           containers that have exited
//	keep.go    what stays of the figures before
//
// What is counted without a walk is in package quota, the walk in package walk, and files that no
// walk finds in package openfiles.
package disk
