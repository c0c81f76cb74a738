// Package stats defines the shared types: a Summary of a node and its pods, named as in the
// kubelet's stats/v1alpha1, and the Observations of eviction signals computed from it. A value
// that could not be read is absent, never zero. The package is a leaf without I/O; package read
// makes Summaries.
//
//	summary.go    Opt, Range, Summary, NodeStats, PodStats
//	kernel.go     kernel counters of a cgroup: PSIStats, MemoryEvents, IOStat, WrittenStats, CgroupID
//	fs.go         FsStats, Layout, and a pod's disk usage
//	network.go    NetworkStats
//	stamp.go      Stamp: an instant on both clocks
//	source.go     SourceStatus: the state of a source of a Summary
//	signal.go     Signal, Observation, Observe
//	qos.go        QOSClass
//	granted.go    Granted: a pod with the resources that its kubelet allocated
//	podcgroup.go  PodCgroup: UID and QoS class from the name of a pod's cgroup
//	outside.go    OutsideContainer: a container outside its pod's cgroup; its usage
//	add.go        SaturatingAdd
package stats
