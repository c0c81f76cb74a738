package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/build"
)

const mib = 1 << 20

// A Deployment's pod leaks on a node with the agent from its DaemonSet. The agent evicts only that
// pod, and the kernel's OOM killer kills none.
func TestTheAgentEvictsOnACluster(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	n := c.Join(NodeOptions{})
	c.Deploy("web", 2, "alloc -size 8Mi")
	c.Available("web", 2)
	size := installAgent(t, c, n)
	neighbours := neighbours(t, c)

	c.Deploy("leaker", 1, "alloc -rate 60Mi -size "+size)
	agent := agentPod(t, c)
	var line, victim string
	c.Eventually(workloadDeadline, "the agent has evicted a pod", func(ctx context.Context) error {
		text, err := c.Logs(ctx, agent)
		if err != nil {
			return err
		}
		for l := range strings.Lines(text) {
			if strings.Contains(l, "msg=evicted ") {
				line = strings.TrimSpace(l)
				return nil
			}
		}
		return fmt.Errorf("agent's log ends with %s", text[max(0, len(text)-1000):])
	})
	t.Log(line)
	c.Eventually(workloadDeadline, "the API has the leaker's end", func(ctx context.Context) (err error) {
		victim, err = killed(ctx, c, "app=leaker")
		return err
	})
	if !strings.Contains(line, "victim=default/"+victim+" ") {
		t.Errorf("pod %s was killed, but the agent logged %s", victim, line)
	}
	for name, before := range neighbours {
		after, err := c.Client.CoreV1().Pods(before.Namespace).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil || after.UID != before.UID || restarts(*after) != 0 {
			t.Errorf("pod %s did not survive: %v, restarts %d", name, err, restarts(*after))
		}
	}
}

// installAgent applies the agent's DaemonSet as an operator does, and waits until it is ready. It
// returns the size of the leak that crosses the threshold. On a machine with more memory than a
// test may use, the agent gets a threshold near the available memory.
func installAgent(t *testing.T, c *Cluster, n *Node) (size string) {
	t.Helper()
	root, err := build.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder, size := filepath.Join(root, "deploy/overlays/containerd"), "4Gi"
	if n.Node == nil {
		folder, size = nearThreshold(t, c, n.Name, folder), "1Gi"
	}
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", folder); err != nil {
		t.Fatalf("apply the agent's manifests: %v\n%s", err, out)
	}
	c.DaemonSetReady("kube-system", "jettison")
	return size
}

// nearThreshold makes an overlay on top of an overlay, with a threshold half a gibibyte below the
// available memory.
func nearThreshold(t *testing.T, c *Cluster, node, overlay string) (folder string) {
	t.Helper()
	text, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + node + "/proxy/stats/summary").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var summary struct {
		Node struct {
			Memory struct{ AvailableBytes int64 }
		}
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	base, err := filepath.Rel(folder, overlay)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": "resources: [" + base + "]\nnamespace: kube-system\n" +
			"configMapGenerator: [{name: jettison, behavior: merge, files: [config.yaml]}]\n",
		"config.yaml": fmt.Sprintf("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHard: {memory.available: %dMi}\n",
			summary.Node.Memory.AvailableBytes/mib-512),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// agentPod returns the agent's pod, of which one must exist.
func agentPod(t *testing.T, c *Cluster) v1.Pod {
	t.Helper()
	pods, err := c.Pods(t.Context(), "kube-system", "app.kubernetes.io/name=jettison")
	if err != nil || len(pods) != 1 {
		t.Fatalf("pods of the agent = %d, want 1 (%v)", len(pods), err)
	}
	return pods[0]
}

// neighbours returns the pods that must survive, by a readable name.
func neighbours(t *testing.T, c *Cluster) map[string]v1.Pod {
	t.Helper()
	pods, err := c.Pods(t.Context(), "default", "app=web")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.Pod{"the agent": agentPod(t, c)}
	for _, p := range pods {
		out[p.Name] = p
	}
	return out
}

// killed returns the pod of a selector with a killed container.
func killed(ctx context.Context, c *Cluster, selector string) (name string, err error) {
	pods, err := c.Pods(ctx, "default", selector)
	if err != nil {
		return "", err
	}
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			for _, state := range []*v1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
				if state != nil && state.ExitCode == 137 {
					return p.Name, nil
				}
			}
		}
	}
	return "", errors.New("no container of the pods was killed")
}

func restarts(p v1.Pod) (n int32) {
	for _, s := range p.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}
