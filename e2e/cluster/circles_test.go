package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// circlesCycles is the number of descheduling cycles in a row.
const circlesCycles = 10

// circle is a state of a cluster in which descheduler 0.36.0 evicts a pod in every cycle, because
// the scheduler puts its replacement back.
type circle struct {
	name, strategy, args string
	request              string            // CPU of each evictable pod
	affinity             *v1.Affinity      // of them
	on                   []string          // their nodes
	others               map[string]string // CPU of a pod of another owner, by node
	taint                string            // PreferNoSchedule of node a
	label                string            // of node a
	room                 string            // CPU of node a; empty: 4
}

// The scheduler of a real control plane places the replacements of evicted pods. In ten cycles each
// strategy evicts at most one pod, and the replacement runs on another node, whether the evicted pod
// is still terminating when its replacement is scheduled, or gone.
func TestSchedulerDoesNotPutPodsBack(t *testing.T) {
	d := startDescheduling(t)
	for _, s := range []*circle{
		{
			name: "HighNodeUtilization on a Deployment of three", strategy: "HighNodeUtilization",
			args: "{thresholds: {cpu: 30}}", request: "500m", on: []string{"a", "b", "c"}, others: map[string]string{"a": "2", "b": "2"},
		},
		{
			name: "LowNodeUtilization against preferred anti-affinity", strategy: "LowNodeUtilization",
			args: "{thresholds: {cpu: 20}, targetThresholds: {cpu: 60}}", request: "500m", affinity: avoidsItself(),
			on: []string{"a", "b", "c"}, others: map[string]string{"a": "2200m"},
		},
		{
			name: "RemoveDuplicates against preferred node affinity", strategy: "RemoveDuplicates", args: "{}",
			request: "500m", affinity: prefersLabel("pool"), label: "pool", room: "32",
			on: []string{"a", "a", "b"}, others: map[string]string{"b": "2", "c": "2"},
		},
		{
			name: "preferred node affinity against PreferNoSchedule", strategy: "RemovePodsViolatingNodeAffinity",
			args: "{nodeAffinityType: [preferredDuringSchedulingIgnoredDuringExecution]}", request: "500m", affinity: prefersLabel("spot"),
			on: []string{"b"}, label: "spot", taint: "spot",
		},
	} {
		for _, grace := range []int64{0, 1} {
			t.Run(fmt.Sprintf("%s, grace period %d s", s.name, grace), func(t *testing.T) {
				d.with(t, func() { d.runCircle(s, grace) })
			})
		}
	}
	t.Run("HighNodeUtilization with a packing scheduler", func(t *testing.T) { d.with(t, d.packs) })
}

func (d *descheduling) runCircle(s *circle, grace int64) {
	d.t.Helper()
	d.members.join("a", "b", "c")
	defer d.clear("a", "b", "c")
	if s.room != "" {
		room := v1.ResourceList{v1.ResourceCPU: resource.MustParse(s.room)}
		if err := d.members.status(d.t.Context(), "a", &v1.NodeStatus{Capacity: room, Allocatable: room, Conditions: healthy()}); err != nil {
			d.t.Fatal(err)
		}
	}
	if s.label != "" {
		d.kubectl("label", "node", "a", s.label+"=yes")
	}
	if s.taint != "" {
		d.kubectl("taint", "node", "a", s.taint+"=yes:PreferNoSchedule")
	}
	for node, request := range s.others {
		d.replicas("other-"+node, podSpec(request, 0), node)
	}
	spec := podSpec(s.request, grace)
	spec.Affinity = s.affinity
	d.replicas("web", spec, s.on...)
	evictions, back := d.cycles(d.policyFor("", s.strategy, s.args, "web"), len(s.on))
	if len(evictions) > 1 || back > 0 {
		d.t.Errorf("evictions = %v, %d replacements back on their node, want at most one, and none", evictions, back)
	}
}

// A packing scheduler empties three of five nodes: each pod moves once.
func (d *descheduling) packs() {
	d.t.Helper()
	d.packNodes()
	d.members.join("a", "b", "c", "d", "e")
	defer d.clear("a", "b", "c", "d", "e")
	for _, node := range []string{"a", "b"} {
		d.replicas("other-"+node, podSpec("2", 0), node)
	}
	d.replicas("web", podSpec("300m", 1), "c", "c", "d", "d", "e", "e")
	evictions, back := d.cycles(d.policy("HighNodeUtilization", "{thresholds: {cpu: 30}}", "web"), 6)
	on, err := d.where(d.t.Context(), "web")
	if err != nil || len(evictions) != 6 || back > 0 || on["a"]+on["b"] != 6 {
		d.t.Errorf("evictions = %v, %d replacements back on their node, pods by node = %v, error %v, want all six on a and b",
			evictions, back, on, err)
	}
}

