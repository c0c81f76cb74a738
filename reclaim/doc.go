// Package reclaim plans what can be given back before a pod has to go: dead containers, sandboxes,
// log directories and images, and the cold memory of pods that stay.
//
//	look.go            Look: what was seen of a node
//	policy.go          Policy: what may go, and when
//	plan.go            Plan, its steps, and how it is made
//	container.go       dead containers
//	sandbox.go         sandboxes that are not ready
//	logdir.go          log directories of pods
//	leftover.go        what pods leave beside: links to logs, and cgroups
//	image.go           unused images
//	imagerecord.go     Records of images
//	imageuse.go        which images are in use
//	quiet.go           Quiet: since when nothing lives in a pod, and what that makes of it
//	memory.go          PlanMemory: which pods to ask for cold memory
//	memoryneed.go      MemoryNeed: when it is worth it, and how much
//	memorygovernor.go  MemoryGovernor: whether it pays
//
// Everything here is pure: Policy.Plan takes the time and what was seen, and returns a Plan, a
// value that says for each step what is removed, in which order, why, and how much that should
// free. The caller that carries it out checks each step again first. The rules are the kubelet's
// (v1.36.3: pkg/kubelet/kuberuntime/kuberuntime_gc.go, pkg/kubelet/images/image_gc_manager.go),
// without its defects; docs/reference/kubelet-parity.md lists the differences.
package reclaim
