package admit

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Generated amounts are small, so that limits are reached often.

func one[T any](t *rapid.T, label string, of ...T) T { return rapid.SampledFrom(of).Draw(t, label) }

// drawList generates amounts of a few resources; most are absent.
func drawList(t *rapid.T, label string, values ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu", "example.com/fpga", "hugepages-2Mi"} {
		if one(t, label+" has "+string(name), name == "cpu" || name == "memory", false, false) {
			out[name] = resource.MustParse(one(t, label+" "+string(name), values...))
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// sizes contains 4 in a form that is stored as a decimal behind a pointer, like 1.5Gi.
var sizes = []string{"0", "1", "1500m", "2", "3", "0.00390625Ki", "7"}

func drawContainer(t *rapid.T, init bool) v1.Container {
	c := v1.Container{Name: "c"}
	c.Resources.Requests = drawList(t, "requests", sizes...)
	c.Resources.Limits = drawList(t, "limits", sizes...)
	if init && rapid.Bool().Draw(t, "sidecar") {
		always := v1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
	}
	if rapid.IntRange(0, 3).Draw(t, "port") == 0 {
		c.Ports = []v1.ContainerPort{{
			ContainerPort: one[int32](t, "container port", 80, 81),
			HostPort:      one[int32](t, "host port", 0, 80, 81),
			HostIP:        one(t, "host ip", "", "0.0.0.0", "10.0.0.1", "10.0.0.2"),
			Protocol:      one(t, "protocol", "", v1.ProtocolTCP, v1.ProtocolUDP),
		}}
	}
	return c
}

// drawPod generates a pod; critical ones are frequent.
func drawPod(t *rapid.T, name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}}
	p.CreationTimestamp = metav1.NewTime(time.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0).UTC())
	for range rapid.IntRange(1, 2).Draw(t, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, drawContainer(t, false))
	}
	for range one(t, "init containers", 0, 0, 1, 2, 3) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, drawContainer(t, true))
	}
	switch one(t, "resources of the pod", "none", "none", "none", "some") {
	case "some":
		p.Spec.Resources = &v1.ResourceRequirements{Requests: drawList(t, "pod requests", sizes...), Limits: drawList(t, "pod limits", sizes...)}
	}
	if one(t, "overhead", false, false, false, true) {
		p.Spec.Overhead = drawList(t, "overhead", sizes...)
	}
	p.Spec.HostNetwork = one(t, "host network", false, false, false, true)
	switch v := one[int32](t, "priority", -1, 0, 0, 10, systemCriticalPriority, systemCriticalPriority+1); v {
	case 0:
	default:
		p.Spec.Priority = &v
	}
	if one(t, "static", false, false, false, false, true) {
		p.Annotations = map[string]string{annotationSource: "file"}
	}
	drawPlace(t, p)
	return p
}

// drawPlace generates the placement constraints of a pod; most are empty.
func drawPlace(t *rapid.T, p *v1.Pod) {
	usual := func(label string) bool { return rapid.IntRange(0, 7).Draw(t, label) != 0 }
	if !usual("name") {
		p.Spec.NodeName = one(t, "node name", "machine1", "machine2")
	}
	if !usual("selector") {
		p.Spec.NodeSelector = map[string]string{"zone": one(t, "zone", "a", "b")}
	}
	if !usual("affinity") {
		term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: "zone", Operator: one(t, "operator", v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, "Maybe"),
			Values: []string{one(t, "value", "a", "b")},
		}}}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}}
	}
	if !usual("tolerations") {
		p.Spec.Tolerations = []v1.Toleration{{
			Key: one(t, "toleration", "", "a", "b"), Operator: one(t, "tolerates", "", v1.TolerationOpExists, v1.TolerationOpEqual, v1.TolerationOpGt),
			Value: one(t, "toleration value", "", "1"), Effect: one(t, "effect", "", v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule),
		}}
	}
	if !usual("os label") {
		p.Labels = map[string]string{v1.LabelOSStable: one(t, "os of the label", "linux", "windows")}
	}
	if !usual("os field") {
		p.Spec.OS = &v1.PodOS{Name: one[v1.OSName](t, "os", "linux", "windows")}
	}
	if !usual("sysctls") {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{
			Name: one(t, "sysctl", "kernel.msgmax", "net/ipv4/tcp_rmem", "net.ipv4.tcp_notsent_lowat", "net.core.somaxconn", "user.max_user_namespaces", "vm.swappiness")}}}
		if rapid.Bool().Draw(t, "host users set") {
			p.Spec.HostUsers = new(rapid.Bool().Draw(t, "host users"))
		}
	}
	p.Spec.HostIPC = !usual("host ipc")
}

