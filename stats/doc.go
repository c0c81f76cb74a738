// Package stats is the vocabulary: a Summary of a node and its pods, named as in the kubelet's
// stats/v1alpha1, and Observations of eviction signals made of one. What could not be read is
// absent in it, never zero. It is a leaf without I/O; package read makes Summaries.
//
//	summary.go    Opt, Range, Summary, NodeStats, PodStats
//	kernel.go     what the kernel tells of a cgroup: PSIStats, MemoryEvents, IOStat, CgroupID
//	fs.go         FsStats, Layout, and what a pod takes of the disks
//	network.go    NetworkStats
//	stamp.go      Stamp: an instant on both clocks
//	source.go     SourceStatus: how a source of a Summary stands
//	signal.go     Signal, Observation, Observe
//	qos.go        QOSClass
//	podcgroup.go  what the name of a pod's cgroup says
//	add.go        SaturatingAdd
package stats
