// Package stats turns readings into a Summary of the node and its pods, named as in the kubelet's stats/v1alpha1, and a
// Summary into Observations of eviction signals. What could not be read is absent in it, never zero.
//
//	summary.go     Summary, NodeStats, PodStats: plain values
//	signal.go      Signal, Observation, Observe
//	collector.go   Collector: cgroupfs and /proc into a Summary
//	pod.go         Pod: what the runtime tells of a pod, from a cri.Listing
//	podcgroup.go   names of pod cgroups, both drivers
//	request.go     memory requests out of oom_score_adj
//	meminfo.go     /proc/meminfo
//	zoneinfo.go    /proc/zoneinfo: what MemAvailable does not count
//	qos.go         QOSClass
package stats
