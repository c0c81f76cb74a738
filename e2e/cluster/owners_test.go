package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The pods of a DaemonSet and of a StatefulSet leak repeatedly. Their controllers recreate them on
// this node with other UIDs. Each is rejected during a hold-off, longer the second time, and then
// runs.
func TestWhatAnOwnerBringsBackIsHeldOff(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	c.installBridge(n)
	seen := c.watch("default")
	for _, kind := range []string{"DaemonSet", "StatefulSet"} {
		app := strings.ToLower(kind)
		c.createOwner(kind, app, "leak /leak")
		victim := c.running("default", "app="+app)
		var before time.Duration
		for times := 1; times <= 2; times++ {
			n.leak(t, victim.UID, "60Mi")
			next, out := c.awaitReplacement(n, kind, app, victim, times)
			words, _ := seen.of(victim.UID)
			if words = slices.Compact(words); words[len(words)-1] != "Failed Evicted" {
				t.Errorf("%s: unexpected states of the evicted pod: %q", kind, words)
			}
			t.Logf("%s, eviction %d: states of %s: %q; hold-off of %s: %v", kind, times, victim.Name, words, next.Name, out)
			if out <= before {
				t.Errorf("%s: hold-off of %v, want longer than the earlier one of %v", kind, out, before)
			}
			victim, before = next, out
		}
	}
}

// awaitReplacement waits until an owner's next pod runs, which must be after its hold-off. out is the time from
// the eviction until then.
func (c *Cluster) awaitReplacement(n *Node, kind, app string, victim v1.Pod, times int) (next v1.Pod, out time.Duration) {
	c.t.Helper()
	var until, began time.Time
	c.Eventually(2*workloadDeadline, "another pod of the "+kind+" runs", func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		if err != nil {
			return err
		}
		if s.Gate != nil {
			for _, h := range s.Gate.Holds {
				if h.Owner != nil && h.Owner.Kind == kind && h.Times == times && h.Until.After(until) {
					until = h.Until
				}
			}
		}
		for _, e := range s.Evicted {
			if e.Pod.UID == string(victim.UID) {
				began = e.Time
			}
		}
		pods, err := c.Pods(ctx, "default", "app="+app)
		for _, p := range pods {
			if p.UID != victim.UID && p.Status.Phase == v1.PodRunning {
				next = p
				return err
			}
		}
		return fmt.Errorf("%d pods exist (%v); events: %v", len(pods), err, c.events(ctx))
	})
	started := next.Status.ContainerStatuses[0].State.Running
	switch {
	case until.IsZero() || began.IsZero():
		c.t.Fatalf("%s: no hold-off after eviction %d (at %v)", kind, times, began)
	case started == nil || started.StartedAt.Time.Before(until.Truncate(time.Second)):
		c.t.Errorf("%s: %s has a hold-off until %v but runs since %+v", kind, next.Name, until, started)
	}
	return next, until.Sub(began)
}

// createOwner makes a DaemonSet or a StatefulSet of one pod in namespace default.
func (c *Cluster) createOwner(kind, name, behaviour string) {
	c.t.Helper()
	ctx, labels, grace, one := c.t.Context(), map[string]string{"app": name}, int64(2), int32(1)
	meta, selector := metav1.ObjectMeta{Name: name, Labels: labels}, &metav1.LabelSelector{MatchLabels: labels}
	pod := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
		TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{container(behaviour)},
	}}
	var err error
	if kind == "DaemonSet" {
		_, err = c.Client.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod},
		}, metav1.CreateOptions{})
	} else {
		_, err = c.Client.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{
			ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector, Template: pod},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// The agent hangs while a pod leaks, until the kubelet evicts for the same threshold, and resumes
// during that. The pod is evicted once, by either, no write contradicts another, and no other pod
// is evicted.
func TestTheKubeletEvictsAtTheSameTime(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{MiB: 2048, Config: "evictionHard: {memory.available: 400Mi}\n"})
	c.Deploy("shop", 3, "leak /leak")
	c.Available("shop", 3)
	c.installBridge(n)
	seen, all := c.watch("default"), c.podsOf("default", "app=shop")

	const evicts = "attempting to reclaim"
	if err := n.signal(t.Context(), "STOP", "jettison"); err != nil {
		t.Fatal(err)
	}
	n.leak(t, all[0].UID, "12Mi")
	c.Eventually(2*workloadDeadline, "the kubelet evicts", func(context.Context) error {
		if log := n.KubeletLog(400); !strings.Contains(log, evicts) {
			return fmt.Errorf("eviction is not in the kubelet's log")
		}
		return nil
	})
	if err := n.signal(t.Context(), "CONT", "jettison"); err != nil {
		t.Fatal(err)
	}
	failed := c.awaitFailed(all[0])
	c.steady(seen, all[0].UID)
	for _, p := range all[1:] {
		c.expectUnchanged(p)
	}
	s, err := n.API().State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("evictions by the agent: %d; the pod's message: %q, annotations %v", len(s.Evicted), failed.Status.Message, failed.Annotations)
}
