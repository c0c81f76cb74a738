package deschedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// t0 is the time at which tests plan.
var t0 = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func node(name string, edits ...func(*v1.Node)) *v1.Node {
	return sized(name, 2000, 3000, 10, edits...)
}

func sized(name string, cpu, memory, pods int64, edits ...func(*v1.Node)) *v1.Node {
	list := v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI),
	}
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity: list, Allocatable: list.DeepCopy(),
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func nodeLabel(key, value string) func(*v1.Node) { return func(n *v1.Node) { n.Labels[key] = value } }
func cordoned(n *v1.Node)                        { n.Spec.Unschedulable = true }
func taint(key, value string, effect v1.TaintEffect) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: effect})
	}
}
func has2(name string, amount int64) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Status.Allocatable[v1.ResourceName(name)] = *resource.NewQuantity(amount, resource.DecimalSI)
		n.Status.Capacity[v1.ResourceName(name)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

type edit = func(*v1.Pod)

// pod returns an old pod of a ReplicaSet in namespace default that requests 100m cpu.
func pod(name, on string, edits ...edit) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{},
			CreationTimestamp: metav1.NewTime(t0.Add(-365 * 24 * time.Hour)),
		},
		Spec:   v1.PodSpec{NodeName: on, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	request(v1.ResourceCPU, 100)(p)
	owned("ReplicaSet", "replicaset-1")(p)
	for _, e := range edits {
		e(p)
	}
	return p
}

// podsNamed returns count pods named NAME0, NAME1, ...
func podsNamed(count int, name, on string, edits ...edit) (out []*v1.Pod) {
	for i := range count {
		out = append(out, pod(fmt.Sprintf("%s%d", name, i), on, edits...))
	}
	return out
}

func all(parts ...[]*v1.Pod) (out []*v1.Pod) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func podList(pods ...*v1.Pod) []*v1.Pod    { return pods }
func cluster(nodes ...*v1.Node) []*v1.Node { return nodes }

func request(name v1.ResourceName, amount int64) edit {
	return func(p *v1.Pod) {
		q := resource.NewQuantity(amount, resource.DecimalSI)
		if name == v1.ResourceCPU {
			q = resource.NewMilliQuantity(amount, resource.DecimalSI)
		}
		p.Spec.Containers[0].Resources.Requests[name] = *q
	}
}

func owned(kind, name string) edit {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(kind + name)}}
	}
}

func bare(p *v1.Pod)       { p.OwnerReferences = nil }
func daemon(p *v1.Pod)     { owned("DaemonSet", "daemonset-1")(p) }
func ownedByPod(p *v1.Pod) { owned("Pod", "pod-1")(p) }
func mirror(p *v1.Pod)     { annotation(v1.MirrorPodAnnotationKey)(p) }
func term(p *v1.Pod)       { p.DeletionTimestamp = &metav1.Time{Time: t0} }
func local(p *v1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
}
func priority(value int32) edit { return func(p *v1.Pod) { p.Spec.Priority = &value } }
func crit(p *v1.Pod)            { priority(2000000000)(p) }
func annotation(key string) edit {
	return func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, "") }
}
func label(key, value string) edit  { return func(p *v1.Pod) { p.Labels[key] = value } }
func phase(is v1.PodPhase) edit     { return func(p *v1.Pod) { p.Status.Phase = is } }
func inSpace(namespace string) edit { return func(p *v1.Pod) { p.Namespace = namespace } }
func selects(key, value string) edit {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}
func aged(age time.Duration) edit {
	return func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(t0.Add(-age)) }
}
func started(age time.Duration) edit {
	return func(p *v1.Pod) { p.Status.StartTime = &metav1.Time{Time: t0.Add(-age)} }
}
func statusReason(reason string) edit { return func(p *v1.Pod) { p.Status.Reason = reason } }
func qos(class v1.PodQOSClass) edit   { return func(p *v1.Pod) { p.Status.QOSClass = class } }
func images(names ...string) edit {
	return func(p *v1.Pod) {
		p.Spec.Containers = nil
		for _, name := range names {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: name})
		}
	}
}
func claims(name string) edit {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}
func tolerates(key, value string, effect v1.TaintEffect) edit {
	return func(p *v1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpEqual, Value: value, Effect: effect})
	}
}

func state(init bool, s v1.ContainerState) edit {
	return func(p *v1.Pod) {
		status := []v1.ContainerStatus{{State: s}}
		if init {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status...)
		} else {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status...)
		}
	}
}
func waits(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}
func endedWith(reason string, code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: code}}
}

func affine(required, preferred *v1.NodeSelectorTerm) edit {
	return func(p *v1.Pod) {
		a := &v1.NodeAffinity{}
		if required != nil {
			a.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{*required}}
		}
		if preferred != nil {
			a.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{{Weight: 1, Preference: *preferred}}
		}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: a}
	}
}

func matchIn(key string, values ...string) *v1.NodeSelectorTerm {
	return &v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}}}
}

func repels(key, value, topology string) edit {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}}},
				TopologyKey: topology,
			}},
		}}
	}
}

func spreads(key string, skew int32, when v1.UnsatisfiableConstraintAction, edits ...func(*v1.TopologySpreadConstraint)) edit {
	return func(p *v1.Pod) {
		p.Labels["foo"] = "bar"
		c := v1.TopologySpreadConstraint{
			MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: when, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"foo": "bar"}},
		}
		for _, e := range edits {
			e(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// limits of a policy; negative: not set.
type limits struct{ total, node, space int }

// plan is the input of a test that runs one strategy.
type plan struct {
	strategy string
	args     any
	evictor  *DefaultEvictorArgs
	limits   *limits
	nodes    []*v1.Node
	pods     []*v1.Pod
	edit     func(*Policy, *Snapshot)
}

func (c *plan) policy(t testing.TB) *Policy {
	t.Helper()
	profile := Profile{Name: "p"}
	if c.evictor != nil {
		profile.PluginConfig = append(profile.PluginConfig, PluginConfig{DefaultEvictor, c.evictor})
	}
	if c.strategy != "" {
		profile.Enable(c.strategy, c.args)
	}
	p := &Policy{Profiles: []Profile{profile}}
	if l := c.limits; l != nil {
		set := func(to **uint, value int) {
			if value >= 0 {
				*to = new(uint(value))
			}
		}
		set(&p.MaxNoOfPodsToEvictTotal, l.total)
		set(&p.MaxNoOfPodsToEvictPerNode, l.node)
		set(&p.MaxNoOfPodsToEvictPerNamespace, l.space)
	}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *plan) run(t *testing.T) *Result {
	t.Helper()
	p, s := c.policy(t), &Snapshot{}
	s.Nodes, s.Pods = c.nodes, c.pods
	if c.edit != nil {
		c.edit(p, s)
	}
	r, err := Plan(p, s, t0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func names(r *Result) (out []string) {
	for _, e := range r.Evictions {
		out = append(out, e.Name)
	}
	return out
}

// skipReason returns the reason for which a pod was skipped; empty: it was not.
func skipReason(r *Result, name string) string {
	for _, s := range r.Skipped {
		if s.Name == name {
			return s.Reason
		}
	}
	return ""
}

// skipped returns how many pods were skipped for a reason that contains a text.
func skipped(r *Result, text string) (count int) {
	for _, s := range r.Skipped {
		if strings.Contains(s.Reason, text) {
			count++
		}
	}
	return count
}

// lifeTime evicts all pods that are older than ten minutes.
func lifeTime() *PodLifeTimeArgs { return &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))} }