// drawCase generates a node with pods, and an incoming pod.
func drawCase(t *rapid.T) (node *v1.Node, others []*v1.Pod, asks *v1.Pod) {
	node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine1", Labels: map[string]string{"zone": one(t, "zone of the node", "a", "b")}}}
	node.Status.Allocatable = v1.ResourceList{"pods": resource.MustParse(one(t, "pods", "2", "5", "110"))}
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"} {
		node.Status.Allocatable[name] = resource.MustParse(one(t, "allocatable", "0", "4", "8", "12", "20"))
	}
	if rapid.IntRange(0, 5).Draw(t, "tainted") == 0 {
		node.Spec.Taints = []v1.Taint{{Key: one(t, "taint", "a", "b"), Value: one(t, "taint value", "", "1"),
			Effect: one(t, "taint effect", v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule)}}
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "others") {
		others = append(others, drawPod(t, fmt.Sprint("pod", i)))
	}
	return node, others, drawPod(t, "asks")
}

// drawnSysctls are the unsafe sysctls that the generated nodes allow.
var drawnSysctls = []string{"net.core.*", "kernel.msgmax", "user.*"}

// stateOf returns the state of a node with these pods.
func stateOf(node *v1.Node, others []*v1.Pod) NodeState {
	allowed, err := NewSysctls(drawnSysctls)
	if err != nil {
		panic(err)
	}
	n := NodeState{Name: node.Name, Labels: node.Labels, Taints: node.Spec.Taints, Allocatable: node.Status.Allocatable, Sysctls: allowed}
	for _, p := range others {
		n.Pods = append(n.Pods, HeldBy(PodAttributes{Pod: p, Manifest: true}))
	}
	return n
}

// drawFull generates a node that is full or nearly full, and a critical pod that often fits after a
// preemption.
func drawFull(t *rapid.T, object func(*v1.Pod)) (n NodeState, p PodAttributes) {
	n.Allocatable = v1.ResourceList{}
	used := v1.ResourceList{}
	names := []v1.ResourceName{"cpu", "memory", "example.com/gpu"}
	pod := func(name string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}}
		p.CreationTimestamp = metav1.NewTime(time.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0).UTC())
		c := v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
		for _, r := range names {
			if v := rapid.Int64Range(-3, 9).Draw(t, string(r)); v > 0 {
				c.Resources.Requests[r] = *resource.NewQuantity(v, resource.DecimalSI)
			}
		}
		if one(t, "guaranteed", false, false, true) {
			c.Resources.Limits = c.Resources.Requests
		}
		p.Spec.Containers = []v1.Container{c}
		return p
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "others") {
		o := pod(fmt.Sprint("pod", i))
		if v := one[int32](t, "priority", 0, 0, 0, -1, 5, systemCriticalPriority); v != 0 {
			o.Spec.Priority = &v
		}
		if one(t, "static", false, false, false, false, false, true) {
			o.Annotations = map[string]string{annotationSource: "file"}
		}
		n.Pods = append(n.Pods, HeldBy(PodAttributes{Pod: o, Manifest: true}))
		object(o)
		for r, q := range o.Spec.Containers[0].Resources.Requests {
			sum := used[r]
			sum.Add(q)
			used[r] = sum
		}
	}
	for _, r := range names {
		sum := used[r]
		if left := rapid.Int64Range(-1, 4).Draw(t, "left"); left >= 0 || !sum.IsZero() {
			sum.Add(*resource.NewQuantity(left, resource.DecimalSI))
		}
		n.Allocatable[r] = sum
	}
	n.Allocatable["pods"] = *resource.NewQuantity(int64(len(n.Pods))+rapid.Int64Range(0, 1).Draw(t, "pods left"), resource.DecimalSI)
	asks := pod("asks")
	v := one[int32](t, "priority of the one that asks", systemCriticalPriority+1, systemCriticalPriority+1, systemCriticalPriority, 0)
	asks.Spec.Priority = &v
	return n, PodAttributes{Pod: asks, Manifest: true}
}
