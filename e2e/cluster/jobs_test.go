package cluster

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The agent evicts a pod of a Job that tolerates no failed pod: the Job replaces it and does
// not count it. A critical pod of an unknown namespace uses the most memory and lives: the leaker
// is evicted.
func TestWhoIsEvictedByWhatTheAPIKnows(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	c.installBridge(n)

	c.job("batch", "leak /leak")
	first := c.running("default", "job-name=batch")
	c.critical("vault", "alloc -size 450Mi")
	big := c.running("vault", "app=vault")
	n.leak(t, first.UID, "60Mi")
	c.hasEviction(c.awaitFailed(first))
	c.expectUnchanged(big)
	second := c.running("default", "job-name=batch")
	if second.UID == first.UID {
		t.Error("the Job has no replacement pod")
	}
	j, err := c.Client.BatchV1().Jobs("default").Get(t.Context(), "batch", metav1.GetOptions{})
	if err != nil || j.Status.Failed != 0 || len(j.Status.Conditions) != 0 {
		t.Errorf("failed pods of the Job = %d, want 0, conditions %+v (%v)", j.Status.Failed, j.Status.Conditions, err)
	}
}

// running waits until one pod of a selector runs.
func (c *Cluster) running(namespace, selector string) (out v1.Pod) {
	c.t.Helper()
	c.Eventually(workloadDeadline, "a pod runs that is "+selector, func(ctx context.Context) error {
		pods, err := c.Pods(ctx, namespace, selector)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Status.Phase == v1.PodRunning {
				out = p
				return nil
			}
		}
		return fmt.Errorf("%d pods exist; events: %v", len(pods), c.events(ctx))
	})
	return out
}

// job makes a Job in namespace default that fails with its first failed pod, except disrupted ones.
func (c *Cluster) job(name, behaviour string) {
	c.t.Helper()
	none, grace := int32(0), int64(2)
	_, err := c.Client.BatchV1().Jobs("default").Create(c.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: &none,
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
			}}},
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{container(behaviour)},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// critical makes a critical pod in a namespace of the same name.
func (c *Cluster) critical(name, behaviour string) {
	c.t.Helper()
	ctx, grace := c.t.Context(), int64(2)
	_, err := c.Client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(workloadDeadline, "namespace "+name+" takes pods", func(context.Context) error { return c.namespaceReady(name) })
	_, err = c.Client.CoreV1().Pods(name).Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			PriorityClassName: "system-node-critical", TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{container(behaviour)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}
