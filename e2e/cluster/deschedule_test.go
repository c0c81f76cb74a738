package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deschedulerAccount is the service account of jettison-cluster deschedule.
var deschedulerAccount = account{"kube-system", "jettison-descheduler"}

// descheduling is a cluster with a scheduler and controllers, and the program with its roles.
type descheduling struct {
	*Cluster
	t             testing.TB
	log           *audit
	program, conf string
	members       *members
}

// startDescheduling starts a cluster with these nodes. It removes the Deployment of the manifests.
func startDescheduling(t testing.TB, nodes ...string) *descheduling {
	t.Helper()
	log, args := audited(t)
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true, Args: map[string][]string{APIServer: args}})
	c.requireOwnCluster()
	out, err := c.Kubectl(t.Context(), "", "apply", "-k", filepath.Join(moduleRoot(t), "deploy/cluster/descheduler/deployment"))
	if err == nil {
		out, err = c.Kubectl(t.Context(), "", "-n", "kube-system", "delete", "deployment", "jettison-descheduler")
	}
	if err != nil {
		t.Fatalf("apply the descheduler's manifests: %v\n%s", err, out)
	}
	c.awaitPermission(deschedulerAccount, "create", "", "pods/eviction", "")
	c.awaitPermission(deschedulerAccount, "create", "coordination.k8s.io", "leases", deschedulerAccount.namespace)
	return &descheduling{
		Cluster: c, t: t, log: log, program: buildCluster(t), conf: c.accountFile("descheduler", deschedulerAccount), members: c.addMembers(nodes...),
	}
}

// policy writes a policy of one strategy for the pods with a label app, or for all pods. The
// scheduler of HighNodeUtilization is that of packNodes.
func (d *descheduling) policy(strategy, args, app string) (path string) {
	d.t.Helper()
	scheduler := ""
	if strategy == "HighNodeUtilization" {
		scheduler = "schedulerProfiles: [{scoringStrategy: MostAllocated, weights: {NodeResourcesBalancedAllocation: 0, PodTopologySpread: 0}}]\n"
	}
	return d.policyFor(scheduler, strategy, args, app)
}

