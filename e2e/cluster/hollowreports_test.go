package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/build"
)

// ending describes how pods end and when their eviction is reported.
type ending struct {
	name    string
	restart v1.RestartPolicy
	init    bool // they are killed before they are initialized
	gently  bool
	wait    time.Duration // after the kubelet reported the container's end; below zero: immediately
}

// endings are those that a kubelet reaches by itself before it learns of the eviction: it has
// reported the containers' ends, and does not sync the pod again afterwards.
var endings = []ending{
	{name: "killed", restart: v1.RestartPolicyNever, wait: 1900 * time.Millisecond},
	{name: "stopped", restart: v1.RestartPolicyNever, gently: true, wait: 1900 * time.Millisecond},
	{name: "stopped-onfailure", restart: v1.RestartPolicyOnFailure, gently: true, wait: 1500 * time.Millisecond},
	{name: "init", restart: v1.RestartPolicyNever, init: true, wait: -1},
}

// Times of TestNoHollowKubeletIsRefusedForEver: a kubelet that is rejected for longer than
// refusedFor is rejected in each refusedAgain.
const (
	refusedFor   = 80 * time.Second
	refusedAgain = 22 * time.Second
)

// After the eviction of a pod that ended in any way, its kubelet's status is rejected for at most a
// minute. Otherwise the kubelet would retry every ten seconds for as long as the pod exists.
func TestNoHollowKubeletIsRefusedForEver(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	runtime := c.hollowRuntime("hollow")
	root, err := build.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", filepath.Join(root, "deploy/overlays/bridge")); err != nil {
		t.Fatalf("kubectl apply of the manifests failed: %v\n%s", err, out)
	}
	for namespace, name := range map[string]string{bridgeNamespace: "jettison-bridge", "kube-system": "jettison"} {
		if out, err := c.Kubectl(t.Context(), "", "-n", namespace, "delete", "daemonset", name); err != nil {
			t.Fatalf("delete the bridge's DaemonSet: %v\n%s", err, out)
		}
	}
	a := startFakeAgent(t)
	runBridge(t, c, a, "hollow")
	runtime.image(c, true)
	trials := trialsEach(t)
	for _, e := range endings {
		var pods []v1.Pod
		for i := range trials {
			c.endingPod(fmt.Sprintf("%s-%d", e.name, i), &e)
		}
		if e.init {
			pods = c.awaitAllInitializing(e.name, trials)
		} else {
			pods = c.awaitAllRunning(e.name, trials)
		}
		seen := c.watch("default")
		killed := runtime.kill(c, pods, e.gently)
		runtime.end(c, pods)
		var words sync.WaitGroup
		for i := range pods {
			words.Go(func() {
				if e.wait >= 0 {
					if !seen.death(t.Context(), pods[i].UID) {
						t.Errorf("pod %s: the kubelet has not reported its end", pods[i].Name)
					}
					time.Sleep(e.wait) // the moment under test
				}
				a.reportKilledAt(&pods[i], killed)
			})
		}
		words.Wait()
	}
	time.Sleep(refusedFor)
	log := c.path("hollow.log")
	before, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(refusedAgain)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("rejected writes of the kubelet: ", refusals(string(text)))
	for _, m := range refused.FindAllStringSubmatch(string(text[before.Size():]), -1) {
		t.Errorf("pod %s: the kubelet's writes are still rejected: %s", m[1], m[0])
	}
	all, err := c.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, m := range refused.FindAllStringSubmatch(string(text), -1) {
		times[m[1]]++
	}
	for i := range all.Items {
		p := &all.Items[i]
		var states []string
		for _, s := range p.Status.ContainerStatuses {
			switch {
			case s.State.Terminated != nil:
				states = append(states, fmt.Sprint(s.State.Terminated.ExitCode))
			case s.State.Running != nil:
				states = append(states, "running")
			default:
				states = append(states, "waiting")
			}
		}
		t.Logf("%s: %s %q %s, rejected %d times, %s", p.Name, p.Status.Phase, p.Status.Reason, strings.Join(states, ","),
			times[p.Namespace+"/"+p.Name], p.Annotations["jettison/evicted"])
	}
}

// endingPod makes a pod that ends in a way.
func (c *Cluster) endingPod(name string, e *ending) {
	c.t.Helper()
	grace, no := int64(2), false
	one := v1.Container{Name: "main", Image: container("").Image, ImagePullPolicy: v1.PullNever, Args: []string{"alloc", "-size", "1Mi"}}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": e.name}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, RestartPolicy: e.restart, Containers: []v1.Container{one},
		},
	}
	if e.init {
		first := one
		first.Name = "first"
		p.Spec.InitContainers = []v1.Container{first}
	}
	if _, err := c.Client.CoreV1().Pods("default").Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// awaitAllInitializing waits until the init containers of all pods run.
func (c *Cluster) awaitAllInitializing(app string, count int) (out []v1.Pod) {
	c.t.Helper()
	c.Eventually(2*workloadDeadline, "all pods start", func(ctx context.Context) error {
		pods, err := c.Pods(ctx, "default", "app="+app)
		if err != nil {
			return err
		}
		if len(pods) != count {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		for _, p := range pods {
			if len(p.Status.InitContainerStatuses) == 0 || p.Status.InitContainerStatuses[0].State.Running == nil {
				return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
		}
		out = pods
		return nil
	})
	return out
}

// end ends the sandboxes of pods, as the agent does.
func (h *hollow) end(c *Cluster, pods []v1.Pod) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), workloadDeadline)
	defer cancel()
	list, err := h.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, one := range list.Items {
		for _, p := range pods {
			if one.Metadata.Uid != string(p.UID) {
				continue
			}
			if _, err := h.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: one.Id}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}
