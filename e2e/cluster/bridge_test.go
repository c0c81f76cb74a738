package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/vm"
)

// steady is how long a failed pod must stay unchanged: the kubelet's late status reports come
// within 12 s.
const steady = 20 * time.Second

// One of three pods of a Deployment leaks, on a node with agent and bridge from their DaemonSets.
// The API server has the pod as evicted, with the kubelet's texts, and it keeps that status. Its
// owner replaces it, and no other pod changes.
func TestPromiseAnEvictionIsSeenOnTheCluster(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	c.Deploy("shop", 3, "leak /leak")
	c.Available("shop", 3)
	c.installBridge(n)
	before := c.podsOf("default", "app=shop")
	victim := before[0]
	sights := c.watch("default")
	n.leak(t, victim.UID, "60Mi")

	failed := c.awaitFailed(victim)
	c.hasEviction(failed)
	c.Available("shop", 3)
	c.steady(sights, victim.UID)
	for _, p := range before[1:] {
		c.expectUnchanged(p)
	}
	if after := c.podsOf("default", "app=shop"); len(after) != 4 {
		t.Errorf("pods of the Deployment = %d, want the evicted one and three", len(after))
	}
	c.logFailedDelay(victim)
	c.expectNodeCondition(n)
	out, err := c.Kubectl(t.Context(), "", "describe", "pod", victim.Name)
	t.Logf("kubectl describe pod: %v\n%s", err, out)
}

// installBridge applies agent and bridge as an operator does, and waits until both are ready.
func (c *Cluster) installBridge(n *Node) {
	c.t.Helper()
	ctx := c.t.Context()
	c.importProgram(n, "jettison-bridge")
	if out, err := c.Kubectl(ctx, "", "apply", "-k", filepath.Join(moduleRoot(c.t), "deploy/overlays/bridge")); err != nil {
		c.t.Fatalf("apply the manifests of agent and bridge: %v\n%s", err, out)
	}
	c.DaemonSetReady("kube-system", "jettison")
	c.DaemonSetReady("jettison-system", "jettison-bridge")
	c.Eventually(workloadDeadline, "the agent has been told of all pods", func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		if err == nil && (s.Pods.ClientSynced == nil || s.Pods.Objects == 0) {
			err = fmt.Errorf("pods in the agent's state = %+v", s.Pods)
		}
		return err
	})
}

// importProgram builds the image of a program and loads it on a node.
func (c *Cluster) importProgram(n *Node, name string) {
	c.t.Helper()
	ctx, file := c.t.Context(), "/"+name+".tar"
	tar, err := vm.PackProgram(ctx, name)
	if err == nil {
		err = n.Upload(ctx, tar, file)
	}
	if err == nil {
		err = n.Import(ctx, file)
	}
	if err != nil {
		c.t.Fatalf("load the image of %s on %s: %v", name, n.Name, err)
	}
}

// podsOf returns a selector's pods, of which at least one must exist.
func (c *Cluster) podsOf(namespace, selector string) []v1.Pod {
	c.t.Helper()
	pods, err := c.Pods(c.t.Context(), namespace, selector)
	if err != nil || len(pods) == 0 {
		c.t.Fatalf("pods with %[2]s = %[1]d, want at least one (%[3]v)", len(pods), selector, err)
	}
	return pods
}

// leak makes the program of a pod, which waits at its FIFO, leak so many bytes a second.
func (n *Node) leak(t testing.TB, pod types.UID, rate string) {
	t.Helper()
	// A container's cgroup is below the pod's. The pause program has no FIFO.
	script := fmt.Sprintf(`for f in $(find /sys/fs/cgroup -path '*pod%s*' -o -path '*pod%s*' | grep 'cgroup.procs$'); do
		for p in $(cat $f); do [ -p /proc/$p/root/leak ] && echo %s > /proc/$p/root/leak && echo told; done
	done; true`, pod, strings.ReplaceAll(string(pod), "-", "_"), rate)
	ctx, cancel := context.WithTimeout(t.Context(), workloadDeadline)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for { // a running program may not have made its FIFO yet
		out, err := n.Shell(ctx, script)
		if err == nil && strings.Contains(out, "told") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("start the leak of pod %s: %q, %v", pod, out, err)
		}
	}
}

// awaitFailed waits until a pod's phase is Failed at the API server.
func (c *Cluster) awaitFailed(pod v1.Pod) (out v1.Pod) {
	c.t.Helper()
	c.Eventually(workloadDeadline, pod.Name+" is Failed", func(ctx context.Context) error {
		p, err := c.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != v1.PodFailed {
			err = fmt.Errorf("pod's phase is %s", p.Status.Phase)
		}
		if err == nil {
			out = *p
		}
		return err
	})
	return out
}

// lowOnMemory matches the kubelet's message, with the container that is over its request.
var lowOnMemory = regexp.MustCompile(`^The node was low on resource: memory\. Threshold quantity: \S+, available: \S+\. ` +
	`Container main was using [1-9]\d*\S*, request is 0, has larger consumption of memory\. $`)

// hasStatus checks a pod's status.
func (c *Cluster) hasStatus(p v1.Pod) {
	c.t.Helper()
	if p.Status.Reason != "Evicted" || !lowOnMemory.MatchString(p.Status.Message) {
		c.t.Errorf("reason %q, message %q, want the kubelet's of an eviction", p.Status.Reason, p.Status.Message)
	}
	if p.Annotations["jettison/evicted"] == "" {
		c.t.Errorf("annotations of the evicted pod = %v", p.Annotations)
	}
	want := map[v1.PodConditionType]string{
		v1.DisruptionTarget: "True EvictionByJettison", v1.PodReady: "False PodFailed", v1.ContainersReady: "False PodFailed",
	}
	for _, condition := range p.Status.Conditions {
		if is := string(condition.Status) + " " + condition.Reason; want[condition.Type] == is {
			delete(want, condition.Type)
		}
	}
	if len(want) > 0 {
		c.t.Errorf("conditions = %+v, missing %v of them", p.Status.Conditions, want)
	}
}

