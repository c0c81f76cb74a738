package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patience is how long the pods of TestAKubeletThatHangs tolerate a silent node: long enough for a
// kubelet under emulation to report again.
const patience = 60 * time.Second

// A real kubelet hangs, and reports again before its pods' tolerations end: they live. It hangs
// again: its node becomes Unknown and tainted, and when the tolerations end its pods are deleted
// and run on another node. When the kubelet reports again it ends its old pods, and the node loses
// its taint.
func TestAKubeletThatHangs(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	program := installNodes(t, c)
	n := c.Join(NodeOptions{})
	c.Deploy("web", 2, "alloc -size 8Mi")
	c.setTolerationPeriod("web", patience)
	c.Available("web", 2)
	before := c.uids("web", n.Name)
	c.Hollow("other")
	r := c.replica(program, "nodes", nodeAccount, "nodes", "--config="+filepath.Join(moduleRoot(t), "deploy/cluster/config.yaml"), "--mode=replace", "--others-disabled", "--replace-quiet=1s")
	c.awaitLeader(r)

	hang := func(signal string) {
		t.Helper()
		if out, err := n.Shell(t.Context(), fmt.Sprintf("kill -%s %d", signal, n.KubeletPID())); err != nil {
			t.Fatal(out, err)
		}
	}
	hang("STOP")
	fell := time.Now()
	tainted := executes(c.awaitTaints(n.Name, unreachable...))
	t.Logf("tainted %.1f s after its kubelet hung", tainted.Sub(fell).Seconds())
	hang("CONT")
	c.awaitTaints(n.Name)
	c.Available("web", 2)
	if after := c.uids("web", n.Name); len(after) != 2 || len(before) != 2 || after[0] != before[0] || after[1] != before[1] {
		t.Fatalf("pods before the outage = %q, after = %q, want the same", before, after)
	}

	pods, err := c.Pods(t.Context(), "default", "app=web")
	if err != nil {
		t.Fatal(err)
	}
	hang("STOP")
	tainted = executes(c.awaitTaints(n.Name, unreachable...))
	for i := range pods {
		c.awaitTerminating(&pods[i])
		is, err := c.Client.CoreV1().Pods("default").Get(t.Context(), pods[i].Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The API server's deletion time includes the grace period, in whole seconds.
		at := is.DeletionTimestamp.Add(-time.Duration(*is.DeletionGracePeriodSeconds) * time.Second)
		t.Logf("%s is deleted %.0f s after the taint", is.Name, at.Sub(tainted).Seconds())
		if at.Before(tainted.Add(patience).Truncate(time.Second)) {
			t.Errorf("pod %s is deleted %v after the taint, want %v", is.Name, at.Sub(tainted), patience)
		}
	}
	c.Available("web", 2)
	if there := c.uids("web", "other"); len(there) != 2 {
		t.Errorf("pods on the other node = %q, want all replacements", there)
	}
	hang("CONT")
	for i := range pods {
		c.awaitPodGone(&pods[i])
	}
	c.awaitTaints(n.Name)
	for _, name := range []string{n.Name, "other"} {
		c.Eventually(nodeDeadline, name+" is Ready", func(ctx context.Context) error { return c.nodeReady(ctx, name) })
	}
	c.Eventually(workloadDeadline, "nothing of the pods runs", func(ctx context.Context) error {
		out, err := n.Shell(ctx, "ps -o args | grep '[a]lloc -size 8Mi' || true")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("pods on the node = %q", out)
		}
		return err
	})
}

// setTolerationPeriod sets how long a Deployment's pods tolerate a silent or not ready node.
func (c *Cluster) setTolerationPeriod(deployment string, patience time.Duration) {
	c.t.Helper()
	var of []string
	for _, key := range []string{v1.TaintNodeUnreachable, v1.TaintNodeNotReady} {
		of = append(of, fmt.Sprintf(`{"key": %q, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": %d}`, key, int(patience.Seconds())))
	}
	patch := fmt.Sprintf(`{"spec": {"template": {"spec": {"tolerations": [%s]}}}}`, strings.Join(of, ", "))
	_, err := c.Client.AppsV1().Deployments("default").Patch(c.t.Context(), deployment, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(workloadDeadline, deployment+" is of the new template alone", func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments("default").Get(ctx, deployment, metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas) {
			err = fmt.Errorf("Deployment's status is %+v", d.Status)
		}
		return err
	})
}

// uids returns the UIDs of an app's pods on a node that are not terminating, sorted by name.
func (c *Cluster) uids(app, node string) (out []types.UID) {
	c.t.Helper()
	pods, err := c.Pods(c.t.Context(), "default", "app="+app)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range pods {
		if p.Spec.NodeName == node && p.DeletionTimestamp == nil {
			out = append(out, p.UID)
		}
	}
	return out
}
