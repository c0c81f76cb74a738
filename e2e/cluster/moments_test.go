package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/e2e/build"
)

// trialsOfMoments is how many pods are evicted at each moment, where JETTISON_TRIALS does not say.
const trialsOfMoments = 3

// mostAtOnce are evicted at once.
const mostAtOnce = 25

// moment is when a bridge is told that nothing of a pod is left, so that it writes: after the kill, or after the kubelet has told the API
// that the pod's container died.
type moment struct {
	told  bool
	wait  time.Duration
	never bool // pods that are not restarted: their kubelet has them Failed by itself
}

func (m moment) String() string {
	text := fmt.Sprintf("%v after the kill", m.wait)
	if m.told {
		text = fmt.Sprintf("%v after the kubelet told", m.wait)
	}
	if m.never {
		text += ", restartPolicy Never"
	}
	return text
}

// fate is what the API had of evicted pods in the end.
type fate struct {
	failed int // once, and Failed Evicted ever since
	mute   int // of these: their kubelet could not tell how their containers ended
	lived  int // never Failed: a container had started anew, and the bridge said so
	ended  int // Failed by their kubelet before the bridge was told
}

// Whatever moment the word of an eviction reaches the API at, beside a kubelet that is about to report the death, or to start the pod anew,
// or has done so: no pod that was Failed runs again, none loses its reason, and one that has come back before it lives. The pods are
// killed by the test, as the agent does, and the bridge is told of it by the test; the kubelet, the API and the bridge are real. Where the
// gate is on, a real agent keeps the pods out.
func TestNoWordIsTakenBack(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.own()
	n := c.Join(NodeOptions{})
	root, err := build.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", filepath.Join(root, "deploy/overlays/bridge")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The bridge is the test's.
	if out, err := c.Kubectl(t.Context(), "", "-n", bridgeNamespace, "delete", "daemonset", "jettison-bridge"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.DaemonSetReady("kube-system", "jettison")
	a := speakForAnAgent(t)
	runBridge(t, c, a, n.Name)
	c.Eventually(workloadDeadline, "the bridge tells of pods", func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.version == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	moments := []moment{
		{wait: 300 * time.Millisecond}, {told: true, wait: 100 * time.Millisecond}, {told: true, wait: time.Second},
		{told: true, wait: 3 * time.Second}, {told: true, wait: 9 * time.Second},
		{wait: 300 * time.Millisecond, never: true}, {wait: 2 * time.Second, never: true},
	}
	trials, batches := trialsOfMoments, 0
	if text := os.Getenv("JETTISON_TRIALS"); text != "" {
		if trials, err = strconv.Atoi(text); err != nil || trials <= 0 {
			t.Fatalf("JETTISON_TRIALS %q: want a number of pods", text)
		}
	}
	for _, gate := range []bool{true, false} {
		for _, m := range moments {
			var f fate
			for left := trials; left > 0; left -= mostAtOnce {
				c.batch(n, a, m, gate, fmt.Sprint("b", batches), min(left, mostAtOnce), &f)
				batches++
			}
			t.Logf("gate %-5v %-30v %d pods: %d Failed (of %d it is not told how their containers ended), %d had ended before, %d came back before and live",
				gate, m, trials, f.failed, f.mute, f.ended, f.lived)
		}
	}
}

// batch evicts pods that were made for it.
func (c *Cluster) batch(n *Node, a *spokenFor, m moment, gate bool, name string, count int, f *fate) {
	c.t.Helper()
	ctx := c.t.Context()
	for i := range count {
		c.bare(fmt.Sprintf("%s-%d", name, i), name, m.never)
	}
	pods := c.allRun(name, count)
	if gate {
		c.keptOut(n, pods)
	}
	seen := c.watch("default")
	killed := n.kill(c, pods)
	var words sync.WaitGroup
	for i := range pods {
		words.Go(func() {
			if m.told && !seen.death(ctx, pods[i].UID) {
				c.t.Errorf("gate %v, %v: the kubelet has not told that %s died", gate, m, pods[i].Name)
			}
			select {
			case <-ctx.Done():
			case <-time.After(m.wait): // the moment that is tried
			}
			a.tellKilled(&pods[i], killed)
		})
	}
	words.Wait()
	c.Eventually(2*workloadDeadline, "nothing more is told of the pods", func(context.Context) error {
		for _, p := range pods {
			if _, last := seen.of(p.UID); time.Since(last) < steady {
				return fmt.Errorf("something was told of %s just now", p.Name)
			}
		}
		return nil
	})
	for _, p := range pods {
		c.judge(seen, p, fmt.Sprintf("gate %v, %v", gate, m), m.never, f)
	}
	made := metav1.ListOptions{LabelSelector: "app=" + name}
	if err := c.Client.CoreV1().Pods("default").DeleteCollection(ctx, *metav1.NewDeleteOptions(0), made); err != nil {
		c.t.Fatal(err)
	}
}

// judge finds what became of a pod. never: it is not restarted.
func (c *Cluster) judge(seen *sights, p v1.Pod, when string, never bool, f *fate) {
	c.t.Helper()
	words, _ := seen.of(p.UID)
	words = slices.DeleteFunc(words, func(w string) bool { return w == "Pending" })
	words = slices.Compact(words)
	switch {
	case slices.Equal(words, []string{"Running", "Failed Evicted"}):
		f.failed++
		is, err := c.Client.CoreV1().Pods(p.Namespace).Get(c.t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		if slices.ContainsFunc(is.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.State.Terminated == nil }) {
			f.mute++
		}
	case slices.Equal(words, []string{"Running"}) && !never:
		f.lived++
		list, err := c.Client.CoreV1().Events("default").List(c.t.Context(), metav1.ListOptions{
			FieldSelector: "source=jettison,reason=EvictionOutlived,involvedObject.uid=" + string(p.UID),
		})
		if err != nil || len(list.Items) != 1 {
			c.t.Errorf("%s: %s lives, and %d events say so (%v)", when, p.Name, len(list.Items), err)
		}
	case slices.Equal(words, []string{"Running", "Failed"}) && never:
		f.ended++
	default:
		c.t.Errorf("%s: %s was %q", when, p.Name, words)
	}
}

// bare makes a pod that nobody makes again.
func (c *Cluster) bare(name, app string, never bool) {
	c.t.Helper()
	grace, no, restart := int64(2), false, v1.RestartPolicyAlways
	if never {
		restart = v1.RestartPolicyNever
	}
	_, err := c.Client.CoreV1().Pods("default").Create(c.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, RestartPolicy: restart,
			Containers: []v1.Container{{
				Name: "main", Image: container("").Image, ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"alloc", "-size", "1Mi"},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// allRun waits until all pods run.
func (c *Cluster) allRun(app string, count int) (out []v1.Pod) {
	c.t.Helper()
	c.Eventually(2*workloadDeadline, "all pods run", func(ctx context.Context) error {
		pods, err := c.Pods(ctx, "default", "app="+app)
		for _, p := range pods {
			if p.Status.Phase != v1.PodRunning {
				err = fmt.Errorf("%s is %s; events: %v", p.Name, p.Status.Phase, c.events(ctx))
			}
		}
		if len(pods) != count {
			err = fmt.Errorf("there are %d", len(pods))
		}
		out = pods
		return err
	})
	return out
}

// stateFile is the agent's, on its node.
const stateFile = "/var/lib/jettison/state.json"

// keptOut has the agent on the node keep pods out, as after their evictions: a new one finds that in what the one before it has left.
func (c *Cluster) keptOut(n *Node, pods []v1.Pod) {
	c.t.Helper()
	type holdOff struct {
		UID    string    `json:"uid"`
		Until  time.Time `json:"until"`
		Reason string    `json:"reason"`
		Times  int       `json:"times"`
		Signal string    `json:"signal"`
	}
	var state struct {
		Version  int       `json:"version"`
		Time     time.Time `json:"time"`
		HoldOffs []holdOff `json:"holdOffs"`
	}
	state.Version, state.Time = 2, time.Now()
	for _, p := range pods {
		state.HoldOffs = append(state.HoldOffs, holdOff{string(p.UID), time.Now().Add(4 * time.Minute), "it was evicted", 5, "memory.available"})
	}
	text, err := json.Marshal(&state)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, agent := c.t.Context(), c.podsOf("kube-system", "app.kubernetes.io/name=jettison")[0]
	if err := n.signal(ctx, "KILL", "jettison"); err != nil {
		c.t.Fatal(err)
	}
	if err := n.WriteFile(ctx, stateFile, text); err != nil {
		c.t.Fatal(err)
	}
	// A new pod does not wait as a container that has failed does.
	if err := c.Client.CoreV1().Pods(agent.Namespace).Delete(ctx, agent.Name, *metav1.NewDeleteOptions(0)); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(workloadDeadline, "the agent keeps the pods out", func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		switch {
		case err != nil:
			return err
		case s.Gate == nil || !s.Gate.Asked:
			return fmt.Errorf("the runtime does not ask: %+v", s.Gate)
		}
		for _, p := range pods {
			if !slices.ContainsFunc(s.Gate.Holds, func(h api.HoldState) bool { return h.UID == string(p.UID) }) {
				return fmt.Errorf("%s is not kept out: %+v", p.Name, s.Gate.Holds)
			}
		}
		return nil
	})
}

// signal sends a signal to the processes of a name, of which there has to be one at least. The guest has no pkill.
func (n *Node) signal(ctx context.Context, signal, name string) error {
	out, err := n.Shell(ctx, fmt.Sprintf(
		`for d in /proc/[0-9]*; do read -r c 2>/dev/null <$d/comm && [ "$c" = %s ] && kill -%s ${d#/proc/} && echo ${d#/proc/}; done; true`, name, signal))
	if err == nil && out == "" {
		err = fmt.Errorf("no process of the guest is called %s", name)
	}
	return err
}

// kill kills all that runs in pods, and returns when it began, by the guest's clock in whole seconds.
func (n *Node) kill(c *Cluster, pods []v1.Pod) time.Time {
	c.t.Helper()
	script := "date +%s"
	for _, p := range pods {
		script += fmt.Sprintf("; echo 1 > $(find /sys/fs/cgroup -type d -name '*pod%s*' -o -type d -name '*pod%s*' | head -1)/cgroup.kill",
			p.UID, strings.ReplaceAll(string(p.UID), "-", "_"))
	}
	out, err := n.Shell(c.t.Context(), script)
	at, malformed := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil || malformed != nil {
		c.t.Fatalf("kill the pods: %q, %v", out, err)
	}
	return time.Unix(at, 0)
}

// death waits until a watch has told that a container of a pod died; false: it was waited for in vain.
func (s *sights) death(ctx context.Context, pod types.UID) bool {
	ctx, cancel := context.WithTimeout(ctx, workloadDeadline)
	defer cancel()
	for {
		s.mu.Lock()
		died := s.died[pod]
		more := s.more
		s.mu.Unlock()
		if died {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-more:
		}
	}
}
