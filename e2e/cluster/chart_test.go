package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/build"
)

// helm runs helm in namespace kube-system as the administrator, and returns its output.
func (c *Cluster) helm(args ...string) string {
	c.t.Helper()
	dir, err := build.Helm(c.t.Context(), c.t.Logf)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(dir, "helm"), append(args, "--namespace=kube-system")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconf)
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		cmd.Env = append(cmd.Env, name+"="+c.path(name))
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("run helm %s as the administrator: %v\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return out.String()
}

// release checks the agent of a revision of the chart: its arguments, and that the only
// configuration of an agent in the cluster is the mounted one. It returns the ConfigMap's name.
func (c *Cluster) release(args ...string) (configMap string) {
	c.t.Helper()
	ctx := c.t.Context()
	set, err := c.Client.AppsV1().DaemonSets("kube-system").Get(ctx, "jettison", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if got := pod.Containers[0].Args; !slices.Equal(got, args) {
		c.t.Errorf("arguments of the agent = %q, want %q", got, args)
	}
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			configMap = v.ConfigMap.Name
		}
	}
	list, err := c.Client.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=jettison"})
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	if !slices.Equal(names, []string{configMap}) {
		c.t.Errorf("ConfigMaps of the agent = %q, want only the mounted one %q", names, configMap)
	}
	return configMap
}

// rolledOut waits until a DaemonSet runs its newest pod template on so many nodes, and on no other.
func (c *Cluster) rolledOut(namespace, name string, nodes int32) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("DaemonSet %s/%s runs on %d nodes", namespace, name, nodes), func(ctx context.Context) error {
		d, err := c.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := appsv1.DaemonSetStatus{
			DesiredNumberScheduled: nodes, CurrentNumberScheduled: nodes, UpdatedNumberScheduled: nodes,
			NumberReady: nodes, NumberAvailable: nodes, ObservedGeneration: d.Generation,
		}
		got := d.Status
		got.CollisionCount, got.Conditions = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("status = %+v, want %+v", got, want)
		}
		pods, err := c.Pods(ctx, namespace, "app.kubernetes.io/name="+name)
		if err == nil && len(pods) != int(nodes) {
			err = fmt.Errorf("%d pods exist, want %d", len(pods), nodes)
		}
		return err
	})
}

// deploymentAvailable waits until all replicas of a Deployment's newest pod template are available.
func (c *Cluster) deploymentAvailable(namespace, name string) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("Deployment %s/%s is available", namespace, name), func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas < *d.Spec.Replicas || s.AvailableReplicas < *d.Spec.Replicas {
			pods, err := c.Pods(ctx, namespace, "app.kubernetes.io/name="+name)
			var states []string
			for _, p := range pods {
				states = append(states, fmt.Sprintf("%s %s %+v", p.Name, p.Status.Phase, p.Status.ContainerStatuses))
			}
			return fmt.Errorf("status = %+v, pods = %v (%v)", s, states, err)
		}
		return nil
	})
}

// agentActs waits until the agent of a node serves its state, and checks whether it acts.
func (c *Cluster) agentActs(n *Node, want bool) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("the agent acts: %v, and has the pods of the bridge", want), func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		if err == nil && (s.DryRun == want || s.Pods.ClientSynced == nil) {
			err = fmt.Errorf("dryRun = %v, pods = %+v", s.DryRun, s.Pods)
		}
		return err
	})
}

// jettisonConditions returns the types of the conditions that a bridge wrote to a node.
func (c *Cluster) jettisonConditions(ctx context.Context, node string) (out []string, err error) {
	n, err := c.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, condition := range n.Status.Conditions {
		if strings.HasPrefix(string(condition.Type), "Jettison") {
			out = append(out, string(condition.Type))
		}
	}
	return out, nil
}

