package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// away is the duration of the API server's outage.
const away = 10 * time.Minute

// Three pods are evicted during a ten-minute outage of the API server, and restart when their
// hold-offs end: they live, and the bridge reports that they survived. A fourth is evicted while
// the API server hangs and the bridge is killed: it becomes Failed when both are back, unless it
// restarted first. Each of the four has one event, and the Deployment has its pods.
func TestWhatIsEvictedWhileTheAPIIsAwayIsTold(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	c.Deploy("shop", 4, "leak /leak")
	c.Available("shop", 4)
	c.installBridge(n)
	all := c.podsOf("default", "app=shop")

	c.Kill(APIServer)
	back := time.After(away)
	for i, p := range all[:3] {
		n.leak(t, p.UID, "60Mi")
		c.evicted(n, i+1)
	}
	for _, p := range all[:3] {
		c.awaitReturn(n, p)
	}
	<-back
	c.Again(APIServer)
	for _, p := range all[:3] {
		if c.awaitOutcome(p) {
			t.Errorf("pod %s had restarted and is Failed, want it running", p.Name)
		}
	}

	c.Pause(APIServer)
	n.leak(t, all[3].UID, "60Mi")
	c.evicted(n, 4)
	if err := n.signal(t.Context(), "KILL", "jettison-bridge"); err != nil {
		t.Fatal(err)
	}
	c.Resume(APIServer)
	if !c.awaitOutcome(all[3]) {
		c.expectReturnBeforeFailed(all[3])
	}

	c.Available("shop", 4)
	c.expectOneEventEach(all)
}

// expectReturnBeforeFailed checks that a surviving evicted pod restarted before a bridge could set it to
// Failed.
func (c *Cluster) expectReturnBeforeFailed(pod v1.Pod) {
	c.t.Helper()
	is, err := c.Client.CoreV1().Pods(pod.Namespace).Get(c.t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	ran := is.Status.ContainerStatuses[0].State.Running
	bridge := c.podsOf(bridgeNamespace, "app.kubernetes.io/name=jettison-bridge")[0].Status.ContainerStatuses[0].State.Running
	const knows = 10 * time.Second // a bridge has listed the node's pods by then
	if ran == nil || bridge == nil || ran.StartedAt.After(bridge.StartedAt.Add(knows)) {
		c.t.Errorf("pod %s is not Failed, runs since %+v, the bridge since %+v", pod.Name, ran, bridge)
	}
}

// awaitReturn waits until the node's kernel shows a process of an evicted pod again.
func (c *Cluster) awaitReturn(n *Node, pod v1.Pod) {
	c.t.Helper()
	c.Eventually(away, pod.Name+" runs again", func(ctx context.Context) error {
		out, err := n.Shell(ctx, fmt.Sprintf(`for f in $(find /sys/fs/cgroup -path '*pod%s*' -o -path '*pod%s*' | grep 'cgroup.procs$'); do
			for p in $(cat $f); do [ -p /proc/$p/root/leak ] && echo runs && exit; done
		done; true`, pod.UID, strings.ReplaceAll(string(pod.UID), "-", "_")))
		if err == nil && !strings.Contains(out, "runs") {
			err = errors.New("no process of the pod runs")
		}
		return err
	})
}

// awaitOutcome waits until the API server has the outcome of an evicted pod: Failed or recovered.
func (c *Cluster) awaitOutcome(pod v1.Pod) (failed bool) {
	c.t.Helper()
	var is v1.Pod
	c.Eventually(workloadDeadline, pod.Name+" is Failed, or told to live", func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if is = *p; p.Status.Phase == v1.PodFailed {
			return nil
		}
		list, err := c.Client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "source=jettison,reason=EvictionOutlived,involvedObject.uid=" + string(pod.UID),
		})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("pod's phase is %s", p.Status.Phase)
		}
		return err
	})
	if is.Status.Phase == v1.PodFailed {
		c.hasStatus(is)
		return true
	}
	c.t.Logf("pod %s restarted and lives: restarts %d, phase %s", pod.Name, restarts(is), is.Status.Phase)
	return false
}

// evicted waits until the agent has records of so many completed evictions.
func (c *Cluster) evicted(n *Node, count int) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("%d pods are evicted", count), func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		if err == nil && (len(s.Evicted) < count || len(s.InProgress) > 0) {
			err = fmt.Errorf("%d completed evictions, %d in progress", len(s.Evicted), len(s.InProgress))
		}
		return err
	})
}

// expectOneEventEach checks that each of these pods has one event of its eviction.
func (c *Cluster) expectOneEventEach(pods []v1.Pod) {
	c.t.Helper()
	var want []string
	for _, p := range pods {
		want = append(want, string(p.UID))
	}
	slices.Sort(want)
	c.Eventually(workloadDeadline, "each has its event", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "source=jettison,reason=Evicted"})
		if err != nil {
			return err
		}
		var is []string
		for _, e := range list.Items {
			is = append(is, string(e.InvolvedObject.UID))
		}
		if slices.Sort(is); !slices.Equal(is, want) {
			return fmt.Errorf("events of pods %v, want %v", is, want)
		}
		return nil
	})
}
