package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/build"
)

// hollowAtOnce is the number of pods evicted in parallel from a hollow node.
const hollowAtOnce = 50

// The same as TestNoWordIsTakenBack with a kubelet's own code and a fake runtime. It is fast, so
// many trials per moment are possible, and the moments are precise. In place of a gate, the image
// is missing when the kubelet restarts a pod. Killed containers are gone from the runtime, which
// the kubelet reports as exit code 137. Containers stopped gently, by the test or by the kubelet,
// have exit code 0.
func TestNoWordOfAHollowKubeletIsTakenBack(t *testing.T) {
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
	batches := 0
	for _, m := range []moment{
		{}, {wait: 300 * time.Millisecond}, {told: true, wait: 100 * time.Millisecond}, {told: true, wait: time.Second},
		{told: true, wait: 3 * time.Second}, {told: true, wait: 9 * time.Second},
		{wait: 0, never: true}, {wait: 300 * time.Millisecond, never: true}, {wait: 2 * time.Second, never: true},
		{wait: 300 * time.Millisecond, gently: true}, {wait: 300 * time.Millisecond, never: true, gently: true},
	} {
		for _, kept := range []bool{true, false} {
			var f outcomes
			trials := trialsEach(t)
			for left := trials; left > 0; left -= hollowAtOnce {
				v := victims{name: fmt.Sprint("h", batches), count: min(left, hollowAtOnce), pull: v1.PullNever}
				runtime.image(c, true)
				v.kill = func(pods []v1.Pod) time.Time { return runtime.kill(c, pods, m.gently) }
				if kept {
					v.keepOut = func([]v1.Pod) { runtime.image(c, false) }
				}
				c.evictBatch(a, m, v, &f)
				batches++
			}
			t.Logf("rejected %-5v %-53v %d pods: %v", kept, m, trials, &f)
		}
	}
}

// hollow is the fake runtime of a hollow node.
type hollow struct {
	runtimev1.RuntimeServiceClient
	images runtimev1.ImageServiceClient
}

// hollowRuntime starts a hollow node and returns its runtime, which chooses the name of its socket.
func (c *Cluster) hollowRuntime(name string) *hollow {
	c.t.Helper()
	sockets := func() []string {
		all, err := filepath.Glob("/tmp/kubelet_remote_*.sock") // k8s.io/cri-client pkg/fake/endpoint.go, v0.36.3
		if err != nil {
			c.t.Fatal(err)
		}
		return all
	}
	before := sockets()
	c.Hollow(name)
	added := slices.DeleteFunc(sockets(), func(path string) bool { return slices.Contains(before, path) })
	if len(added) != 1 {
		c.t.Fatalf("socket of the runtime of %s = one of %v, want one", name, added)
	}
	path := added[0]
	c.t.Cleanup(func() { _ = os.Remove(path) })
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return &hollow{runtimev1.NewRuntimeServiceClient(conn), runtimev1.NewImageServiceClient(conn)}
}

// image makes the pods' image present or missing.
func (h *hollow) image(c *Cluster, there bool) {
	c.t.Helper()
	spec := &runtimev1.ImageSpec{Image: container("").Image}
	var err error
	if there {
		_, err = h.images.PullImage(c.t.Context(), &runtimev1.PullImageRequest{Image: spec})
	} else {
		_, err = h.images.RemoveImage(c.t.Context(), &runtimev1.RemoveImageRequest{Image: spec})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// kill ends all containers of pods, and returns the start time, in whole seconds.
func (h *hollow) kill(c *Cluster, pods []v1.Pod, gently bool) time.Time {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), workloadDeadline)
	defer cancel()
	at := time.Now().Truncate(time.Second)
	list, err := h.ListContainers(ctx, &runtimev1.ListContainersRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	ended := 0
	for _, p := range pods {
		for _, one := range list.Containers {
			if one.Labels["io.kubernetes.pod.uid"] != string(p.UID) {
				continue
			}
			if gently {
				_, err = h.StopContainer(ctx, &runtimev1.StopContainerRequest{ContainerId: one.Id})
			} else {
				_, err = h.RemoveContainer(ctx, &runtimev1.RemoveContainerRequest{ContainerId: one.Id})
			}
			if err != nil {
				c.t.Fatal(err)
			}
			ended++
		}
	}
	if ended < len(pods) {
		c.t.Fatalf("%d containers of %d pods ended, want all", ended, len(pods))
	}
	return at
}
