// Package priorities counts the pods of unknown priority and warns about them. The CRI does not
// report priorities, and tenants control labels. Without pod objects, the agent cannot distinguish a
// critical pod outside the protected namespaces, and may evict it before a leaking pod.
//
//	priorities.go  Count; Advice: the sources of priorities
//	part.go        Part: keeps the count for the loop and warns
package priorities

import (
	"fmt"
	"strings"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/output"
	"jettison/stats/read"
)

// Advice is advice for the operator: the sources of priorities.
const Advice = "set staticPodPath to the directory of the static pods' manifests, upgrade the kubelet " +
	"to v1.37 or enable its feature gate PodsAPI in v1.36, or put pod objects on the agent's socket " +
	"with jettison-bridge or another client (docs/reference/socket.md)"

// Count counts the pods of unknown priority among the runtime's pods with a ready sandbox. objects
// are by UID; self is the cgroup of this process, empty: unknown.
func Count(policy *eviction.Policy, pods read.Index, objects map[string]*eviction.Pod,
	self string) (n api.UnknownPriority) {
	n, _ = count(policy, pods, objects, self)
	return n
}

// count also returns the number of pods that are never victims.
func count(
	policy *eviction.Policy, pods read.Index, objects map[string]*eviction.Pod, self string,
) (n api.UnknownPriority, neverVictims int) {
	for uid, p := range pods {
		if !p.Ready() {
			continue
		}
		pod := p.FromRuntime(self)
		priority, protected := policy.PriorityAndProtection(&pod, objects[uid])
		if protected != "" {
			neverVictims++
		}
		if priority.OK {
			continue
		}
		n.Pods++
		if protected == "" {
			n.Unprotected++
		}
	}
	return n, neverVictims
}

// Origins returns the sources of pod objects, which provide priorities.
func Origins(p *api.PodCount) string {
	var out []string
	add := func(n int, source string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s (%s)", source, output.Count(n, "pod")))
		}
	}
	add(p.Kubelet, "the kubelet's local pods API")
	add(p.Objects-p.Clients-p.Kubelet, "static manifests")
	add(p.Clients, "clients of the agent's socket")
	if p.Stale > 0 {
		out[len(out)-1] += ", silent for " + api.StaleAfter.String()
	}
	if len(out) == 0 {
		return "annotations only: no pod objects known"
	}
	return strings.Join(out, ", ")
}

// Text returns a count as text.
func Text(n api.UnknownPriority) string {
	return fmt.Sprintf("pods of unknown priority: %d, not protected otherwise: %d", n.Pods,
		n.Unprotected)
}
