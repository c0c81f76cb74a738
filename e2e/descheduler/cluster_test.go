package descheduler

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/cluster/deschedule"
)

// now is the time of all plans. The descheduler reads the clock: ages here are far enough from the
// policies' limits that minutes between the two do not matter.
var now = time.Now().Truncate(time.Second)

const (
	gpu      = v1.ResourceName("example.com/gpu")
	hostname = v1.LabelHostname
	zone     = v1.LabelTopologyZone
	disk     = "disk"
)

// maker makes a random cluster.
type maker struct {
	*rand.Rand
	*deschedule.Snapshot
	ranks []int // the rank of each next pod in the eviction order, unique
	gpus  bool
}

func (m *maker) one(in int) bool { return m.IntN(in) == 0 }

// of returns one of the values at random.
func of[T any](m *maker, some ...T) T { return some[m.IntN(len(some))] }

// randomCluster returns nodes in zones, some of them cordoned, tainted or not ready, and pods of
// some owners with all properties that strategies read.
func randomCluster(r *rand.Rand) *deschedule.Snapshot {
	m := &maker{Rand: r, Snapshot: &deschedule.Snapshot{}}
	m.gpus = m.one(6)
	nodes := 2 + m.IntN(6)
	if m.one(40) {
		nodes = 1
	}
	for i := range nodes {
		m.Nodes = append(m.Nodes, m.node(i))
	}
	for i, name := range []string{"default", "other"} {
		m.Namespaces = append(m.Namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1.LabelMetadataName: name, "team": fmt.Sprint("t", i)},
		}})
	}
	for _, class := range []string{"fast", "slow"} {
		m.Claims = append(m.Claims, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: class},
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class}})
	}
	m.ranks = m.Perm(200)
	for i := range 1 + m.IntN(6) {
		o := m.owner(i)
		for j := range m.IntN(10) {
			m.Pods = append(m.Pods, m.pod(o, fmt.Sprintf("o%d-%d", i, j)))
		}
	}
	if m.one(2) {
		m.budget("b0", "o0")
		if m.one(6) {
			m.budget("b1", "o0")
		}
	}
	return m.Snapshot
}

func (m *maker) node(i int) *v1.Node {
	list := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(1000+500*m.IntN(7)), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(2000+1000*m.IntN(4)+i*7), resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(6+m.IntN(12)), resource.DecimalSI),
	}
	if m.gpus && m.one(2) {
		list[gpu] = *resource.NewQuantity(int64(1+m.IntN(8)), resource.DecimalSI)
	}
	name := fmt.Sprintf("n%d", i)
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-n", Labels: map[string]string{
			hostname: name, zone: of(m, "a", "b", "c"), disk: of(m, "ssd", "hdd"),
		}},
		Status: v1.NodeStatus{Capacity: list, Allocatable: list.DeepCopy(),
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
	if m.one(12) {
		delete(n.Labels, zone)
	}
	if m.one(8) {
		n.Spec.Unschedulable = true
	}
	if m.one(20) {
		n.Status.Conditions[0].Status = v1.ConditionFalse
	}
	for _, effect := range []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute} {
		if m.one(8) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: of(m, "t", "u"), Value: of(m, "v", "w", ""), Effect: effect})
		}
	}
	return n
}

// budget adds a budget with the status that a controller would write.
func (m *maker) budget(name, owner string) {
	healthy := 0
	for _, p := range m.Pods {
		if p.Labels["owner"] == owner && p.Namespace == "default" && healthyPod(p) {
			healthy++
		}
	}
	allowed := min(m.IntN(4), healthy)
	m.Budgets = append(m.Budgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(int32(healthy - allowed))),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"owner": owner}}},
		Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: int32(allowed), CurrentHealthy: int32(healthy),
			DesiredHealthy: int32(healthy - allowed), ExpectedPods: int32(healthy)},
	})
}

func healthyPod(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
