package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Three pods are evicted while the API server is away, and a fourth while it hangs and the bridge dies: once they are back each of the four
// is Failed and has one event, and the Deployment has its pods.
func TestWhatIsEvictedWhileTheAPIIsAwayIsTold(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.own()
	n := c.Join(NodeOptions{})
	c.Deploy("shop", 4, "leak /leak")
	c.Available("shop", 4)
	c.installBridge(n)
	all := c.podsOf("default", "app=shop")

	c.Kill(APIServer)
	for i, p := range all[:3] {
		n.leak(t, p.UID, "60Mi")
		c.evicted(n, i+1)
	}
	c.Again(APIServer)
	for _, p := range all[:3] {
		c.hasStatus(c.awaitFailed(p))
	}

	c.Pause(APIServer)
	n.leak(t, all[3].UID, "60Mi")
	c.evicted(n, 4)
	if _, err := n.Shell(t.Context(), "pkill -9 -x jettison-bridge"); err != nil {
		t.Fatal(err)
	}
	c.Resume(APIServer)
	c.hasStatus(c.awaitFailed(all[3]))

	c.Available("shop", 4)
	c.eachOnce(all)
}

// evicted waits until the agent has records of so many evictions that are over.
func (c *Cluster) evicted(n *Node, count int) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("%d pods are evicted", count), func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		if err == nil && (len(s.Evicted) < count || len(s.Underway) > 0) {
			err = fmt.Errorf("%d are, %d are under way", len(s.Evicted), len(s.Underway))
		}
		return err
	})
}

// eachOnce checks that each of these pods has one event of its eviction.
func (c *Cluster) eachOnce(pods []v1.Pod) {
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
			return fmt.Errorf("events of %v, want %v", is, want)
		}
		return nil
	})
}