// cycles runs ten cycles, each with the replacements of the one before running. It returns the
// evictions, and how many replacements run on the node from which the pod was evicted.
func (d *descheduling) cycles(policy string, pods int) (evictions []string, back int) {
	d.t.Helper()
	nodes := d.settled(pods)
	for i := range circlesCycles {
		uids, log := d.act(policy)
		if i == 0 && len(uids) == 0 {
			for _, s := range d.plan(policy).Skipped {
				if strings.HasPrefix(s.Name, "web-") {
					d.t.Logf("%s stays: %s", s.Name, s.Reason)
				}
			}
		}
		if len(uids) == 0 {
			continue
		}
		before, after := nodes, d.settled(pods)
		for _, uid := range uids {
			from, ok := before[uid]
			if !ok {
				d.t.Errorf("cycle %d evicts a pod that is not of the Deployment: %s", i, log)
			}
			evictions = append(evictions, fmt.Sprintf("cycle %d from %s", i, from))
		}
		for uid, node := range after {
			if _, old := before[uid]; !old && slices.ContainsFunc(uids, func(uid string) bool { return before[uid] == node }) {
				back++
			}
		}
		nodes = after
	}
	d.t.Logf("evictions in %d cycles: %q, %d replacements back on their node", circlesCycles, evictions, back)
	return evictions, back
}

// settled waits until so many pods of web are ready and no other one exists, and returns the node of
// each by its UID.
func (d *descheduling) settled(pods int) (nodes map[string]string) {
	d.t.Helper()
	d.Eventually(workloadDeadline, fmt.Sprintf("%d pods of web run", pods), func(ctx context.Context) error {
		list, err := d.Pods(ctx, "default", "app=web")
		nodes = map[string]string{}
		for i := range list {
			if p := &list[i]; podReady(p) && p.DeletionTimestamp == nil {
				nodes[string(p.UID)] = p.Spec.NodeName
			}
		}
		if err == nil && (len(nodes) != pods || len(list) != pods) {
			err = fmt.Errorf("%d pods, %d of them ready", len(list), len(nodes))
		}
		return err
	})
	return nodes
}

// replicas makes a ReplicaSet with a pod on each of these nodes: it adopts pods that exist. The
// scheduler places their replacements.
func (d *descheduling) replicas(name string, spec v1.PodSpec, nodes ...string) {
	d.t.Helper()
	meta := metav1.ObjectMeta{Labels: map[string]string{"app": name}}
	for i, node := range nodes {
		p := &v1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: *spec.DeepCopy()}
		p.Name, p.Spec.NodeName = fmt.Sprintf("%s-%d", name, i), node
		if _, err := d.Client.CoreV1().Pods("default").Create(d.t.Context(), p, metav1.CreateOptions{}); err != nil {
			d.t.Fatal(err)
		}
	}
	n := int32(len(nodes))
	_, err := d.Client.AppsV1().ReplicaSets("default").Create(d.t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: meta.Labels}, Template: v1.PodTemplateSpec{ObjectMeta: meta, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.awaitDistribution(name, "as made", func(on map[string]int) bool {
		sum := 0
		for _, node := range nodes {
			if on[node] == 0 {
				return false
			}
		}
		for _, k := range on {
			sum += k
		}
		return sum == len(nodes)
	})
}

// clear removes all ReplicaSets, their pods, and the nodes with their Leases.
func (d *descheduling) clear(nodes ...string) {
	d.t.Helper()
	d.kubectl("delete", "replicasets", "--all", "--cascade=foreground", "--timeout=60s")
	d.kubectl(append([]string{"delete", "node"}, nodes...)...)
	d.kubectl(append([]string{"delete", "lease", "-n", v1.NamespaceNodeLease}, nodes...)...)
}

func podSpec(cpu string, grace int64) v1.PodSpec {
	c := container("sleep")
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	return v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{c}}
}

// avoidsItself returns preferred anti-affinity to pods of web on the same node.
func avoidsItself() *v1.Affinity {
	term := v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}},
	}}
}

// prefersLabel returns preferred affinity to nodes with a label.
func prefersLabel(key string) *v1.Affinity {
	term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpExists}}}
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1, Preference: term}},
	}}
}