// An operator installs the chart, adds the cluster programs, lets the agents evict on canary nodes,
// rolls back, and removes the chart, as the docs say. Each revision runs on the nodes and in the mode that its values select. Nothing of the
// chart is left in the cluster.
func TestChartInstalls(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	ctx := t.Context()
	root, err := build.ModuleRoot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(root, "deploy", "helm", "jettison")
	n := c.Join(NodeOptions{})
	c.importProgram(n, "jettison-bridge")
	c.importProgram(n, "jettison-cluster")
	agentAndBridge := func(nodes int32) {
		t.Helper()
		c.rolledOut("kube-system", "jettison", nodes)
		c.rolledOut("jettison-system", "jettison-bridge", nodes)
	}

	t.Log(c.helm("install", "jettison", chart))
	agentAndBridge(1)
	c.agentActs(n, false)
	first := c.release("run", "--dry-run")

	t.Log(c.helm("upgrade", "jettison", chart, "--set", "nodes.enabled=true", "--set", "nodes.mode=replace", "--set", "descheduler.enabled=true"))
	c.deploymentAvailable("jettison-cluster", "jettison-cluster-nodes")
	c.deploymentAvailable("kube-system", "jettison-descheduler")
	leases, err := c.Client.CoordinationV1().Leases(v1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Items {
		if l.Name == "descheduler" || l.Namespace == "jettison-cluster" {
			t.Errorf("Lease %s/%s exists in a dry run", l.Namespace, l.Name)
		}
	}

	t.Log(c.helm("upgrade", "jettison", chart, "--set", "dryRun=false", "--set", "nodeSelector.jettison/canary=yes",
		"--set", "agent.config.evictionPressureTransitionPeriod=1m"))
	agentAndBridge(0)
	label := []byte(`{"metadata": {"labels": {"jettison/canary": "yes"}}}`)
	if _, err := c.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	agentAndBridge(1)
	c.agentActs(n, true)
	if name := c.release("run"); name == first {
		t.Errorf("ConfigMap %q has the same name with another configuration", name)
	}

	t.Log(c.helm("rollback", "jettison", "1"))
	agentAndBridge(1)
	c.agentActs(n, false)
	if name := c.release("run", "--dry-run"); name != first {
		t.Errorf("ConfigMap after the rollback = %q, want that of the first revision, %q", name, first)
	}
	c.removeChart(n)
}

// removeChart follows the docs (upgrade.md#remove, bridge.md#remove) and checks what is left.
func (c *Cluster) removeChart(n *Node) {
	c.t.Helper()
	t, ctx := c.t, c.t.Context()
	c.Eventually(workloadDeadline, "the node has conditions of its bridge", func(ctx context.Context) error {
		types, err := c.jettisonConditions(ctx, n.Name)
		if err == nil && len(types) == 0 {
			err = fmt.Errorf("conditions = %q", types)
		}
		return err
	})
	if out, err := c.Kubectl(ctx, "", "delete", "-n", "jettison-system", "daemonset", "jettison-bridge", "--cascade=foreground"); err != nil {
		t.Fatalf("delete the DaemonSet of the bridge: %v\n%s", err, out)
	}
	program := filepath.Join(t.TempDir(), "jettison-bridge")
	root, err := build.ModuleRoot(ctx)
	if err == nil {
		_, err = build.Run(ctx, root, nil, "go", "build", "-o", program, "./cmd/jettison-bridge")
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := build.Run(ctx, "", nil, program, "cleanup", "--kubeconfig", c.kubeconf)
	t.Logf("cleanup: %s", out)
	if err != nil {
		t.Errorf("clean up after the bridge: %v", err)
	}
	manifest := c.helm("get", "manifest", "jettison")
	t.Log(c.helm("uninstall", "jettison", "--wait"))

	c.Eventually(workloadDeadline, "no object of the chart exists", func(ctx context.Context) error {
		left, err := c.Kubectl(ctx, manifest, "get", "-f", "-", "--ignore-not-found", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("objects = %q", left)
		}
		return err
	})
	if _, err := c.Client.CoreV1().Namespaces().Get(ctx, "jettison-system", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("read the bridge's namespace: %v, want not found", err)
	}
	if types, err := c.jettisonConditions(ctx, n.Name); err != nil || len(types) > 0 {
		t.Errorf("conditions of the bridge after its removal = %q (%v), want none", types, err)
	}
	c.Eventually(workloadDeadline, "the agent has ended", func(ctx context.Context) error {
		pods, err := c.Client.CoreV1().Pods(v1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=jettison"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods exist", len(pods.Items))
		}
		return err
	})
	folders, err := n.Shell(ctx, "ls -d /etc/jettison /run/jettison /var/lib/jettison 2>/dev/null; true")
	t.Logf("folders that are left on the node: %q (%v)", folders, err)
}
