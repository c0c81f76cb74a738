package model

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/base/race"
)

// cpuTime returns the CPU time of this process so far. Unlike wall time it does not depend on
// other processes.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// timeLimit is exceeded if the cost of a pod grows with the square of its size, and ten times the
// cost if it grows linearly.
func timeLimit() time.Duration {
	if race.Enabled {
		return 25 * time.Second
	}
	return 3 * time.Second
}

// A pod may have as many spread constraints and as long a node affinity as its object allows. The
// model must not use more memory than a few such objects.
func TestMemoryOfManyConstraintsWithLongAffinity(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "k", Operator: v1.NodeSelectorOpNotIn, Values: strings.Split(strings.Repeat("v,", 100_000), ",")}}}}}}}
	for i := range 500 {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: fmt.Sprint("k", i), LabelSelector: &metav1.LabelSelector{}})
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := New(&Objects{Pods: []*v1.Pod{p}}, nil)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
		t.Errorf("model of one pod allocates %d MiB, want at most 100 MiB", took>>20)
	}
	runtime.KeepAlive(c)
}

// Checking a pod with thousands of hard constraints takes linear time.
func TestManyConstraintsTakeLinearTime(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
	for i := range 4_000 {
		key := fmt.Sprint("k", i)
		n.Labels[key] = "v"
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}})
	}
	nodes := []*v1.Node{n}
	for i := range 20 {
		other := n.DeepCopy()
		other.Name = fmt.Sprint("n", i)
		nodes = append(nodes, other)
	}
	c := New(&Objects{Nodes: nodes, Pods: []*v1.Pod{p}}, nil)
	began := cpuTime(t)
	if why := c.FitCheck(c.Pods()[0]).FailureReason(c.Find("n")); why != "" {
		t.Errorf("failure reason = %q, want none", why)
	}
	if took := cpuTime(t) - began; took > timeLimit() {
		t.Errorf("took %v of CPU time, want at most %v", took, timeLimit())
	}
}

// Constraints are identical if they apply to the same nodes in the same way, whatever the other
// terms of their pods.
func TestConstraintIdentity(t *testing.T) {
	make := func(zone string, honor bool) *Constraint {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
		p.Spec.NodeSelector = map[string]string{"zone": zone}
		in := v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "host", LabelSelector: &metav1.LabelSelector{}}
		if !honor {
			in.NodeAffinityPolicy = new(v1.NodeInclusionPolicyIgnore)
		}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{in}
		return New(&Objects{Pods: []*v1.Pod{p}}, nil).Pods()[0].Constraints()[0]
	}
	a := make("a", true).Identity
	if a != make("a", true).Identity || a == make("b", true).Identity || a == make("a", false).Identity ||
		make("a", false).Identity != make("b", false).Identity {
		t.Errorf("Identity = %x: equal for different constraints, or different for equal ones", a)
	}
}

// A pod may have tens of thousands of anti-affinity terms.
func TestManyTermsTakeLinearTime(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: v1.PodSpec{NodeName: "n"}}
	var terms []v1.PodAffinityTerm
	for i := range 40_000 {
		terms = append(terms, v1.PodAffinityTerm{TopologyKey: "host", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprint("k", i): "v"}}})
	}
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	began := cpuTime(t)
	c := New(&Objects{Nodes: []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, Pods: []*v1.Pod{p}}, nil)
	c.Remove(c.Pods()[0])
	if took := cpuTime(t) - began; took > timeLimit() {
		t.Errorf("took %v of CPU time, want at most %v", took, timeLimit())
	}
	if len(c.antiAffinity) > 0 {
		for what, pods := range c.antiAffinity {
			if len(pods) > 0 {
				t.Fatalf("pods %v remain in the index of %v, want none", pods, what)
			}
		}
	}
}

// A pod may request tens of thousands of extended resources that its node does not have: the
// kubelet ignores them.
func TestManyResourcesTakeLinearTime(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: v1.PodSpec{NodeName: "n"}}
	list := v1.ResourceList{}
	for i := range 30_000 {
		list[v1.ResourceName(fmt.Sprintf("example.com/r%05d", i))] = resource.MustParse("1")
	}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list}}}
	other := p.DeepCopy()
	other.Name, other.Spec.Containers[0].Resources.Requests = "q", v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	began := cpuTime(t)
	c := New(&Objects{Nodes: []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, Pods: []*v1.Pod{p, other}}, nil)
	n := c.Find("n")
	for _, name := range []v1.ResourceName{"example.com/r00000", "example.com/r29999", v1.ResourceCPU} {
		if n.Requested(name) == 0 {
			t.Errorf("Requested(%s) = 0, want the request of the pod", name)
		}
	}
	c.Remove(c.Pods()[0])
	for range 10_000 {
		c.Without(c.Pods()[0], func() { n.missingResource(c.Pods()[0]) })
	}
	if took := cpuTime(t) - began; took > timeLimit() {
		t.Errorf("took %v of CPU time, want at most %v", took, timeLimit())
	}
	if n.Requested("example.com/r29999") != 0 || n.Requested(v1.ResourceCPU) != 1000 {
		t.Errorf("after Remove: requested r29999 = %d, cpu = %d, want 0 and 1000", n.Requested("example.com/r29999"), n.Requested(v1.ResourceCPU))
	}
}
