package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// nodeAccount is the service account of jettison-cluster nodes.
var nodeAccount = account{"jettison-cluster", "jettison-cluster-nodes"}

// Taints of silent nodes.
var unreachable = []string{"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"}

// installNodes applies the manifests as an operator does, waits until the roles are in effect, and
// builds the program.
func installNodes(t testing.TB, c *Cluster) (program string) {
	t.Helper()
	c.requireOwnCluster()
	c.defaultAccount()
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", filepath.Join(moduleRoot(t), "deploy/cluster")); err != nil {
		t.Fatalf("apply the manifests of jettison-cluster: %v\n%s", err, out)
	}
	c.awaitPermission(nodeAccount, "patch", "", "nodes", "")
	c.awaitPermission(nodeAccount, "watch", "coordination.k8s.io", "leases", v1.NamespaceNodeLease)
	c.awaitPermission(nodeAccount, "create", "coordination.k8s.io", "leases", nodeAccount.namespace)
	return buildCluster(t)
}

// defaultAccount makes the service account of pods without one, if no controller does.
func (c *Cluster) defaultAccount() {
	c.t.Helper()
	of := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := c.Client.CoreV1().ServiceAccounts("default").Create(c.t.Context(), of, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// nodesArgs returns the arguments of the program with its shipped configuration and shorter times.
func nodesArgs(t testing.TB, more ...string) []string {
	return append([]string{
		"nodes", "--config=" + filepath.Join(moduleRoot(t), "deploy/cluster/config.yaml"), "--node-monitor-grace-period=8s", "--node-eviction-rate=10",
		"--mode=replace", "--others-disabled", "--replace-quiet=1s",
	}, more...)
}

// nodesStatus is the program's status of itself and all nodes.
type nodesStatus struct {
	Held  string
	Nodes []struct{ Name, Health string }
}

// status reads the status of a replica. Only the leader answers.
func (r *replica) status() (s nodesStatus, complaint string, ok bool) {
	r.c.t.Helper()
	out, complaint, code := command(r.c.t, r.program, "status", "--address="+r.address, "-o", "json")
	if code != 0 {
		return s, complaint, false
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		r.c.t.Fatalf("parse the status of a replica: %v: %s", err, out)
	}
	return s, "", true
}

// awaitLeader waits until one of these replicas is the leader.
func (c *Cluster) awaitLeader(of ...*replica) (leader *replica) {
	c.t.Helper()
	c.Eventually(startDeadline, "a replica leads", func(context.Context) error {
		last := ""
		for _, r := range of {
			_, complaint, ok := r.status()
			if ok {
				leader = r
				return nil
			}
			last = complaint
		}
		return fmt.Errorf("no leader: %s", last)
	})
	return leader
}

// executes returns the time of a node's NoExecute taint.
func executes(n *v1.Node) time.Time {
	for _, t := range n.Spec.Taints {
		if t.Effect == v1.TaintEffectNoExecute && t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
	}
	return time.Time{}
}

// A node becomes silent: it is Unknown and tainted, and each of its pods is deleted when its
// toleration ends. The leader is killed between two of them, and the standby continues: each pod is
// deleted once, none early. One node reports again after its pods were deleted, another one before.
func TestANodeFallsSilent(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	m := c.addMembers("a", "b", "c")
	soon, going := c.place("soon", "a", 3, 0), c.place("going", "a", 3, 600)
	late, ever := c.place("late", "a", 45, 0), c.place("ever", "a", forever, 0)
	neighbour := c.place("neighbour", "c", 0, 0)
	c.awaitPodsReady("soon", "going", "late", "ever", "neighbour")
	one := c.replica(program, "one", nodeAccount, nodesArgs(t)...)
	two := c.replica(program, "two", nodeAccount, nodesArgs(t)...)
	leader := c.awaitLeader(one, two)
	other := one
	if leader == one {
		other = two
	}
	if _, complaint, ok := other.status(); ok || !strings.Contains(complaint, "ask the leader, ") {
		t.Errorf("standby's answer to status = %q", complaint)
	}

	m.silence("a")
	fell := time.Now()
	tainted := executes(c.awaitTaints("a", unreachable...))
	t.Logf("tainted %.1f s after it fell silent", tainted.Sub(fell).Seconds())
	for _, what := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || !slices.ContainsFunc(n.Status.Conditions, func(x v1.NodeCondition) bool {
			return string(x.Type) == what && x.Status == v1.ConditionUnknown && x.Reason == "NodeStatusUnknown"
		}) {
			t.Errorf("condition %s of the silent node: %v, %v", what, n.Status.Conditions, err)
		}
	}
	if at := c.awaitPodGone(soon); at.Before(tainted.Add(3 * time.Second)) {
		t.Errorf("first pod is deleted %v after the taint", at.Sub(tainted))
	}
	c.awaitTerminating(going)
	c.expectPodStays(late)
	if podReady(c.expectPodStays(ever)) {
		t.Error("a pod of a silent node is ready")
	}
	explains(t, leader, "default/late", tainted.Add(45*time.Second))

	c.Kill(leader.name)
	at := c.awaitPodGone(late)
	t.Logf("the replica of one that was killed deletes %.1f s after the deadline", at.Sub(tainted.Add(45*time.Second)).Seconds())
	if at.Before(tainted.Add(45 * time.Second)) {
		t.Errorf("second pod is deleted %v after the taint", at.Sub(tainted))
	}
	c.awaitLeader(other)
	m.resume("a")
	c.awaitTaints("a")
	c.awaitPodGone(going)
	c.expectPodStays(ever)
	c.awaitPodsReady("ever")

	comesBackBefore(t, c, m)
	c.expectPodStays(neighbour)
	c.Again(leader.name)
	began := time.Now()
	other.stop()
	c.awaitLeader(leader)
	// Without releasing the Lease it takes 15 s.
	took := time.Since(began)
	if t.Logf("a leader that is stopped is followed after %.1f s", took.Seconds()); took > 10*time.Second {
		t.Error("the stopped leader has not released its Lease")
	}
	deleted := withPrefix(log.wrote(nodeAccount), "delete")
	if want := []string{"delete pods going 200", "delete pods late 200", "delete pods soon 200"}; !slices.Equal(deleted, want) {
		t.Errorf("deletes by the program = %q, want %q", deleted, want)
	}
}

// A leader hangs between taint and delete, and continues when another replica is the leader. It no
// longer writes, and names the leader to clients.
func TestALeaderThatHangs(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	m := c.addMembers("a", "b", "c")
	late, later := c.place("late", "a", 40, 0), c.place("later", "a", 70, 0)
	c.awaitPodsReady("late", "later")
	one := c.replica(program, "one", nodeAccount, nodesArgs(t)...)
	two := c.replica(program, "two", nodeAccount, nodesArgs(t)...)
	leader := c.awaitLeader(one, two)
	other := one
	if leader == one {
		other = two
	}
	m.silence("a")
	tainted := executes(c.awaitTaints("a", unreachable...))
	c.Pause(leader.name)
	if at := c.awaitPodGone(late); at.Before(tainted.Add(40 * time.Second)) {
		t.Errorf("pod is deleted %v after the taint", at.Sub(tainted))
	}
	resumed := time.Now() // the API server may receive what was sent before the pause after it
	c.Resume(leader.name)
	c.awaitPodGone(later)
	c.Eventually(startDeadline, "the one that hung follows", func(context.Context) error {
		if _, complaint, ok := leader.status(); ok || !strings.Contains(complaint, "ask the leader, ") {
			return fmt.Errorf("resumed replica is leader: %v, answers %q", ok, complaint)
		}
		return nil
	})
	known := false
	for _, r := range log.of(nodeAccount.user()) {
		known = known || r.by(leader.identity)
		if r.by(leader.identity) && r.writes() && r.ObjectRef.Resource != "leases" && r.RequestReceivedTimestamp.After(resumed) {
			t.Errorf("requests of the resumed replica that is no longer the leader: %v", r)
		}
	}
	if !known {
		t.Error("the log of the resumed replica lacks the lost leadership")
	}
	if deleted := withPrefix(log.wrote(nodeAccount), "delete"); !slices.Equal(deleted, []string{"delete pods late 200", "delete pods later 200"}) {
		t.Errorf("deletes by both replicas = %q, want each pod once", deleted)
	}
	c.awaitLeader(other)
}

// awaitTerminating waits until a pod is terminating with the reason in its conditions.
func (c *Cluster) awaitTerminating(p *v1.Pod) {
	c.t.Helper()
	c.Eventually(startDeadline, "pod "+p.Name+" goes", func(ctx context.Context) error {
		is, err := c.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		marked := slices.ContainsFunc(is.Status.Conditions, func(x v1.PodCondition) bool {
			return x.Type == v1.DisruptionTarget && x.Status == v1.ConditionTrue && x.Reason == "DeletionByTaintManager"
		})
		if is.DeletionTimestamp == nil || !marked {
			return fmt.Errorf("pod's deletion time %v, conditions %v", is.DeletionTimestamp, is.Status.Conditions)
		}
		return nil
	})
}

// explains checks a replica's explanation of a pod's end.
func explains(t *testing.T, r *replica, pod string, deadline time.Time) {
	t.Helper()
	out, complaint, code := command(t, r.program, "explain", pod, "--address="+r.address, "-o", "json")
	var e struct {
		Pods []struct{ Deadline *time.Time }
	}
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil {
		t.Fatalf("jettison-cluster explain %s failed: exit code %d: %s %v", pod, code, complaint, err)
	}
	if len(e.Pods) != 1 || e.Pods[0].Deadline == nil || !e.Pods[0].Deadline.Equal(deadline) {
		t.Errorf("explain %s: %s, want the deadline %v", pod, out, deadline)
	}
}

// comesBackBefore makes node b silent and lets it report again before the toleration of its pod
// ends.
func comesBackBefore(t *testing.T, c *Cluster, m *members) {
	t.Helper()
	before := c.place("before", "b", 20, 0)
	c.awaitPodsReady("before")
	m.silence("b")
	tainted := executes(c.awaitTaints("b", unreachable...))
	m.resume("b")
	c.awaitTaints("b")
	c.Eventually(startDeadline, "it is said that nothing comes of it", func(ctx context.Context) error {
		events, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=before"})
		if err != nil {
			return err
		}
		var found []string
		for _, e := range events.Items {
			if e.Message == "Cancelling deletion of Pod default/before" && e.Reason == "TaintManagerEviction" {
				return nil
			}
			found = append(found, e.Message)
		}
		return fmt.Errorf("events of the node = %q", found)
	})
	<-time.After(time.Until(tainted.Add(21 * time.Second)))
	c.expectPodStays(before)
}

// Mode observe logs the writes that it would make, and writes nothing: no Lease, no event, no node
// or pod.
func TestObservingWritesNothing(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	m := c.addMembers("a", "b", "c")
	c.place("p", "a", 0, 0)
	c.place("q", "c", 0, 0)
	c.awaitPodsReady("p")
	c.awaitPodsReady("q")
	eye := c.replica(program, "eye", nodeAccount, nodesArgs(t, "--mode=observe")...)
	m.silence("a", "c")
	if out, err := c.Kubectl(t.Context(), "", "taint", "node", "c", "maintenance=now:NoExecute"); err != nil {
		t.Fatal(out, err)
	}
	before := c.versions()
	for _, want := range []string{"what=status node=a", "what=taints node=a", "what=stamp node=c", "what=evict pod=default/q"} {
		c.Eventually(startDeadline, "it says "+want, func(context.Context) error {
			if !strings.Contains(eye.log(), want) {
				return fmt.Errorf("observer's log is %s", eye.log())
			}
			return nil
		})
	}
	if s, complaint, ok := eye.status(); !ok || len(s.Nodes) != 3 || s.Nodes[0].Health != "Unknown" || s.Nodes[1].Health != "Ready" {
		t.Errorf("status of the observer: %s, %+v", complaint, s.Nodes)
	}
	if after := c.versions(); after != before {
		t.Errorf("objects changed: before\n%s\nafter\n%s", before, after)
	}
	for _, r := range log.of(nodeAccount.user()) {
		if r.writes() || r.ResponseStatus.Code >= 400 && r.ResponseStatus.Code != http.StatusNotFound {
			t.Errorf("observer sent a write: %v (%d)", r, r.ResponseStatus.Code)
		}
	}
}

// versions returns the resourceVersions of all nodes and pods.
func (c *Cluster) versions() string {
	c.t.Helper()
	out, err := c.Kubectl(c.t.Context(), "", "get", "nodes,pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// checks answers liveness queries of dead nodes, and counts them.
type checks struct {
	mu      sync.Mutex
	answers map[string]string // by node; absent: an error
	asked   map[string]int
}

func (k *checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	node := r.URL.Query().Get("node")
	k.asked[node]++
	answer, ok := k.answers[node]
	if !ok {
		w.WriteHeader(http.StatusInternalServerError)
		answer = "dead"
	}
	fmt.Fprintln(w, answer)
}

func (k *checks) often(name string, n int) func(context.Context) error {
	return func(context.Context) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.asked[name] < n {
			return fmt.Errorf("queries by node = %v", k.asked)
		}
		return nil
	}
}

// Mode fence runs alongside a kube-controller-manager with its own controllers. Of the silent nodes
// only the one that the check confirms as dead gets the out-of-service taint, which frees its pods.
// It loses the taint when it reports again. Taints of other clients stay.
//
// Mode replace does not start alongside such a kube-controller-manager, and starts when that is
// quiet.
func TestBesideTheControllerManager(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Controllers: "*", Args: map[string][]string{
		APIServer: args, ControllerManager: {"--node-monitor-grace-period=8s", "--node-monitor-period=1s", "--node-eviction-rate=10"},
	}})
	program := installNodes(t, c)
	names := []string{"alive", "dead", "failing", "foreign", "odd", "w", "x"}
	for i := range 14 { // of 21 nodes, two may be fenced in an hour: others are checked again after one
		names = append(names, fmt.Sprint("n", i))
	}
	m := c.addMembers(names...)
	stuck, held := c.place("stuck", "dead", 0, 600), c.place("held", "alive", 0, 600)
	c.awaitPodsReady("stuck", "held")
	k := &checks{answers: map[string]string{"dead": "dead since noon", "foreign": "alive", "alive": "alive", "odd": "deadly"}, asked: map[string]int{}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	fence := c.replica(program, "fence", nodeAccount,
		nodesArgs(t, "--mode=fence", "--fence-url="+server.URL+"/?node={node}", "--fence-after=1s", "--fence-timeout=1s", "--fence-every=1s", "--fence-interval=1s")...)
	m.silence("alive", "dead", "failing", "foreign", "odd")
	foreign := "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	if out, err := c.Kubectl(t.Context(), "", "taint", "node", "foreign", foreign); err != nil {
		t.Fatal(out, err)
	}
	c.awaitTaints("dead", append([]string{"node.kubernetes.io/out-of-service=jettison:NoExecute"}, unreachable...)...)
	for _, name := range []string{"alive", "failing", "odd"} {
		c.Eventually(startDeadline, name+" was asked about again and again", k.often(name, 3))
		c.awaitTaints(name, unreachable...)
	}
	c.awaitPodGone(stuck) // deleted by the pod garbage collector
	if is, err := c.Client.CoreV1().Pods("default").Get(t.Context(), "held", metav1.GetOptions{}); err != nil || is.UID != held.UID {
		t.Errorf("pod of a node without the out-of-service taint is gone: %v", err)
	}
	m.resume("dead", "foreign")
	c.awaitTaints("dead")
	c.awaitTaints("foreign", foreign)
	fence.stop()
	wrote := log.wrote(nodeAccount)
	// A conflict changes nothing: the node changed after the decision, which the controller made again.
	accepted := slices.DeleteFunc(slices.Clone(wrote), func(w string) bool { return strings.HasSuffix(w, " 409") })
	if want := []string{"patch nodes dead 200", "patch nodes dead 200"}; !slices.Equal(accepted, want) {
		t.Errorf("writes in mode fence = %q, want %q and conflicts", wrote, want)
	}
	if n := k.asked["foreign"] + k.asked["w"]; n != 0 {
		t.Errorf("checks of nodes that are tainted already, or ready = %d, want 0", n)
	}

	m.silence("w")
	c.awaitTaints("w", unreachable...)
	rival := c.replica(program, "rival", nodeAccount, nodesArgs(t, "--replace-quiet=30s")...)
	said := func(what string) {
		t.Helper()
		c.Eventually(startDeadline, "it says: "+what, func(context.Context) error {
			if !strings.Contains(rival.log(), what) {
				return fmt.Errorf("log of the replica in mode replace is %s", rival.log())
			}
			return nil
		})
	}
	said("another taint controller active, waiting")
	if s, complaint, ok := rival.status(); !ok || !strings.Contains(s.Held, "kube-controller-manager") || len(s.Nodes) == 0 {
		t.Errorf("status of the replica: %s: %+v", complaint, s)
	}
	m.resume("w")
	c.awaitTaints("w") // removed by the other controller
	if now := log.wrote(nodeAccount); len(now) != len(wrote) {
		t.Errorf("writes since the end of mode fence: all are %q, were %q, want no new one", now, wrote)
	}
	m.silence("x")
	c.awaitTaints("x", unreachable...)
	c.Kill(ControllerManager)
	said("no other taint controller active, starting writes")
	m.resume("x")
	c.awaitTaints("x")
	if now := log.wrote(nodeAccount); len(now) == len(wrote) {
		t.Errorf("writes since mode replace took over: all are %q, want a new one", now)
	}
}