// policyFor writes such a policy for a scheduler; empty: the default one.
func (d *descheduling) policyFor(scheduler, strategy, args, app string) (path string) {
	d.t.Helper()
	point, selector := "deschedule", ""
	if slices.Contains([]string{"RemoveDuplicates", "LowNodeUtilization", "HighNodeUtilization", "RemovePodsViolatingTopologySpreadConstraint"}, strategy) {
		point = "balance"
	}
	if app != "" {
		selector = fmt.Sprintf(", labelSelector: {matchLabels: {app: %s}}", app)
	}
	text := fmt.Sprintf(`apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
%sprofiles:
  - name: p
    pluginConfig:
      - {name: DefaultEvictor, args: {nodeFit: true%s}}
      - {name: %s, args: %s}
    plugins:
      %s: {enabled: [%s]}
`, scheduler, selector, strategy, args, point, strategy)
	path = filepath.Join(d.t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// planned is a printed plan.
type planned struct {
	Evictions []struct{ Name, UID, Node, Strategy string }
	Skipped   []struct{ Name, Reason string }
}

func (p *planned) uids() (out []string) {
	for _, e := range p.Evictions {
		out = append(out, e.UID)
	}
	return out
}

// plan makes a dry run, which must not write.
func (d *descheduling) plan(policy string) (p planned) {
	d.t.Helper()
	before := len(d.log.wrote(deschedulerAccount))
	out, complaint, code := command(d.t, d.program, "deschedule", "--policy="+policy, "--kubeconfig="+d.conf, "--dry-run", "-o", "json")
	if err := json.Unmarshal([]byte(out), &p); code != 0 || err != nil {
		d.t.Fatalf("dry run: exit code %d, %v: %s%s", code, err, out, complaint)
	}
	if after := len(d.log.wrote(deschedulerAccount)); after != before {
		d.t.Errorf("writes of a dry run = %q, want none", d.log.wrote(deschedulerAccount))
	}
	return p
}

// act runs one cycle and returns the UIDs of the evicted pods, in order, and the log.
func (d *descheduling) act(policy string) (uids []string, log string) {
	d.t.Helper()
	_, log, code := command(d.t, d.program, "deschedule", "--policy="+policy, "--kubeconfig="+d.conf, "--log-format=json")
	if code != 0 {
		d.t.Fatalf("exit code of the cycle = %d: %s", code, log)
	}
	for line := range strings.Lines(log) {
		var said struct{ Msg, UID string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			d.t.Fatalf("parse a log line: %v: %s", err, line)
		}
		if said.Msg == "pod evicted" {
			uids = append(uids, said.UID)
		}
	}
	return uids, log
}

// dryRunAndRun makes a dry run, asserts that a cycle then does exactly the same, and returns the plan.
func (d *descheduling) dryRunAndRun(policy string) planned {
	d.t.Helper()
	p := d.plan(policy)
	if got, log := d.act(policy); !slices.Equal(got, p.uids()) {
		d.t.Errorf("evicted pods differ from the plan: planned %v, evicted %v: %s", p.Evictions, got, log)
	}
	return p
}

// where counts the pods of a Deployment by their nodes, without terminating ones.
func (d *descheduling) where(ctx context.Context, app string) (map[string]int, error) {
	pods, err := d.Pods(ctx, "default", "app="+app)
	out := map[string]int{}
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp == nil && p.Status.Phase == v1.PodRunning && podReady(p) {
			out[p.Spec.NodeName]++
		}
	}
	return out, err
}

// awaitDistribution waits until a Deployment's pods are distributed over the nodes as wanted.
func (d *descheduling) awaitDistribution(app, how string, as func(on map[string]int) bool) {
	d.t.Helper()
	d.Eventually(workloadDeadline, app+" lies so: "+how, func(ctx context.Context) error {
		on, err := d.where(ctx, app)
		if err == nil && !as(on) {
			err = fmt.Errorf("pods by node = %v", on)
		}
		return err
	})
}

// budgetAllows waits until a budget allows so many disruptions.
func (d *descheduling) budgetAllows(name string, want int32) {
	d.t.Helper()
	d.Eventually(startDeadline, fmt.Sprintf("budget %s allows %d", name, want), func(ctx context.Context) error {
		b, err := d.Client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && (b.Status.DisruptionsAllowed != want || b.Status.ExpectedPods == 0) {
			err = fmt.Errorf("budget's status is %+v", b.Status)
		}
		return err
	})
}

func (d *descheduling) kubectl(args ...string) {
	d.t.Helper()
	if out, err := d.Kubectl(d.t.Context(), "", args...); err != nil {
		d.t.Fatal(out, err)
	}
}

// A dry run prints exactly the plan that a run carries out, budgets included. Of two replicas only
// the leader acts, one cycle after another as budgets allow. When it is killed, the other
// continues. No pod is evicted twice.
func TestADryRunIsWhatIsDone(t *testing.T) {
	d := startDescheduling(t, "a")
	d.budget("some", 2)
	d.budget("kept", 3)
	for name, replicas := range map[string]int32{"web": 6, "some": 3, "kept": 3} {
		d.Deploy(name, replicas, "sleep")
		d.Available(name, replicas)
	}
	d.members.join("b", "c")
	d.kubectl("taint", "node", "a", "test/away=yes:NoSchedule")
	d.budgetAllows("some", 1)
	d.budgetAllows("kept", 0)
	policy := d.policy("RemovePodsViolatingNodeTaints", "{}", "")
	p := d.dryRunAndRun(policy)
	of := map[string]int{}
	for _, e := range p.Evictions {
		app, _, _ := strings.Cut(e.Name, "-")
		of[app]++
	}
	if len(p.Evictions) != 7 || of["web"] != 6 || of["some"] != 1 {
		t.Errorf("planned evictions by Deployment = %v", of)
	}
	why := map[string]int{}
	for _, s := range p.Skipped {
		if strings.Contains(s.Reason, "PodDisruptionBudget") {
			app, _, _ := strings.Cut(s.Name, "-")
			why[app]++
		}
	}
	if why["kept"] != 3 || why["some"] != 2 {
		t.Errorf("pods skipped because of budgets = %v: %v", why, p.Skipped)
	}
	d.awaitDistribution("web", "off the tainted node", func(on map[string]int) bool { return on["a"] == 0 && on["b"]+on["c"] == 6 })

	args := []string{
		"deschedule", "--policy=" + policy, "--descheduling-interval=4s", "--leader-elect", "--leader-elect-lease-duration=8s",
		"--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=2s", "--log-format=json",
	}
	one := d.replica(d.program, "one", deschedulerAccount, args...)
	two := d.replica(d.program, "two", deschedulerAccount, args...)
	d.awaitDistribution("some", "off the tainted node, one after the other", func(on map[string]int) bool { return on["a"] == 0 && on["b"]+on["c"] == 3 })
	leads := func(r *replica) bool { return strings.Contains(r.log(), "descheduling cycle finished") }
	if leads(one) == leads(two) {
		t.Fatalf("want exactly one planning replica, logs: %s\n%s", one.log(), two.log())
	}
	if leads(two) {
		one, two = two, one
	}
	d.Kill(one.name)
	d.kubectl("taint", "node", "b", "test/away=yes:NoSchedule")
	d.awaitDistribution("web", "on the last node", func(on map[string]int) bool { return on["c"] == 6 })
	d.awaitDistribution("some", "on the last node", func(on map[string]int) bool { return on["c"] == 3 })
	d.awaitDistribution("kept", "where its budget keeps it", func(on map[string]int) bool { return on["a"] == 3 })
	if !leads(two) {
		t.Errorf("the standby has not planned after the leader's end: %s", two.log())
	}
	evicted := withPrefix(d.log.wrote(deschedulerAccount), "create pods/eviction")
	if unique := slices.Compact(slices.Clone(evicted)); len(unique) != len(evicted) {
		t.Errorf("evictions have a pod twice: %q", evicted)
	}
}

// strategyCase is a strategy with a state of the cluster in which it finds pods.
type strategyCase struct {
	app, strategy, args string
	replicas            int32
	request             string // CPU of each pod; empty: 100m
	spec                func(*v1.PodSpec)
	happens             func(d *descheduling, app string) // called when all pods run on node a
	evicts              int
	lies                func(on map[string]int) bool // the distribution afterwards
}

// Each strategy finds real pods for its reason and evicts them as its dry run prints. The scheduler
// places the replacements as the strategy intends, if the model allows it. Afterwards a plan is
// empty.
func TestStrategiesEvict(t *testing.T) {
	d := startDescheduling(t, "a", "b", "c")
	for _, s := range []strategyCase{
		{
			app: "duplicates", strategy: "RemoveDuplicates", args: "{}", replicas: 4, evicts: 2,
			lies: func(on map[string]int) bool { return on["a"] == 2 && on["b"]+on["c"] == 2 },
		},
		{
			app: "affinity", strategy: "RemovePodsViolatingNodeAffinity", args: "{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}", replicas: 2, evicts: 2,
			spec: func(s *v1.PodSpec) { s.Affinity = onDisk() },
			happens: func(d *descheduling, _ string) {
				d.kubectl("label", "node", "a", "disk-")
				d.kubectl("label", "node", "b", "disk=ssd")
			},
			lies: func(on map[string]int) bool { return on["b"] == 2 },
		},
		{
			app: "restarts", strategy: "RemovePodsHavingTooManyRestarts", args: "{podRestartThreshold: 100, includingInitContainers: false}", replicas: 2, evicts: 1,
			happens: func(d *descheduling, app string) {
				d.patchFirst(app, `{"status": {"containerStatuses": [{"name": "main", "restartCount": 200, "ready": true, "image": "i", "imageID": "i"}]}}`)
			},
			lies: func(on map[string]int) bool { return on["a"]+on["b"]+on["c"] == 2 },
		},
		{
			app: "failed", strategy: "RemoveFailedPods", args: "{minPodLifetimeSeconds: 0}", replicas: 2, evicts: 1,
			happens: func(d *descheduling, app string) {
				d.patchFirst(app, `{"status": {"phase": "Failed", "reason": "Evicted"}}`)
			},
			lies: func(on map[string]int) bool { return on["a"]+on["b"]+on["c"] == 2 },
		},
		{
			app: "shy", strategy: "RemovePodsViolatingInterPodAntiAffinity", args: "{}", replicas: 1, evicts: 1,
			spec:    func(s *v1.PodSpec) { s.Affinity = fromLoud() },
			happens: func(d *descheduling, _ string) { d.kubectl("label", "pod", "noisy", "loud=yes") },
			lies:    func(on map[string]int) bool { return on["b"]+on["c"] == 1 },
		},
		{
			app: "spread", strategy: "RemovePodsViolatingTopologySpreadConstraint", args: "{constraints: [ScheduleAnyway]}", replicas: 4, evicts: 2,
			spec: func(s *v1.PodSpec) {
				s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spread"}},
				}}
			},
			lies: func(on map[string]int) bool { return on["a"] == 2 && on["b"] == 1 && on["c"] == 1 },
		},
		{
			app: "load", strategy: "LowNodeUtilization", args: "{thresholds: {cpu: 30}, targetThresholds: {cpu: 50}}", replicas: 6, request: "500m", evicts: 2,
			lies: func(on map[string]int) bool { return on["a"] == 4 && on["b"]+on["c"] == 2 },
		},
		{
			app: "old", strategy: "PodLifeTime", args: "{maxPodLifeTimeSeconds: 1}", replicas: 2, evicts: 2,
			happens: func(*descheduling, string) { time.Sleep(3 * time.Second) }, // ages are in whole seconds
			lies:    func(on map[string]int) bool { return on["a"]+on["b"]+on["c"] == 2 },
		},
		{
			app: "away", strategy: "RemovePodsViolatingNodeTaints", args: "{}", replicas: 2, evicts: 2,
			happens: func(d *descheduling, _ string) { d.kubectl("taint", "node", "a", "test/away=yes:NoSchedule") },
			lies:    func(on map[string]int) bool { return on["b"]+on["c"] == 2 },
		},
		{ // last: from then on the scheduler fills nodes, which the strategy requires
			app: "fill", strategy: "HighNodeUtilization", args: "{thresholds: {cpu: 30}}", replicas: 2, request: "300m", evicts: 2,
			happens: func(d *descheduling, _ string) {
				d.packNodes()
				d.deploy(&strategyCase{app: "anchor", replicas: 1, request: "1500m", spec: func(s *v1.PodSpec) { s.NodeName = "b" }})
				d.awaitDistribution("anchor", "on b", func(on map[string]int) bool { return on["b"] == 1 })
			},
			lies: func(on map[string]int) bool { return on["b"] == 2 },
		},
	} {
		t.Run(s.app, func(t *testing.T) { d.with(t, func() { d.runCase(t, &s) }) })
	}
	if refusals := withPrefix(d.log.wrote(deschedulerAccount), "create pods/eviction"); slices.ContainsFunc(refusals, func(s string) bool {
		return !strings.HasSuffix(s, " 201")
	}) {
		t.Errorf("some evictions were rejected: %q", refusals)
	}
}

