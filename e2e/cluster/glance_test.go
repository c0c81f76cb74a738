package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/e2e/build"
)

// simulated is the number of nodes without a machine.
const simulated = 1000

// With the roles of deploy/kubectl a user sees a thousand nodes in one table, and with bridges only.
// One node has a real bridge: the policies admit its load, and its eviction is in the report.
func TestTheClusterAtAGlance(t *testing.T) {
	c := Start(t, Options{})
	installBridge(t, c)
	plugin := buildPlugin(t)
	viewer := c.pluginUser("viewer", "jettison-viewers")
	manyLeases(t, c)
	a := startFakeAgent(t)
	runBridge(t, c, a, "n1")
	pod := runningPod(t, c, "leaker", "n1", nil)
	c.Eventually(workloadDeadline, "the agent knows its pod", a.hasPod(pod))
	a.reportEvicted(pod)

	var out string
	c.Eventually(workloadDeadline, "n1 has the load of its bridge", func(context.Context) error {
		began := time.Now()
		text, reason, code := command(t, plugin, "status", "--kubeconfig="+viewer)
		took := time.Since(began)
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, reason)
		}
		if out = text; !strings.Contains(text, "\nn1 ") || !strings.Contains(text, "simulated-agent") {
			return errors.New(build.Tail(text, 1000))
		}
		t.Logf("status of %d nodes after %v", simulated, took)
		return nil
	})
	lines := strings.SplitN(out, "\n", 8)
	t.Logf("first lines:\n%s", strings.Join(lines[:7], "\n"))
	if want := fmt.Sprintf("%d nodes: %d with a running agent", simulated+2, simulated+1); !strings.HasPrefix(lines[0], want) {
		t.Errorf("summary %q, want %q", lines[0], want)
	}
	if !strings.Contains(out, "unknown NEAREST THRESHOLD, HEADROOM, STALLED: no bridge has reported it (n2)") {
		t.Errorf("status does not say that the load of n2 is unknown:\n%s", build.Tail(out, 1000))
	}
	c.Eventually(workloadDeadline, "the report has the eviction", func(context.Context) error {
		text, reason, code := command(t, plugin, "report", "--events-only", "--kubeconfig="+viewer)
		if code != 0 || !strings.Contains(text, "default/leaker") || !strings.Contains(text, "1 eviction,") {
			return fmt.Errorf("exit code %d: %s%s", code, build.Tail(text, 1000), reason)
		}
		return nil
	})
}

// A user with jettison-exec runs the agent's commands on a node, and reads its records for the
// report. A user without it sees the missing permission.
func TestThePluginReachesTheAgent(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	size := installAgent(t, c, n)
	if out, err := c.Kubectl(t.Context(), "", "create", "namespace", bridgeNamespace); err != nil {
		t.Fatalf("create the namespace of the Leases: %v\n%s", err, out)
	}
	plugin := buildPlugin(t)
	viewer, operator := c.pluginUser("viewer", "jettison-viewers"), c.pluginUser("operator", "jettison-operators")
	out, reason, code := command(t, plugin, "status", "--kubeconfig="+viewer)
	if code != 0 || !strings.Contains(out, "1 node: 1 with a running agent") || !strings.Contains(out, "no bridge has reported it") {
		t.Errorf("status with agents only: exit code %d\n%s%s", code, out, reason)
	}
	t.Logf("status:\n%s", out)
	if _, reason, code = command(t, plugin, "explain", "--kubeconfig="+viewer, n.Name); code != 1 || !strings.Contains(reason, "get and create on pods/exec") {
		t.Errorf("explain without pods/exec: exit code %d, want 1 with the missing permission: %s", code, reason)
	}
	var outlook api.Outlook
	out, reason, code = command(t, plugin, "explain", "--kubeconfig="+operator, n.Name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &outlook); code != 0 || err != nil || len(outlook.Thresholds) == 0 {
		t.Errorf("explain of the node: exit code %d, %v: %s%s", code, err, build.Tail(out, 500), reason)
	}
	if out, reason, code = command(t, plugin, "records", "--kubeconfig="+operator, n.Name, "no-such-record"); code != 1 ||
		out != "" || !strings.Contains(reason, "jettison: records: no record's ID begins with") {
		t.Errorf("records of a missing ID: exit code %d, want that of the agent's command: %s%s", code, out, reason)
	}
	c.Deploy("leaker", 1, "alloc -rate 60Mi -size "+size)
	c.Eventually(workloadDeadline, "the report has the eviction", func(context.Context) error {
		out, reason, code = command(t, plugin, "report", "--kubeconfig="+operator, "-o", "wide")
		if code != 0 || !strings.Contains(out, "default/leaker-") || !strings.Contains(out, "records of 1 of 1 node") {
			return fmt.Errorf("exit code %d: %s%s", code, build.Tail(out, 1000), reason)
		}
		return nil
	})
	t.Logf("report:\n%s", out)
}

// buildPlugin builds kubectl-jettison.
func buildPlugin(t testing.TB) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "kubectl-jettison")
	if _, err := build.Run(t.Context(), moduleRoot(t), []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", program,
		"./cmd/kubectl-jettison"); err != nil {
		t.Fatal(err)
	}
	return program
}

// pluginUser applies the roles of deploy/kubectl and writes the kubeconfig of a user in a group.
func (c *Cluster) pluginUser(name, group string) (kubeconfig string) {
	c.t.Helper()
	if out, err := c.Kubectl(c.t.Context(), "", "apply", "-f", filepath.Join(moduleRoot(c.t), "deploy/kubectl/rbac.yaml")); err != nil {
		c.t.Fatalf("apply the roles of the plugin: %v\n%s", err, out)
	}
	text, err := Kubeconfig(c.As(name, group))
	kubeconfig = c.path(name + ".conf")
	if err == nil {
		err = os.WriteFile(kubeconfig, text, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return kubeconfig
}

// manyLeases makes nodes, each with a Lease as its bridge writes it.
func manyLeases(t testing.TB, c *Cluster) {
	t.Helper()
	names, failed := make(chan string), make(chan error, simulated)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for name := range names {
				headroom := int64(1 << 30)
				load := api.NodeLoad{Time: time.Now(), AgentVersion: "simulated", HeadroomBytes: &headroom,
					Nearest: &api.NearestThreshold{Signal: "memory.available", Threshold: "memory.available<100Mi", HeadroomPercent: 12.5}}
				node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{api.LoadAnnotation: load.Annotation()}}}
				_, nodeErr := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
				_, leaseErr := c.Client.CoordinationV1().Leases(bridgeNamespace).Create(t.Context(), lease, metav1.CreateOptions{})
				if err := errors.Join(nodeErr, leaseErr); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range simulated {
		names <- fmt.Sprintf("m%04d", i)
	}
	close(names)
	if workers.Wait(); len(failed) > 0 {
		t.Fatalf("creation of %d nodes and Leases failed: %v", simulated, <-failed)
	}
}
