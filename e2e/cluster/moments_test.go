package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// fewTrials is the number of trials without JETTISON_TRIALS.
const fewTrials = 3

// eventsOf returns how long the events of so many evictions may take: each has two or three, and a
// bridge sends one a second.
func eventsOf(evictions int) time.Duration {
	return workloadDeadline + 4*time.Second*time.Duration(evictions)
}

// mostAtOnce is the number of pods evicted in parallel.
const mostAtOnce = 10

// moment is the time at which a bridge learns that a pod has no process left, so that it writes:
// after the kill, or after the kubelet has reported the death of the pod's container.
type moment struct {
	told   bool
	wait   time.Duration
	never  bool // pods that are not restarted: their kubelet sets them to Failed itself
	gently bool // pods are stopped, and their containers exit with 0
}

func (m moment) String() string {
	text := fmt.Sprintf("%v after the kill", m.wait)
	if m.told {
		text = fmt.Sprintf("%v after the kubelet told", m.wait)
	}
	if m.never {
		text += ", restartPolicy Never"
	}
	if m.gently {
		text += ", stopped gently"
	}
	return text
}

// outcomes counts the final states of evicted pods at the API server.
type outcomes struct {
	failed int // set to Failed once, and Failed Evicted ever since
	mute   int // of these: the API server had no exit codes of their containers
	late   int // of these: exit codes came when the bridge left the status to the kubelet, and removed the reason
	lived  int // never Failed: a container restarted, and the bridge reported that
	ended  int // their kubelet had reported their end before the bridge learned of it
	vague  int // Failed without a reason in the end: their containers exited with 0, so their kubelet reports none
}

func (f *outcomes) String() string {
	return fmt.Sprintf("%d Failed, Evicted ever since (of %d it was told later how their containers ended, %d of them without a reason), "+
		"%d had ended before, %d came back before and live, %d Failed without a reason, for they ended well",
		f.failed, f.mute, f.late, f.ended, f.lived, f.vague)
}

// The bridge reports evictions at different moments: while a kubelet is about to report the death,
// is about to restart the pod, or has restarted it. No pod that was Failed runs again, none loses
// its reason, and one that restarted first lives. The test kills the pods as the agent does, and
// reports it to the bridge. The kubelet, the API server and the bridge are real. With the gate on,
// a real agent rejects the pods' restarts.
func TestNoWordIsTakenBack(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	root, err := build.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", filepath.Join(root, "deploy/overlays/bridge")); err != nil {
		t.Fatalf("kubectl apply of the manifests failed: %v\n%s", err, out)
	}
	// The test runs the bridge itself.
	if out, err := c.Kubectl(t.Context(), "", "-n", bridgeNamespace, "delete", "daemonset", "jettison-bridge"); err != nil {
		t.Fatalf("delete the bridge's DaemonSet: %v\n%s", err, out)
	}
	c.DaemonSetReady("kube-system", "jettison")
	a := startFakeAgent(t)
	runBridge(t, c, a, n.Name)
	c.Eventually(workloadDeadline, "the bridge tells of pods", func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.version == 0 {
			return fmt.Errorf("no pod is left yet")
		}
		return nil
	})
	moments := []moment{
		{}, {wait: 300 * time.Millisecond}, {told: true, wait: 100 * time.Millisecond}, {told: true, wait: time.Second},
		{told: true, wait: 3 * time.Second}, {told: true, wait: 9 * time.Second},
		{wait: 300 * time.Millisecond, never: true}, {wait: 2 * time.Second, never: true},
	}
	trials, batches := trialsEach(t), 0
	for _, m := range moments {
		for _, gate := range []bool{true, false} {
			name := "not held off"
			if gate {
				name = "held off"
			}
			t.Run(m.String()+", "+name, func(t *testing.T) {
				var f outcomes
				for left := trials; left > 0; left -= mostAtOnce {
					v := victims{name: fmt.Sprint("b", batches), count: min(left, mostAtOnce), pull: v1.PullIfNotPresent}
					v.kill = func(pods []v1.Pod) time.Time { return n.kill(c, pods) }
					if gate {
						v.keepOut = func(pods []v1.Pod) { c.expectHeldOff(n, pods) }
					}
					c.evictBatch(a, m, v, &f)
					batches++
				}
				t.Logf("%d pods: %v", trials, &f)
			})
		}
	}
	t.Log("rejected writes of the kubelet: ", refusals(n.KubeletLog(100_000)))
}

// refused matches the kubelet's log line about a status that a policy rejected.
var refused = regexp.MustCompile(`"Failed to update status for pod".* pod="([^"]+)"`)

