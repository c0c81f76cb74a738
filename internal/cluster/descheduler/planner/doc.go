// Package planner makes plans from files with objects of a cluster, and prints plans. The planning
// itself is in cluster/deschedule.
//
//	command.go   MigrateCommand: jettison-cluster deschedule migrate
//	offline.go   Offline: a plan from files of a policy and objects
//	agentload.go load that jettison agents report in Leases
//	objects.go   decoding of objects as kubectl prints them
//	dumps.go     parts of dumps that no plan reads: logs and fields
//	document.go  a plan as data, and the difference of two plans
//	text.go      a plan as text, with the load of nodes before and after
package planner