// packNodes configures a scheduler that places pods on the most allocated node.
func (d *descheduling) packNodes() {
	d.t.Helper()
	config := filepath.Join(d.t.TempDir(), "scheduler.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, qps: 1000, burst: 2000}
profiles:
  - schedulerName: default-scheduler
    plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}]}}
    pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`, d.path(Scheduler+".conf"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	i := d.find(Scheduler)
	if err := d.processes[i].stop(); err != nil {
		d.t.Fatal(err)
	}
	d.processes = slices.Delete(d.processes, i, i+1)
	err := d.run(d.t.Context(), part{
		name: Scheduler, ready: d.Cluster.answers(d.url(Scheduler) + "/readyz"),
		argv: slices.Concat([]string{d.bin + "/" + Scheduler}, d.asUser(Scheduler), []string{"--config=" + config}),
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// with runs f for a subtest.
func (d *descheduling) with(t *testing.T, f func()) {
	defer func(was testing.TB) { d.t, d.Cluster.t = was, was }(d.t)
	d.t, d.Cluster.t = t, t
	f()
}

// runCase runs a case. Node a is the only one until its pods run.
func (d *descheduling) runCase(t *testing.T, s *strategyCase) {
	app := s.app
	d.kubectl("label", "node", "a", "disk=ssd", "--overwrite")
	d.kubectl("cordon", "b", "c")
	noisy := d.place("noisy", "a", 0, 0)
	d.deploy(s)
	d.awaitDistribution(app, "on a", func(on map[string]int) bool { return on["a"] == int(s.replicas) })
	d.kubectl("uncordon", "b", "c")
	if s.happens != nil {
		s.happens(d, app)
	}
	policy := d.policy(s.strategy, s.args, app)
	p := d.dryRunAndRun(policy)
	if len(p.Evictions) != s.evicts || slices.ContainsFunc(p.Evictions, func(e struct{ Name, UID, Node, Strategy string }) bool {
		return e.Strategy != s.strategy || !strings.HasPrefix(e.Name, app+"-") || e.Node != "a"
	}) {
		t.Errorf("plan of the strategy = %+v, want evictions", p)
	}
	d.awaitDistribution(app, "as the model allows", s.lies)
	if s.strategy != "PodLifeTime" { // its pods are all old again
		if again := d.plan(policy); len(again.Evictions) > 0 {
			t.Errorf("plan after the cycle = %v, want none", again.Evictions)
		}
	}
	d.kubectl("delete", "deployment", app)
	d.kubectl("delete", "pod", "noisy", "--grace-period=0", "--force")
	d.awaitPodGone(noisy)
	d.awaitDistribution(app, "nowhere", func(on map[string]int) bool { return len(on) == 0 })
	d.kubectl("label", "node", "b", "disk-")
	d.kubectl("patch", "node", "a", "-p", `{"spec": {"taints": null}}`)
}

// deploy makes a case's Deployment.
func (d *descheduling) deploy(s *strategyCase) {
	d.t.Helper()
	labels, grace := map[string]string{"app": s.app}, int64(1)
	c := container("sleep")
	if s.request != "" {
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(s.request)}
	}
	pod := v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{c}}
	if s.spec != nil {
		s.spec(&pod)
	}
	_, err := d.Client.AppsV1().Deployments("default").Create(d.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: s.app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &s.replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
}

// patchFirst patches the status of one pod of a Deployment.
func (d *descheduling) patchFirst(app, body string) {
	d.t.Helper()
	pods, err := d.Pods(d.t.Context(), "default", "app="+app)
	if err != nil || len(pods) == 0 {
		d.t.Fatal(errors.Join(err, errors.New("the Deployment has no pod")))
	}
	d.kubectl("patch", "pod", pods[0].Name, "--subresource=status", "-p", body)
}

func onDisk() *v1.Affinity {
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: "disk", Operator: v1.NodeSelectorOpIn, Values: []string{"ssd"},
		}}}},
	}}}
}

func fromLoud() *v1.Affinity {
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"loud": "yes"}},
	}}}}
}
