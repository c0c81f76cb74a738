package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod's resize waits for room, so its spec requests nearly the whole node while its kubelet
// grants 100Mi. When the pod leaks, the agent evicts it by what was granted, and not its neighbour,
// which is far above its own request. (The API server rejects a resize beyond the node's allocatable
// memory, so none is infeasible here.) The agent gets the pods from the bridge alone: events of the
// kubelet's pods API have the granted request in their spec (pkg/kubelet/pod_workers.go, v1.37.2).
func TestARequestThatNobodyGrantedProtectsNoPod(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{Config: "featureGates: {PodsAPI: false}\n"})
	c.installBridge(n)
	c.createRequesting("resized", "100Mi", "leak /leak")
	c.createRequesting("neighbour", "100Mi", "alloc -size 300Mi")
	c.awaitAllRunning("resized", 1)
	neighbour := c.awaitAllRunning("neighbour", 1)[0]
	resized := c.deferResize("resized", "1300Mi")

	n.leak(t, resized.UID, "60Mi") // takes longer than the bridge needs to send the pod
	failed := c.awaitFailed(resized)
	if failed.Status.Reason != "Evicted" || !strings.Contains(failed.Status.Message, ", request is 100Mi, has larger consumption of memory. ") {
		t.Errorf("reason %q, message %q, want an eviction above the granted request of 100Mi", failed.Status.Reason, failed.Status.Message)
	}
	c.expectUnchanged(neighbour)
	c.Eventually(workloadDeadline, "the pod has no process left", func(ctx context.Context) error {
		out, err := n.Shell(ctx, "ps -o args | grep '[l]eak /leak' || true")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("processes on the node = %q", out)
		}
		return err
	})
	if out, err := n.Shell(t.Context(), "ps -o args | grep -c '[a]lloc -size 300Mi'"); err != nil {
		t.Errorf("processes of the neighbour = %q, want some (%v)", out, err)
	}
}

// createRequesting makes a pod without an owner that requests so much memory.
func (c *Cluster) createRequesting(name, memory, behaviour string) {
	c.t.Helper()
	grace, no, main := int64(2), false, container(behaviour)
	main.Resources.Requests[v1.ResourceMemory] = resource.MustParse(memory)
	_, err := c.Client.CoreV1().Pods("default").Create(c.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, Containers: []v1.Container{main}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// deferResize requests more memory for a running pod than the node has left, and waits until the
// kubelet defers the resize.
func (c *Cluster) deferResize(name, memory string) (out v1.Pod) {
	c.t.Helper()
	patch := fmt.Sprintf(`{"spec": {"containers": [{"name": "main", "resources": {"requests": {"memory": %q}}}]}}`, memory)
	_, err := c.Client.CoreV1().Pods("default").Patch(c.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize")
	if err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(workloadDeadline, "the kubelet defers the resize", func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		out = *p
		for _, condition := range p.Status.Conditions {
			if condition.Type == v1.PodResizePending && condition.Reason == v1.PodReasonDeferred {
				return nil
			}
		}
		return fmt.Errorf("pod's conditions = %+v", p.Status.Conditions)
	})
	spec, granted := out.Spec.Containers[0].Resources.Requests, out.Status.ContainerStatuses[0].AllocatedResources
	c.t.Logf("spec requests %v of memory, the kubelet granted %v", spec.Memory(), granted.Memory())
	return out
}
