package admit

import (
	"cmp"
	"maps"
	"slices"
	"unique"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// nodeOS is the only operating system that the agent supports.
const nodeOS = "linux"

// Reasons and messages of the scheduler plugins that the kubelet runs
// (pkg/scheduler/framework/plugins: nodeaffinity, nodename, nodeports, tainttoleration).
var (
	wrongAffinity = predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	wrongName     = predicate("NodeName", "node(s) didn't match the requested node name")
	portTaken     = predicate("NodePorts",
		"node(s) didn't have free ports for the requested pod ports")
	tainted = predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
)

// predicate returns the failure of a plugin with the kubelet's message
// (pkg/kubelet/lifecycle/predicate.go PredicateFailureError).
func predicate(name, text string) Failure {
	return Failure{Reason: name, Message: "Predicate " + name + " failed: " + text}
}

// Labels returns the labels of a node: the labels that a kubelet sets
// (pkg/kubelet/kubelet_node_status.go initialNode), overridden by the configured labels. The label
// of the operating system cannot be overridden (predicate.go rejectPodAdmissionBasedOnOSSelector).
func Labels(hostname, arch string, configured map[string]string) map[string]string {
	out := map[string]string{
		v1.LabelHostname:   hostname,
		v1.LabelArchStable: arch, "beta.kubernetes.io/arch": arch,
		"beta.kubernetes.io/os": nodeOS,
	}
	maps.Copy(out, configured)
	out[v1.LabelOSStable] = nodeOS
	return out
}

// appendPlacementFailures appends the reasons why a pod does not match the node, in the order of
// the scheduler's AdmissionCheck (pkg/scheduler/eventhandlers.go) and of generalFilter
// (pkg/kubelet/lifecycle/predicate.go), which checks taints last.
func appendPlacementFailures(out []Failure, incoming *incomingPod, others []*Held,
	n *NodeState) []Failure {
	pod := incoming.Pod
	if n.Labels != nil && (len(pod.Spec.NodeSelector) > 0 || pod.Spec.Affinity != nil) {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
		// A malformed expression matches nothing, as in the scheduler.
		if ok, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok {
			out = append(out, wrongAffinity)
		}
	}
	if pod.Spec.NodeName != "" && n.Name != "" && pod.Spec.NodeName != n.Name {
		out = append(out, wrongName)
	}
	if portsConflict(incoming.ports, others) {
		out = append(out, portTaken)
	}
	if !fromManifest(pod) && slices.ContainsFunc(n.Taints, func(t v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute && !tolerates(pod.Spec.Tolerations, &t)
	}) {
		out = append(out, tainted)
	}
	return out
}

// hostPorts returns the host ports of a pod's regular containers and sidecars (pkg/scheduler/util
// GetHostPorts).
func hostPorts(pod *v1.Pod) (out []Port) {
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, newPort(cmp.Or(p.HostIP, allIPs), cmp.Or(p.Protocol, v1.ProtocolTCP),
					p.HostPort))
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil &&
			*c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// allIPs is the wildcard address (k8s.io/kube-scheduler/framework DefaultBindAllHostIP).
const allIPs = "0.0.0.0"

var anyIP = unique.Make(allIPs)

// portsConflict reports whether another pod uses one of the ports. It visits each port of either
// side once, because pods may declare tens of thousands.
func portsConflict(ports []Port, others []*Held) bool {
	if len(ports) == 0 {
		return false
	}
	w := portSet{ports: make(map[Port]struct{}, 2*len(ports))}
	for _, p := range ports {
		w.add(p)
	}
	for _, h := range others {
		for i := range h.Ports {
			if w.collides(&h.Ports[i]) {
				return true
			}
		}
	}
	return false
}

// portSet holds the ports that a pod requests.
type portSet struct {
	numbers, wildcard numbers           // of all ports, and of the ports on all IPs
	ports             map[Port]struct{} // each port twice: with its IP and without
}

// numbers has a bit for each port. A number outside the range of ports shares a bit with a valid
// port, which only costs an extra lookup in the map.
type numbers [1 << 16 / 64]uint64

func (n *numbers) add(port int32)      { n[uint16(port)/64] |= 1 << (uint16(port) % 64) }
func (n *numbers) has(port int32) bool { return n[uint16(port)/64]&(1<<(uint16(port)%64)) != 0 }

func (w *portSet) add(p Port) {
	w.numbers.add(p.Port)
	if p.IP == anyIP {
		w.wildcard.add(p.Port)
	}
	w.ports[p] = struct{}{}
	w.ports[Port{Protocol: p.Protocol, Port: p.Port}] = struct{}{}
}

func (w *portSet) collides(o *Port) bool {
	if !w.numbers.has(o.Port) {
		return false
	}
	has := func(ip unique.Handle[string]) bool {
		_, ok := w.ports[Port{ip, o.Protocol, o.Port}]
		return ok
	}
	if o.IP == anyIP {
		return has(unique.Handle[string]{})
	}
	return has(o.IP) || w.wildcard.has(o.Port) && has(anyIP)
}
