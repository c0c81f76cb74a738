package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// members are nodes without machines; the test acts as their kubelets. Each second it renews the
// Lease of a living node, keeps it Ready, runs bound pods and removes deleted ones. A fallen node
// is silent.
type members struct {
	c *Cluster
	t testing.TB

	mu    sync.Mutex
	lives map[string]bool
}

// addMembers adds nodes. Each has four CPUs and room for 110 pods.
func (c *Cluster) addMembers(names ...string) *members {
	c.t.Helper()
	m := &members{c: c, t: c.t, lives: map[string]bool{}}
	m.join(names...)
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := m.beat(ctx); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				m.t.Log("a kubelet: ", err)
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	return m
}

// join adds more nodes.
func (m *members) join(names ...string) {
	m.t.Helper()
	for _, name := range names {
		room := v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110"),
		}
		_, err := m.c.Client.CoreV1().Nodes().Create(m.t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		}, metav1.CreateOptions{})
		if err == nil { // by a patch: controllers also write to a new node
			err = m.status(m.t.Context(), name, &v1.NodeStatus{Capacity: room, Allocatable: room, Conditions: healthy()})
		}
		if err == nil {
			now := metav1.NowMicro()
			_, err = m.c.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).Create(m.t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &now},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			m.t.Fatal(err)
		}
		m.set(true, name)
	}
}

// healthy returns the conditions that a kubelet of a healthy node posts.
func healthy() (out []v1.NodeCondition) {
	now := metav1.Now()
	for kind, status := range map[v1.NodeConditionType]v1.ConditionStatus{
		v1.NodeReady: v1.ConditionTrue, v1.NodeMemoryPressure: v1.ConditionFalse, v1.NodeDiskPressure: v1.ConditionFalse,
		v1.NodePIDPressure: v1.ConditionFalse,
	} {
		out = append(out, v1.NodeCondition{Type: kind, Status: status, Reason: "Test", LastHeartbeatTime: now, LastTransitionTime: now})
	}
	return out
}

// silence makes nodes silent; resume makes them report again.
func (m *members) silence(names ...string) { m.set(false, names...) }
func (m *members) resume(names ...string)  { m.set(true, names...) }

func (m *members) set(lives bool, names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		m.lives[name] = lives
	}
}

// alive reports whether a node is a living member.
func (m *members) alive(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives[name]
}

// beat does a kubelet's work of a second.
func (m *members) beat(ctx context.Context) error {
	nodes, err := m.c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; m.alive(n.Name) {
			if err := m.heartbeat(ctx, n); err != nil {
				return err
			}
		}
	}
	pods, err := m.c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; m.alive(p.Spec.NodeName) {
			if err := m.sync(ctx, p); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}

// heartbeat renews a node's Lease, and posts its conditions if they were changed.
func (m *members) heartbeat(ctx context.Context, n *v1.Node) error {
	renewed := fmt.Sprintf(`{"spec": {"renewTime": %q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := m.c.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).Patch(ctx, n.Name, types.MergePatchType, []byte(renewed), metav1.PatchOptions{})
	if err != nil || isTrue(n, v1.NodeReady) {
		return err
	}
	return m.status(ctx, n.Name, &v1.NodeStatus{Conditions: healthy()})
}

// status posts the given fields of a node's status.
func (m *members) status(ctx context.Context, name string, is *v1.NodeStatus) error {
	posted := map[string]any{"conditions": is.Conditions}
	if is.Capacity != nil {
		posted["capacity"], posted["allocatable"] = is.Capacity, is.Allocatable
	}
	text, err := json.Marshal(map[string]any{"status": posted})
	if err != nil {
		return err
	}
	return patchNode(ctx, m.c.Client, name, string(text))
}

func isTrue(n *v1.Node, kind v1.NodeConditionType) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// sync does a kubelet's work for a pod of its node.
func (m *members) sync(ctx context.Context, p *v1.Pod) error {
	now := int64(0)
	switch {
	case p.DeletionTimestamp != nil:
		return m.c.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
	case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed || podReady(p):
		return nil
	}
	at := metav1.Now()
	p.Status.Phase = v1.PodRunning
	if p.Status.StartTime == nil {
		p.Status.StartTime = &at
	}
	if len(p.Status.ContainerStatuses) == 0 {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name}}
	}
	s := &p.Status.ContainerStatuses[0]
	s.Ready, s.State = true, v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}
	p.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at},
		{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: at},
	}
	_, err := m.c.Client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

func podReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// forever marks a toleration without a limit.
const forever = int64(-1)

// place makes a pod on a node, in namespace default, that tolerates every NoExecute taint for so
// many seconds, with such a grace period. Its label app is its name up to the first dash.
func (c *Cluster) place(name, node string, tolerates, grace int64) *v1.Pod {
	c.t.Helper()
	no := false
	app, _, _ := strings.Cut(name, "-")
	t := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	if tolerates != forever {
		t.TolerationSeconds = &tolerates
	}
	p, err := c.Client.CoreV1().Pods("default").Create(c.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace, Tolerations: []v1.Toleration{t},
			Containers: []v1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// awaitPodsReady waits until these pods of namespace default are ready.
func (c *Cluster) awaitPodsReady(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.Eventually(startDeadline, "pod "+name+" runs", func(ctx context.Context) error {
			p, err := c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err == nil && !podReady(p) {
				err = fmt.Errorf("pod's status is %+v", p.Status)
			}
			return err
		})
	}
}

// awaitPodGone waits until no pod of this UID exists, and returns the time at which that was seen.
func (c *Cluster) awaitPodGone(p *v1.Pod) time.Time {
	c.t.Helper()
	c.Eventually(startDeadline, "pod "+p.Name+" is gone", func(ctx context.Context) error {
		is, err := c.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && is.UID != p.UID:
			return nil
		case err == nil:
			err = fmt.Errorf("pod exists, deletion time %v", is.DeletionTimestamp)
		}
		return err
	})
	return time.Now()
}

// expectPodStays fails the test if a pod is missing or terminating.
func (c *Cluster) expectPodStays(p *v1.Pod) *v1.Pod {
	c.t.Helper()
	is, err := c.Client.CoreV1().Pods(p.Namespace).Get(c.t.Context(), p.Name, metav1.GetOptions{})
	if err != nil || is.UID != p.UID || is.DeletionTimestamp != nil {
		c.t.Fatalf("pod %s is gone or terminating: %v", p.Name, err)
	}
	return is
}

// awaitTaints waits until a node has exactly these taints, each as KEY[=VALUE]:EFFECT, sorted, and
// returns the node.
func (c *Cluster) awaitTaints(node string, want ...string) (is *v1.Node) {
	c.t.Helper()
	c.Eventually(startDeadline, fmt.Sprintf("the taints of node %s are %q", node, want), func(ctx context.Context) (err error) {
		if is, err = c.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err != nil {
			return err
		}
		has := []string{}
		for i := range is.Spec.Taints {
			has = append(has, is.Spec.Taints[i].ToString())
		}
		slices.Sort(has)
		if !slices.Equal(has, want) {
			err = fmt.Errorf("node has taints %q", has)
		}
		return err
	})
	return is
}