// hasEviction checks a pod's status and its events.
func (c *Cluster) hasEviction(p v1.Pod) {
	c.t.Helper()
	c.hasStatus(p)
	c.Eventually(workloadDeadline, "the pod and the node have events", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "source=jettison"})
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for _, e := range list.Items {
			seen[e.InvolvedObject.Kind+" "+e.Reason]++
			if e.Reason == "Evicted" && (e.InvolvedObject.UID != p.UID || e.Annotations["starved_resource"] != "memory" ||
				e.Annotations["offending_containers"] != "main" || e.Annotations["offending_containers_usage"] == "") {
				return fmt.Errorf("unexpected event %+v", e)
			}
		}
		if seen["Pod Evicted"] != 1 || seen["Node EvictionThresholdMet"] != 1 {
			return fmt.Errorf("events of the pod = %v", seen)
		}
		return nil
	})
}

// expectUnchanged checks that a pod is unchanged.
func (c *Cluster) expectUnchanged(before v1.Pod) {
	c.t.Helper()
	after, err := c.Client.CoreV1().Pods(before.Namespace).Get(c.t.Context(), before.Name, metav1.GetOptions{})
	if err != nil || after.UID != before.UID || restarts(*after) != restarts(before) || after.Status.Phase != v1.PodRunning {
		c.t.Errorf("pod %s did not survive: %v, restarts %d, phase %s", before.Name, err, restarts(*after), after.Status.Phase)
	}
}

// sight is a state of a pod that a watch reported.
type sight struct {
	at    time.Time
	uid   types.UID
	words string
}

// sights has all states that a watch reported.
type sights struct {
	mu   sync.Mutex
	all  []sight
	died map[types.UID]bool // pods with a container that has ended since
	more chan struct{}      // closed and replaced when there is more
}

// watch watches a namespace's pods until the test ends.
func (c *Cluster) watch(namespace string) *sights {
	c.t.Helper()
	w, err := c.Client.CoreV1().Pods(namespace).Watch(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	out, done := &sights{died: map[types.UID]bool{}, more: make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok {
				out.add(p)
			}
		}
	}()
	c.t.Cleanup(func() { w.Stop(); <-done })
	return out
}

func (s *sights) add(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sight{time.Now(), p.UID, strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Reason)})
	ended := func(c v1.ContainerStatus) bool {
		return c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	}
	s.died[p.UID] = s.died[p.UID] || slices.ContainsFunc(p.Status.ContainerStatuses, ended)
	close(s.more)
	s.more = make(chan struct{})
}

// of returns the reported states of a pod, without repetitions, and the time of the last.
func (s *sights) of(pod types.UID) (words []string, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.uid == pod {
			words, last = append(words, one.words), one.at
		}
	}
	return slices.Compact(words), last
}

// steady waits until a failed pod's status has not changed for long enough, and checks that it
// failed once and kept its reason.
func (c *Cluster) steady(s *sights, pod types.UID) {
	c.t.Helper()
	c.Eventually(workloadDeadline, "nothing more is told of the pod", func(context.Context) error {
		if _, last := s.of(pod); time.Since(last) < steady {
			return errors.New("the pod's status has just changed")
		}
		return nil
	})
	words, _ := s.of(pod)
	if want := []string{"Running", "Failed Evicted"}; !slices.Equal(words, want) {
		c.t.Errorf("states of the pod = %q, want %q", words, want)
	}
	c.t.Logf("states of the pod: %q", words)
}

// logFailedDelay logs how long after the kill the pod was set to Failed, by the guest's clock.
func (c *Cluster) logFailedDelay(pod v1.Pod) {
	c.t.Helper()
	bridge := c.podsOf("jettison-system", "app.kubernetes.io/name=jettison-bridge")[0]
	text, err := c.Logs(c.t.Context(), bridge)
	if err != nil {
		c.t.Fatal(err)
	}
	said := false
	for line := range strings.Lines(text) {
		if strings.Contains(line, string(pod.UID)) {
			c.t.Log(strings.TrimSpace(line))
			said = said || strings.Contains(line, `msg="pod set to Failed"`)
		}
	}
	if !said {
		c.t.Errorf("bridge's log lacks the failed pod %s:\n%s", pod.Name, text)
	}
}

// expectNodeCondition checks the conditions and annotations that the bridge reports of its node after an
// eviction for memory.
func (c *Cluster) expectNodeCondition(n *Node) {
	c.t.Helper()
	c.Eventually(workloadDeadline, "the node's conditions and load are told", func(ctx context.Context) error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := map[v1.NodeConditionType]v1.ConditionStatus{}
		for _, condition := range node.Status.Conditions {
			is[condition.Type] = condition.Status
		}
		if is["JettisonMemoryPressure"] != v1.ConditionTrue || is["JettisonDiskPressure"] != v1.ConditionFalse || is["JettisonPIDPressure"] != v1.ConditionFalse {
			return fmt.Errorf("node's conditions = %v", is)
		}
		lease, err := c.Client.CoordinationV1().Leases("jettison-system").Get(ctx, n.Name, metav1.GetOptions{})
		if err == nil && lease.Annotations["jettison/load"] == "" {
			err = fmt.Errorf("annotations of the Lease = %v", lease.Annotations)
		}
		if err == nil {
			c.t.Log("load: ", lease.Annotations["jettison/load"])
		}
		return err
	})
}
