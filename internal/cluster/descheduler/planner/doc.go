// Package planner plans evictions from files, and shows plans. What is decided is in
// cluster/deschedule.
//
//	command.go  MigrateCommand: jettison-cluster deschedule migrate
//	offline.go  Offline: policy, objects and time in, a plan out
//	load.go     what the nodes' own agents tell
//	objects.go  the objects of a cluster, as kubectl prints them
//	document.go a plan as data, and how two differ
//	text.go     a plan for people, with nodes before and after
package planner