// With respectPDB a pod to be removed is evicted as its budget allows: immediately if allowed,
// later when the budget is gone, or deleted when its time limit ends. Conditions that bridges post
// become taints, and are removed with them.
func TestBudgetsAndPressure(t *testing.T) {
	log, args := audited(t)
	c := Start(t, Options{Controllers: MostControllers, Args: map[string][]string{APIServer: args}})
	program := installNodes(t, c)
	m := c.addMembers("a", "b", "c")
	var pods []*v1.Pod
	for name, least := range map[string]int32{"free": 1, "kept": 2, "lifted": 2} {
		c.budget(name, least)
		pods = append(pods, c.place(name+"-1", "a", 1, 0), c.place(name+"-2", "b", 1, 0))
		c.awaitPodsReady(name+"-1", name+"-2")
		c.Eventually(startDeadline, "budget "+name+" is known", func(ctx context.Context) error {
			b, err := c.Client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, name, metav1.GetOptions{})
			if err == nil && b.Status.CurrentHealthy != 2 {
				err = fmt.Errorf("budget's status is %+v", b.Status)
			}
			return err
		})
	}
	of := map[string]*v1.Pod{}
	for _, p := range pods {
		of[p.Name] = p
	}
	reportPressure(t, c, "b", time.Now().Add(-20*time.Minute)) // of a bridge that no longer runs
	const limit = 45 * time.Second
	r := c.replica(program, "r", nodeAccount, nodesArgs(t, "--respect-pdb", "--pdb-timeout="+limit.String())...)
	c.awaitLeader(r)
	reportPressure(t, c, "c", time.Now())
	c.awaitTaints("c", "status-taint.cluster-autoscaler.kubernetes.io/jettison-memory-pressure:PreferNoSchedule")
	c.awaitTaints("b")
	if err := patchNode(t.Context(), c.Client, "c", `{"status": {"conditions": [{"type": "JettisonMemoryPressure", "status": "False"}]}}`); err != nil {
		t.Fatal(err)
	}
	c.awaitTaints("c")

	m.silence("a")
	tainted := executes(c.awaitTaints("a", unreachable...))
	c.awaitPodGone(of["free-1"])
	asked := func(pod, how string) {
		t.Helper()
		c.Eventually(startDeadline, "the eviction of "+pod+" was answered "+how, func(context.Context) error {
			if wrote := log.wrote(nodeAccount); !slices.Contains(wrote, "create pods/eviction "+pod+" "+how) {
				return fmt.Errorf("writes = %q", wrote)
			}
			return nil
		})
	}
	asked("kept-1", "429")
	asked("lifted-1", "429")
	if err := c.Client.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "lifted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPodGone(of["lifted-1"])
	if at := c.awaitPodGone(of["kept-1"]); at.Before(tainted.Add(time.Second + limit)) {
		t.Errorf("pod with a budget is deleted after %v, want %v", at.Sub(tainted), limit)
	}
	wrote := log.wrote(nodeAccount)
	for _, want := range []string{"create pods/eviction free-1 201", "create pods/eviction lifted-1 201"} {
		if !slices.Contains(wrote, want) {
			t.Errorf("writes of the program lack %s: %q", want, wrote)
		}
	}
	if deleted := withPrefix(wrote, "delete"); !slices.Equal(deleted, []string{"delete pods kept-1 200"}) {
		t.Errorf("deletes = %q, want only the pod past its limit", deleted)
	}
	for _, name := range []string{"free-2", "kept-2", "lifted-2"} {
		c.expectPodStays(of[name])
	}
}

// budget makes a disruption budget in namespace default for the pods with its name as label app.
func (c *Cluster) budget(name string, least int32) {
	c.t.Helper()
	available := intstr.FromInt32(least)
	_, err := c.Client.PolicyV1().PodDisruptionBudgets("default").Create(c.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &available, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// reportPressure posts a bridge's conditions of a node under memory pressure, with a heartbeat of this
// time.
func reportPressure(t *testing.T, c *Cluster, node string, at time.Time) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []v1.NodeCondition{{
		Type: "JettisonMemoryPressure", Status: v1.ConditionTrue, Reason: "r", LastHeartbeatTime: metav1.NewTime(at), LastTransitionTime: metav1.NewTime(at),
	}}}})
	if err == nil {
		err = patchNode(t.Context(), c.Client, node, string(text))
	}
	if err != nil {
		t.Fatal(err)
	}
}