// refusals counts the rejected statuses of a kubelet, as text.
func refusals(log string) string {
	times := map[string]int{}
	for _, m := range refused.FindAllStringSubmatch(log, -1) {
		times[m[1]]++
	}
	most, pod := 0, "none"
	sum := 0
	for p, n := range times {
		if sum += n; n > most {
			most, pod = n, p
		}
	}
	return fmt.Sprintf("%d times, of %d pods; most: %d times, of %s", sum, len(times), most, pod)
}

// trialsEach returns the number of trials that JETTISON_TRIALS sets: pods for each moment, or stops.
func trialsEach(t *testing.T) int {
	t.Helper()
	text := os.Getenv("JETTISON_TRIALS")
	if text == "" {
		return fewTrials
	}
	trials, err := strconv.Atoi(text)
	if err != nil || trials <= 0 {
		t.Fatalf("JETTISON_TRIALS %q: want a number above 0", text)
	}
	return trials
}

// victims are pods created to be evicted in parallel.
type victims struct {
	name    string
	count   int
	kill    func([]v1.Pod) time.Time
	keepOut func([]v1.Pod) // nil: they may restart
	pull    v1.PullPolicy
}

// evictBatch evicts pods that were made for it.
func (c *Cluster) evictBatch(a *fakeAgent, m moment, v victims, f *outcomes) {
	c.t.Helper()
	ctx := c.t.Context()
	for i := range v.count {
		c.createBarePod(fmt.Sprintf("%s-%d", v.name, i), v.name, m.never, v.pull)
	}
	pods := c.awaitAllRunning(v.name, v.count)
	if v.keepOut != nil {
		v.keepOut(pods)
	}
	seen := c.watch("default")
	killed := v.kill(pods)
	var words sync.WaitGroup
	for i := range pods {
		words.Go(func() {
			if m.told && !seen.death(ctx, pods[i].UID) {
				c.t.Errorf("%v: the kubelet has not reported the death of %s", m, pods[i].Name)
			}
			select {
			case <-ctx.Done():
			case <-time.After(m.wait): // the moment under test
			}
			a.reportKilledAt(&pods[i], killed)
		})
	}
	words.Wait()
	c.Eventually(2*workloadDeadline, "nothing more is told of the pods", func(context.Context) error {
		for _, p := range pods {
			if _, last := seen.of(p.UID); time.Since(last) < steady {
				return fmt.Errorf("status of %s has just changed", p.Name)
			}
		}
		return nil
	})
	for _, p := range pods {
		c.judge(seen, p, m, eventsOf(a.reportedCount()), f)
	}
	if f.mute > 0 {
		f.late += c.expectReasons(pods)
	}
	made := metav1.ListOptions{LabelSelector: "app=" + v.name}
	if err := c.Client.CoreV1().Pods("default").DeleteCollection(ctx, *metav1.NewDeleteOptions(0), made); err != nil {
		c.t.Fatal(err)
	}
}

// expectReasons waits until all failed pods have their containers' exit codes, and counts those
// that lost their reason although their containers failed.
func (c *Cluster) expectReasons(pods []v1.Pod) (late int) {
	c.t.Helper()
	c.Eventually(2*workloadDeadline, "it is told how all containers ended", func(ctx context.Context) error {
		late = 0
		for _, p := range pods {
			is, err := c.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			all := is.Status.ContainerStatuses
			switch {
			case is.Status.Phase != v1.PodFailed:
			case slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Terminated == nil }):
				return fmt.Errorf("no exit codes of %s: %+v", p.Name, all)
			case is.Annotations[api.AnnotationEvicted] != "" && is.Status.Reason == "" &&
				slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Terminated.ExitCode != 0 }):
				late++
			}
		}
		return nil
	})
	return late
}

