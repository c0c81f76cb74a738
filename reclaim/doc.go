// Package reclaim plans what can be given back before a pod has to go: dead containers, sandboxes, log directories and images, and the
// cold memory of pods that stay (memory.go; memorygovernor.go says whether it pays).
//
// Everything here is pure: Policy.Plan takes the time and what was seen, and returns a Plan, a value that says for each step what
// is removed, in which order, why, and how much that should free. Whoever carries it out checks each step again first. The rules
// are the kubelet's (v1.36.3: pkg/kubelet/kuberuntime/kuberuntime_gc.go, pkg/kubelet/images/image_gc_manager.go), without its
// defects; docs/reference/kubelet-parity.md lists the differences.
package reclaim
