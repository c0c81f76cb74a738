// Package reclaim plans the reclaim of resources that makes evictions unnecessary: dead containers,
// sandboxes, log directories, images, and the cold memory of running pods.
//
//	look.go            Look: a snapshot of a node
//	policy.go          Policy: the limits and ages for removal
//	plan.go            Plan, its steps, and the planner
//	container.go       dead containers
//	created.go         the creation time of a container, if the runtime does not know it
//	sandbox.go         sandboxes that are not ready
//	logdir.go          log directories of pods
//	leftover.go        other leftovers of pods: links to logs, volumes, and cgroups
//	image.go           unused images
//	imagerecord.go     Records of images
//	imageuse.go        Used: the images in use
//	quiet.go           Quiet: the time since a pod last ran; Phases
//	memory.go          PlanMemory: the pods to reclaim cold memory from
//	memoryneed.go      MemoryNeed: the condition and the amount for proactive reclaim
//	memorygovernor.go  MemoryGovernor: disables proactive reclaim that frees too little
//
// The package is pure. Policy.Plan gets the time and a Look and returns a Plan: for each step the
// object to remove, the order, the reason, and the expected amount. The caller that executes the
// plan checks each step again first. The rules are the kubelet's (v1.37.2:
// pkg/kubelet/kuberuntime/kuberuntime_gc.go, pkg/kubelet/images/image_gc_manager.go) without its
// defects; docs/reference/kubelet-parity.md lists the differences.
package reclaim
