package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"jettison/api"
	"jettison/e2e/build"
)

// fakeAgent is an agent simulated by a test, on a socket: it serves records and a state, and keeps
// the pod objects that it receives.
type fakeAgent struct {
	t      testing.TB
	socket string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at a change
	records []api.Record  // in the order of their reports
	pods    map[string]*v1.Pod
	version uint64
}

func startFakeAgent(t testing.TB) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "b") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{t: t, socket: filepath.Join(dir, "s"), changed: make(chan struct{}), pods: map[string]*v1.Pod{}}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	s, served := &http.Server{Handler: a}, make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
		_ = os.RemoveAll(dir)
	})
	return a
}

func (a *fakeAgent) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// reportEvicted reports a pod as evicted, without processes left.
func (a *fakeAgent) reportEvicted(p *v1.Pod) api.Record { return a.reportKilledAt(p, time.Now()) }

// reportKilledAt works as reportEvicted, for a pod that was killed at an earlier time.
func (a *fakeAgent) reportKilledAt(p *v1.Pod, at time.Time) api.Record {
	now, killed := api.Stamp{Time: time.Now()}, api.Stamp{Time: at}
	r := api.Record{
		Version: api.RecordVersion, Outcome: api.OutcomeBack, Signal: "memory.available", Threshold: "memory.available<100Mi",
		Message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 98Mi. ", StatusReason: "Evicted", Disruption: true,
		Annotations: map[string]string{"starved_resource": "memory"}, Pod: api.Victim{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name},
		Began: killed, Killed: killed, Emptied: now, Cleaned: now, Complete: true,
	}
	a.change(func() {
		r.ID = fmt.Sprintf("%s-%04x", now.Time.UTC().Format("20060102T150405.000000Z"), len(a.records))
		a.records = append(a.records, r)
	})
	return r
}

func (a *fakeAgent) hasPods(pods int) func(context.Context) error {
	return func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.pods) != pods {
			return fmt.Errorf("agent has %d pods", len(a.pods))
		}
		return nil
	}
}

// reportedCount returns the number of reported evictions.
func (a *fakeAgent) reportedCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.records)
}

// hasPod returns a check that the agent has received a pod.
func (a *fakeAgent) hasPod(p *v1.Pod) func(context.Context) error {
	return func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.pods[string(p.UID)] == nil {
			return errors.New("the agent has not received the pod")
		}
		return nil
	}
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == api.PathRecords:
		a.follow(w, r)
	case r.URL.Path == api.PathEvents: // no events
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.URL.Path == api.PathState:
		whole, used := uint64(1000), uint64(700)
		_ = json.NewEncoder(w).Encode(api.State{
			Time: time.Now(), Version: "simulated-agent", Kubelet: true, Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}},
			Load: &api.LoadState{Time: time.Now(), Memory: api.MemoryLoad{CapacityBytes: &whole, WorkingSetBytes: &used}},
		})
	case r.Method == http.MethodDelete:
		a.change(func() { delete(a.pods, strings.TrimPrefix(r.URL.Path, api.PathPods+"/")) })
		w.WriteHeader(http.StatusNoContent)
	default:
		a.change(func() {
			var pods []*v1.Pod
			if err := json.NewDecoder(r.Body).Decode(&pods); err != nil {
				a.t.Error(err)
			}
			if r.URL.Query().Get("replace") == "true" {
				a.pods = map[string]*v1.Pod{}
			}
			for _, p := range pods {
				a.pods[string(p.UID)] = p
			}
			a.version++
			_ = json.NewEncoder(w).Encode(api.PutAnswer{Pods: len(pods), Version: a.version})
		})
	}
}

func (a *fakeAgent) follow(w http.ResponseWriter, r *http.Request) {
	after, encode, at := r.URL.Query().Get("after"), json.NewEncoder(w), 0
	a.mu.Lock()
	for {
		for _, x := range a.records[at:] {
			if x.ID > after {
				_ = encode.Encode(api.RecordsLine{Record: &x})
			}
		}
		if at == 0 {
			_ = encode.Encode(api.RecordsLine{Synced: true})
		}
		at = len(a.records)
		changed := a.changed
		a.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		a.mu.Lock()
	}
}

// bridgeRun is a running bridge.
type bridgeRun struct {
	pid  int
	log  string // the path of its log
	kill func()
}

// runBridge builds the bridge and runs it for a node, with a token bound to it. It ends with the
// test, or by kill.
func runBridge(t testing.TB, c *Cluster, a *fakeAgent, node string) *bridgeRun {
	t.Helper()
	return runBridgeBy(t, a, node, c.Bearer(c.NodeToken(bridgeNamespace, bridgeAccount, node)))
}

// runBridgeBy works as runBridge, with another configuration for the API server.
func runBridgeBy(t testing.TB, a *fakeAgent, node string, config *rest.Config) *bridgeRun {
	t.Helper()
	return startBridge(t, buildBridge(t), a, node, config)
}

// buildBridge builds the bridge, with more arguments of go build.
func buildBridge(t testing.TB, more ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "jettison-bridge")
	args := slices.Concat([]string{"build", "-trimpath", "-tags", "grpcnotrace", "-o", program}, more, []string{"./cmd/jettison-bridge"})
	if _, err := build.Run(t.Context(), moduleRoot(t), []string{"CGO_ENABLED=0"}, "go", args...); err != nil {
		t.Fatal(err)
	}
	return program
}

