// Package priorities counts the pods whose priority nobody has told, and says so. The CRI knows no
// priorities, and labels are the tenant's own: without objects a critical pod outside the protected
// namespaces looks like any other, and may go before the one that leaks.
//
//	priorities.go  Count; Ways: how to mend it
//	part.go        Part: the loop's, which keeps the count and warns
package priorities

import (
	"fmt"
	"strings"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats/read"
)

// Ways are how priorities become known.
const Ways = "name the directory of the static pods' manifests (staticPodPath), switch on the " +
	"kubelet's feature gate PodsAPI (v1.36), or " +
	"have a client put pod objects on the agent's socket: one of your own, or a bridge to the " +
	"Kubernetes API (docs/reference/socket.md)"

// Count counts, of the runtime's pods that have a ready sandbox, those of unknown priority. objects
// are by UID; self is the cgroup of this process, empty: unknown.
func Count(policy *eviction.Policy, pods read.Index, objects map[string]*eviction.Pod,
	self string) (n api.UnknownPriority) {
	n, _ = count(policy, pods, objects, self)
	return n
}

// count counts those that are never victims, too.
func count(
	policy *eviction.Policy, pods read.Index, objects map[string]*eviction.Pod, self string,
) (n api.UnknownPriority, neverVictims int) {
	for uid, p := range pods {
		if !p.Ready() {
			continue
		}
		pod := p.Told(self)
		priority, protected := policy.Judge(&pod, objects[uid])
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

// Origins says where objects come from that tell priorities.
func Origins(p *api.PodCount) string {
	var out []string
	add := func(n int, whose string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s (%d pods)", whose, n))
		}
	}
	add(p.Kubelet, "the kubelet's local pods API")
	add(p.Objects-p.Clients-p.Kubelet, "static manifests")
	add(p.Clients, "clients of the agent's socket")
	if p.Stale > 0 {
		out[len(out)-1] += ", none of which was heard for " + api.StaleAfter.String()
	}
	if len(out) == 0 {
		return "annotations alone: no object is known"
	}
	return strings.Join(out, ", ")
}

// Text is a count in words.
func Text(n api.UnknownPriority) string {
	return fmt.Sprintf("pods of unknown priority: %d, not protected otherwise: %d", n.Pods,
		n.Unprotected)
}
