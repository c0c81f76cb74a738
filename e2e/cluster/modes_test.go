package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// putManager makes a pod of kube-controller-manager as kubeadm does, with the value of
// --controllers, in place of an earlier one.
func (c *Cluster) putManager(node, controllers string) {
	c.t.Helper()
	const name = "kube-controller-manager-cp"
	pods, no := c.Client.CoreV1().Pods(metav1.NamespaceSystem), false
	_ = pods.Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	_, err := pods.Create(c.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"component": "kube-controller-manager", "tier": "control-plane"}},
		Spec: v1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
			Containers: []v1.Container{{Name: "kube-controller-manager", Image: "i", Command: []string{"kube-controller-manager", "--controllers=" + controllers}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// Without a mode the program observes a new cluster. Mode replace reads --controllers of
// kube-controller-manager's pod, and needs othersDisabled where it finds none. If the program has
// acted, it does not run without a mode.
func TestModeMustBeSetToAct(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	m := c.addMembers("cp", "a", "b")
	if out, err := c.Kubectl(t.Context(), "", "label", "node", "cp", "node-role.kubernetes.io/control-plane="); err != nil {
		t.Fatal(out, err)
	}
	if out, err := c.Kubectl(t.Context(), "", "-n", "kube-system", "create", "serviceaccount", "default"); err != nil && !strings.Contains(out, "exists") {
		t.Fatal(out, err)
	}
	bare := []string{"nodes", "--leader-elect-resource-namespace=" + nodeAccount.namespace, "--node-monitor-grace-period=8s",
		"--node-eviction-rate=10", "--replace-quiet=1s"}
	refused := func(code int, want string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), startDeadline)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, slices.Concat(bare, args,
			[]string{"--address=", "--kubeconfig=" + c.accountFile("refused", nodeAccount)})...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := lines[len(lines)-1]
		t.Logf("arguments %q: exit code %d: %s", args, cmd.ProcessState.ExitCode(), last)
		if cmd.ProcessState.ExitCode() != code || !strings.Contains(last, want) {
			t.Errorf("arguments %q: %v, want exit code %d and an error with %q, got %s", args, err, code, want, out.String())
		}
	}

	eye := c.replica(program, "eye", nodeAccount, bare...)
	m.silence("a")
	c.Eventually(startDeadline, "it would taint node a", func(context.Context) error {
		if !strings.Contains(eye.log(), "what=taints node=a") {
			return fmt.Errorf("log without a mode is %s", eye.log())
		}
		return nil
	})
	eye.stop()
	for _, r := range log.of(nodeAccount.user()) {
		if r.writes() {
			t.Errorf("write without a mode: %v (%d)", r, r.ResponseStatus.Code)
		}
	}

	refused(2, "set othersDisabled: true (--others-disabled)", "--mode=replace")
	c.putManager("cp", "*,bootstrapsigner,tokencleaner")
	refused(1, "pod kube-system/kube-controller-manager-cp runs node-lifecycle-controller and taint-eviction-controller", "--mode=replace", "--others-disabled")
	c.putManager("a", MostControllers) // on no control plane node
	refused(2, "no pod of kube-controller-manager was found on a control plane node", "--mode=replace")
	c.putManager("cp", MostControllers)
	r := c.replica(program, "replace", nodeAccount, append(bare, "--mode=replace")...)
	c.awaitLeader(r)
	m.silence("b")
	c.awaitTaints("b", unreachable...)
	r.stop()

	refused(2, "mode is not set, and its Lease jettison-cluster/jettison-cluster-nodes exists")
	err := c.Client.CoordinationV1().Leases(nodeAccount.namespace).Delete(t.Context(), "jettison-cluster-nodes", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	refused(2, "has its taints")
	log.wrote(nodeAccount) // no request exceeded the roles
}