// startBridge runs a bridge that was built, with more environment.
func startBridge(t testing.TB, program string, a *fakeAgent, node string, config *rest.Config, env ...string) *bridgeRun {
	t.Helper()
	dir := t.TempDir()
	conf, err := Kubeconfig(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "conf"), conf, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "run", "--node-name="+node, "--socket="+a.socket, "--kubeconfig="+filepath.Join(dir, "conf"))
	cmd.Env = slices.Concat(os.Environ(), []string{"GOMEMLIMIT=48MiB"}, env) // as in its DaemonSet
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the bridge's log:\n%s", text)
		}
	})
	t.Cleanup(kill)
	return &bridgeRun{pid: cmd.Process.Pid, log: log.Name(), kill: kill}
}

// evicted returns a check that the API server has the pods of the records as evicted.
func evicted(c *Cluster, records ...api.Record) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, r := range records {
			p, err := c.Client.CoreV1().Pods(r.Pod.Namespace).Get(ctx, r.Pod.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			s := p.Status
			marked := slices.ContainsFunc(s.Conditions, func(x v1.PodCondition) bool {
				return x.Type == v1.DisruptionTarget && x.Status == v1.ConditionTrue && x.Reason == "EvictionByJettison"
			})
			if s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != r.Message || p.Annotations["jettison/evicted"] != r.ID || !marked ||
				s.PodIP == "" || p.Labels["app"] != p.Name || len(s.ContainerStatuses) != 1 {
				return fmt.Errorf("%s: %+v", p.Name, s)
			}
			events, err := c.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "source=jettison"})
			if err != nil {
				return err
			}
			var reasons []string
			for _, e := range events.Items {
				if strings.HasSuffix(e.Name, strings.ToLower(r.ID)) {
					reasons = append(reasons, e.Reason)
				}
			}
			if slices.Sort(reasons); !slices.Equal(reasons, []string{"Evicted", "EvictionThresholdMet"}) {
				return fmt.Errorf("events of %s = %v", p.Name, reasons)
			}
		}
		return nil
	}
}

// A bridge on a real API server, restricted by the policies. It reports its node's pods to the
// agent, and the agent's evictions to the API server, including those during an outage of the API
// server or of the bridge. No other pod changes.
func TestABridgeTellsTheAPI(t *testing.T) {
	c, a := Start(t, Options{}), startFakeAgent(t)
	installBridge(t, c) // leaves a pod on n1
	const pods = 24
	var all []*v1.Pod
	for i := range pods {
		all = append(all, runningPod(t, c, fmt.Sprint("p", i), "n1", nil))
	}
	elsewhere := runningPod(t, c, "elsewhere", "n2", nil)
	bridge := runBridge(t, c, a, "n1")
	c.Eventually(startDeadline, "the agent knows the pods of its node", a.hasPods(pods+1))
	if p := a.pods[string(all[0].UID)]; p.Spec.Priority == nil || len(p.Spec.Containers[0].Env) != 0 {
		t.Errorf("pod spec at the agent = %+v", p.Spec)
	}

	logFailedDelays(t, c, a, all[:20])
	t.Log("its resident set: ", memory(bridge.pid))
	c.Kill(APIServer)
	while := []api.Record{a.reportEvicted(all[20]), a.reportEvicted(all[21])}
	c.Again(APIServer)
	c.Eventually(startDeadline, "what was evicted while the API server was dead is told", evicted(c, while...))
	bridge.kill()
	while = []api.Record{a.reportEvicted(all[22]), a.reportEvicted(all[23])}
	runBridge(t, c, a, "n1")
	c.Eventually(startDeadline, "what was evicted while the bridge was dead is told", evicted(c, while...))

	c.awaitNodeReport()
	is, err := c.Client.CoreV1().Pods("default").Get(t.Context(), "elsewhere", metav1.GetOptions{})
	if err != nil || is.ResourceVersion != elsewhere.ResourceVersion {
		t.Errorf("pod of another node has changed: %v, %v", is, err)
	}
}

// logFailedDelays logs how long each of these pods takes to be Failed after its record is reported.
func logFailedDelays(t *testing.T, c *Cluster, a *fakeAgent, pods []*v1.Pod) {
	t.Helper()
	var took []time.Duration
	for _, p := range pods {
		w, err := c.Client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.Name, ResourceVersion: p.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r := a.reportEvicted(p)
		for e := range w.ResultChan() {
			if is, ok := e.Object.(*v1.Pod); ok && is.Status.Phase == v1.PodFailed {
				break
			}
		}
		took = append(took, time.Since(began))
		w.Stop()
		c.Eventually(startDeadline, "all is told", evicted(c, r))
	}
	slices.Sort(took)
	t.Logf("from a record to Failed at the API: p50 %v, max %v of %d", took[len(took)/2], took[len(took)-1], len(took))
}

// awaitNodeReport waits until the API server has the bridge's report of its node.
func (c *Cluster) awaitNodeReport() {
	c.t.Helper()
	c.Eventually(startDeadline, "the node has conditions and a load", func(ctx context.Context) error {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var found []string
		for _, k := range n.Status.Conditions {
			found = append(found, string(k.Type)+"="+string(k.Status))
		}
		slices.Sort(found)
		if want := []string{"JettisonDiskPressure=False", "JettisonMemoryPressure=True", "JettisonPIDPressure=False", "Ready=True"}; !slices.Equal(found, want) {
			return fmt.Errorf("node's conditions = %v", found)
		}
		l, err := c.Client.CoordinationV1().Leases(bridgeNamespace).Get(ctx, "n1", metav1.GetOptions{})
		if err == nil && (!strings.Contains(l.Annotations["jettison/load"], `"workingSetPercent":70`) || len(l.OwnerReferences) != 1) {
			err = fmt.Errorf("the node's Lease = %v", l)
		}
		return err
	})
}