// judge determines the final state of a pod. patience is how long all its events may take.
func (c *Cluster) judge(seen *sights, p v1.Pod, m moment, patience time.Duration, f *outcomes) {
	c.t.Helper()
	words, _ := seen.of(p.UID)
	words = slices.DeleteFunc(words, func(w string) bool { return w == "Pending" })
	words = slices.Compact(words)
	text := strings.Join(words, ", ")
	is, err := c.Client.CoreV1().Pods(p.Namespace).Get(c.t.Context(), p.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	all := is.Status.ContainerStatuses
	notWell := slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 })
	switch {
	case text == "Running, Failed Evicted":
		f.failed++
		if slices.ContainsFunc(all, func(s v1.ContainerStatus) bool { return s.State.Terminated == nil }) {
			f.mute++
		}
	case text == "Running" && !m.never:
		f.lived++
		c.Eventually(patience, fmt.Sprintf("%v: an event says that %s lives", m, p.Name), func(ctx context.Context) error {
			list, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
				FieldSelector: "source=jettison,reason=EvictionOutlived,involvedObject.uid=" + string(p.UID),
			})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("%d pods still exist", len(list.Items))
			}
			return err
		})
	case (text == "Running, Failed" || text == "Running, Succeeded") && m.never:
		f.ended++
	case strings.HasPrefix(text, "Running, Failed Evicted, Failed") && strings.Count(text, "Running") == 1 && !notWell && is.Status.Reason == "":
		f.vague++
	default:
		c.t.Errorf("%v: unexpected states of pod %s: %q", m, p.Name, words)
	}
}

// createBarePod makes a pod without an owner.
func (c *Cluster) createBarePod(name, app string, never bool, pull v1.PullPolicy) {
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
				Name: "main", Image: container("").Image, ImagePullPolicy: pull, Args: []string{"alloc", "-size", "1Mi"},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// awaitAllRunning waits until all pods run.
func (c *Cluster) awaitAllRunning(app string, count int) (out []v1.Pod) {
	c.t.Helper()
	c.Eventually(2*workloadDeadline, "all pods run", func(ctx context.Context) error {
		pods, err := c.Pods(ctx, "default", "app="+app)
		waits := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Status.Phase != v1.PodRunning })
		switch {
		case err != nil:
		case len(pods) != count:
			err = fmt.Errorf("there are %d pods", len(pods))
		case waits >= 0:
			err = fmt.Errorf("pod %s is %s; events: %v", pods[waits].Name, pods[waits].Status.Phase, c.events(ctx))
		}
		out = pods
		return err
	})
	return out
}

// stateFile is the path of the agent's state on its node.
const stateFile = "/var/lib/jettison/state.json"

// expectHeldOff makes the agent on the node reject pods as after their evictions: a new agent reads that
// from the state of the earlier one.
func (c *Cluster) expectHeldOff(n *Node, pods []v1.Pod) {
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
	// A new pod has no restart backoff, unlike a failed container.
	if err := c.Client.CoreV1().Pods(agent.Namespace).Delete(ctx, agent.Name, *metav1.NewDeleteOptions(0)); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(workloadDeadline, "the agent keeps the pods out", func(ctx context.Context) error {
		s, err := n.API().State(ctx)
		switch {
		case err != nil:
			return err
		case s.Gate == nil || !s.Gate.Asked:
			return fmt.Errorf("the runtime does not query the gate: %+v", s.Gate)
		}
		for _, p := range pods {
			if !slices.ContainsFunc(s.Gate.Holds, func(h api.HoldState) bool { return h.UID == string(p.UID) }) {
				return fmt.Errorf("pod %s has no hold-off: %+v", p.Name, s.Gate.Holds)
			}
		}
		return nil
	})
}

// signal sends a signal to the processes of a name, of which at least one must run. The guest has
// no pkill.
func (n *Node) signal(ctx context.Context, signal, name string) error {
	out, err := n.Shell(ctx, fmt.Sprintf(
		`for d in /proc/[0-9]*; do read -r c 2>/dev/null <$d/comm && [ "$c" = %s ] && kill -%s ${d#/proc/} && echo ${d#/proc/}; done; true`, name, signal))
	if err == nil && out == "" {
		err = fmt.Errorf("the guest has no process named %s", name)
	}
	return err
}

// kill kills all processes of pods, and returns the start time, by the guest's clock in whole
// seconds.
func (n *Node) kill(c *Cluster, pods []v1.Pod) time.Time {
	c.t.Helper()
	which := make([]string, 0, 2*len(pods))
	for _, p := range pods {
		which = append(which, "*pod"+string(p.UID)+"*", "*pod"+strings.ReplaceAll(string(p.UID), "-", "_")+"*")
	}
	script := "date +%s; for d in $(find /sys/fs/cgroup -maxdepth 4 -type d -name '*pod*'); do case $d in " + strings.Join(which, "|") +
		") echo 1 > $d/cgroup.kill && echo killed >&2;; esac; done"
	out, err := n.Shell(c.t.Context(), script)
	at, malformed := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil || malformed != nil {
		c.t.Fatalf("kill processes of the pods: %q, %v", out, err)
	}
	return time.Unix(at, 0)
}

// death waits until a watch has reported the death of a pod's container; false: timeout.
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
