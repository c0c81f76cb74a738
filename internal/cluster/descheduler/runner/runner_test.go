package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/deschedule"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

func node(name string) *v1.Node {
	list := v1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("20")}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: list, Capacity: list,
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
}

func pod(name, on string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), Annotations: map[string]string{"a": "b"},
			CreationTimestamp: metav1.NewTime(time.Now().Add(-48 * time.Hour)),
			OwnerReferences:   []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "rs"}}},
		Spec: v1.PodSpec{NodeName: on, Containers: []v1.Container{{Name: "c", Env: []v1.EnvVar{{Name: "e"}},
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("100m")}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	for _, e := range edits {
		e(p)
	}
	return p
}

func inBackground(p *v1.Pod) { p.Annotations[requestOnly] = "" }

// old has pods evicted that are older than an hour.
func old() *deschedule.Policy {
	profile := deschedule.Profile{Name: "default"}
	profile.Enable(deschedule.PodLifeTime, &deschedule.PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(3600))})
	return &deschedule.Policy{Profiles: []deschedule.Profile{profile}}
}

// run makes one cycle.
func run(t *testing.T, a *api, policy *deschedule.Policy, edits ...func(*Options)) (stdout, log string, err error) {
	t.Helper()
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	var out, lines bytes.Buffer
	o := Options{API: a.config(), Policy: policy, Format: output.AsJSON, LeaseNamespace: "jettison-system", Version: "t",
		Log: slog.New(slog.NewTextHandler(&lines, nil)), Stdout: terminal.Fixed(&out, 120)}
	for _, e := range edits {
		e(&o)
	}
	err = Run(t.Context(), o)
	return out.String(), lines.String(), err
}

func scripted(t *testing.T, pods ...*v1.Pod) *api {
	a := newAPI(t)
	a.objects["nodes"] = []any{node("n1"), node("n2")}
	for _, p := range pods {
		a.objects["pods"] = append(a.objects["pods"], p)
	}
	return a
}

// A run does what a dry run prints, in its order, each with the UID that was planned for.
func TestADryRunPrintsWhatARunDoes(t *testing.T) {
	pods := []*v1.Pod{pod("a", "n1"), pod("b", "n1"), pod("c", "n2", func(p *v1.Pod) { p.CreationTimestamp = metav1.Now() })}
	a := scripted(t, pods...)
	text, _, err := run(t, a, old(), func(o *Options) { o.DryRun = true })
	if err != nil || len(a.asked()) != 0 || len(a.told()) != 0 {
		t.Fatalf("%v: %v %v", err, a.asked(), a.told())
	}
	var plan struct{ Evictions []struct{ Name string } }
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	var planned []string
	for _, e := range plan.Evictions {
		planned = append(planned, e.Name)
	}
	policy := old()
	policy.GracePeriodSeconds = new(int64(7))
	_, log, err := run(t, a, policy)
	if err != nil || len(planned) != 2 || !slices.Equal(a.asked(), planned) {
		t.Errorf("%v: planned %v, asked for %v\n%s", err, planned, a.asked(), log)
	}
	e := a.evictions[0]
	if *e.DeleteOptions.Preconditions.UID != types.UID("u-"+e.Name) || *e.DeleteOptions.GracePeriodSeconds != 7 ||
		!strings.HasPrefix(e.Annotations["reason"], "triggered by default/PodLifeTime: age 48h") {
		t.Errorf("%+v", e)
	}
	if got := a.told(); len(got) != 2 || !strings.HasPrefix(got[0], "Normal PodLifeTime pod eviction from n1 node by jettison-cluster") {
		t.Errorf("%v", got)
	}
}

// A budget that refuses, a webhook, a pod that is another one by now: the others go all the same.
func TestWhatTheAPIAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		answer func() metav1.Status
		events int
	}{
		"budget": {failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget.",
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget b needs 2 healthy pods and has 2 currently"}), 2},
		"webhook":  {failure(http.StatusForbidden, metav1.StatusReasonForbidden, "admission webhook \"w\" denied the request: no"), 2},
		"conflict": {failure(http.StatusConflict, metav1.StatusReasonConflict, "the UID in the precondition does not match"), 1},
		"gone":     {failure(http.StatusNotFound, metav1.StatusReasonNotFound, "pods \"a\" not found"), 1},
		"broken":   {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd"), 2},
	} {
		t.Run(what, func(t *testing.T) {
			a := scripted(t, pod("a", "n1", func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Hour) }), pod("b", "n1"))
			a.answers["a"] = c.answer
			policy := old()
			policy.EvictionFailureEventNotification = new(true)
			_, log, err := run(t, a, policy)
			if err != nil || !slices.Equal(a.asked(), []string{"a", "b"}) {
				t.Errorf("%v: %v\n%s", err, a.asked(), log)
			}
			if got := a.told(); len(got) != c.events || c.events == 2 && !strings.HasPrefix(got[0], "Warning EvictionFailed pod eviction from n1 node") {
				t.Errorf("%v", got)
			}
		})
	}
}

// Where the API fails again and again a cycle ends, with an error: nothing asks on.
func TestACycleEndsWhereTheAPIIsAway(t *testing.T) {
	a := scripted(t)
	for i := range 10 {
		p := pod(fmt.Sprint("p", i), "n1")
		a.objects["pods"] = append(a.objects["pods"], p)
		a.answers[p.Name] = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
	}
	_, log, err := run(t, a, old())
	if err == nil || !strings.Contains(err.Error(), "3 evictions in a row failed, 0 of 10 are done") || len(a.asked()) != 3 {
		t.Errorf("%v: %v\n%s", err, a.asked(), log)
	}
}

// What says "later" is asked once: a client that waits by itself would hold all others up.
func TestLaterIsNotWaitedFor(t *testing.T) {
	a := scripted(t, pod("a", "n1"))
	a.answers["a"] = func() metav1.Status {
		s := failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later",
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause})()
		s.Details.RetryAfterSeconds = 10
		return s
	}
	if _, log, err := run(t, a, old()); err != nil || len(a.asked()) != 1 {
		t.Errorf("%v: %v\n%s", err, a.asked(), log)
	}
}

func TestWhatMayNotBeReadIsSaidAtOnce(t *testing.T) {
	a := scripted(t)
	a.lists["poddisruptionbudgets"] = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "poddisruptionbudgets is forbidden")()
	if _, _, err := run(t, a, old()); err == nil || !strings.Contains(err.Error(), "read poddisruptionbudgets of the cluster: ") {
		t.Errorf("%v", err)
	}
}

// cycler makes cycles by hand.
func cycler(t *testing.T, a *api, policy *deschedule.Policy) (*descheduler, *time.Time) {
	t.Helper()
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := &descheduler{o: Options{Policy: policy, Log: slog.New(slog.DiscardHandler), Format: output.AsJSON, Stdout: terminal.Fixed(&out, 80)},
		memory: newMemory(), metrics: newMetrics("t")}
	now := time.Now()
	d.now = func() time.Time { return now }
	ctx, cancel := context.WithCancel(t.Context())
	read := client(t, a)
	d.write, d.source = read, newSource(read, d.o.Log)
	d.figures = newFigures(read, policy, "jettison-system")
	t.Cleanup(func() { d.source.close(cancel) })
	if err := d.source.sync(ctx); err != nil {
		t.Fatal(err)
	}
	return d, &now
}

// LM8: evictions in the background are asked for once, count against limits, and are asked for again where nothing comes of them.
func TestBackground(t *testing.T) {
	a := scripted(t, pod("p1", "n1", inBackground), pod("p2", "n1", inBackground), pod("p3", "n2"), pod("p4", "n2"))
	for _, name := range []string{"p1", "p2"} {
		a.answers[name] = failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, backgroundText)
	}
	d, now := cycler(t, a, old())
	for range 2 {
		if err := d.cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	asked := a.asked()
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"p1", "p2", "p3", "p4"}) {
		t.Errorf("%v", asked)
	}
	for result, want := range map[string]float64{resultBackground: 2, resultSuccess: 2} {
		if got := counted(t, d, result); got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
	plan, err := d.plan(t.Context(), *now, durations{})
	if err != nil || len(plan.Evictions) != 0 {
		t.Errorf("%v: %+v", err, plan.Evictions)
	}
	*now = now.Add(assumedFor)
	if plan, err = d.plan(t.Context(), *now, durations{}); err != nil || len(plan.Evictions) != 4 { // and the others are there still
		t.Errorf("%v: %+v", err, plan.Evictions)
	}
	d.o.Policy.MaxNoOfPodsToEvictTotal = new(uint(3))
	d.memory.requested(*now, a.objects["pods"][0].(*v1.Pod))
	if plan, err = d.plan(t.Context(), *now, durations{}); err != nil || len(plan.Evictions) != 2 {
		t.Errorf("%v: %+v", err, plan.Evictions)
	}
}

// Whoever owns pods may annotate them as he likes: those that say of themselves that their eviction is under way, and that nobody has asked to
// evict, are left alone, and cost others no turn.
func TestWhoSaysThatHeGoesTakesNobodysTurn(t *testing.T) {
	says := func(p *v1.Pod) { p.Annotations[requestOnly], p.Annotations[inProgress] = "", "" }
	a := scripted(t, pod("p1", "n1", says), pod("p2", "n1", says), pod("p3", "n1"), pod("p4", "n2"))
	policy := old()
	policy.MaxNoOfPodsToEvictTotal, policy.MaxNoOfPodsToEvictPerNode = new(uint(2)), new(uint(1))
	d, _ := cycler(t, a, policy)
	if err := d.cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := a.asked()
	if slices.Sort(asked); !slices.Equal(asked, []string{"p3", "p4"}) {
		t.Errorf("asked for %v", asked)
	}
}

// Whatever a pod is called, its event has a name that the API takes.
func TestEventsOfPodsWithLongNames(t *testing.T) {
	a := scripted(t, pod(strings.Repeat("p", 253), "n1"))
	if _, log, err := run(t, a, old()); err != nil || len(a.told()) != 1 {
		t.Errorf("%v: told %v, log %s", err, a.told(), log)
	}
}

// A pod that the API keeps has others take its turn.
func TestARefusedPodStaysForAWhile(t *testing.T) {
	older := func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Hour) }
	a := scripted(t, pod("a", "n1", older), pod("b", "n1"))
	a.answers["a"] = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	policy := old()
	policy.MaxNoOfPodsToEvictTotal = new(uint(1))
	d, now := cycler(t, a, policy)
	for range 2 {
		if err := d.cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.asked(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	*now = now.Add(refusedFor)
	if err := d.cycle(t.Context()); err != nil || len(a.asked()) != 3 {
		t.Errorf("%v: %v", err, a.asked())
	}
}

// A webhook or a policy that says no keeps its pods, whatever code it has, and costs no other its turn; one that cannot be asked ends a cycle as
// any failure of the API does.
func TestWhoSaysNoKeepsItsPodsAlone(t *testing.T) {
	for _, c := range []struct {
		code   int32
		reason metav1.StatusReason
		text   string
		want   []string
	}{
		{http.StatusBadRequest, metav1.StatusReasonBadRequest, `admission webhook "w" denied the request without explanation`, []string{"a", "b", "c", "d"}},
		{http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: no`, []string{"a", "b", "c", "d"}},
		{http.StatusNotFound, metav1.StatusReasonNotFound, `admission webhook "w" denied the request: no`, []string{"a", "b", "c", "d"}},
		{http.StatusConflict, metav1.StatusReasonConflict, `admission webhook "w" denied the request: no`, []string{"a", "b", "c", "d"}},
		{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, `admission webhook "w" denied the request: no`, []string{"a", "b", "c", "d"}},
		{http.StatusInternalServerError, metav1.StatusReasonInternalError, `admission webhook "w" denied the request: no`, []string{"a", "b", "c", "d"}},
		{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`, []string{"a", "b", "c", "d"}},
		{http.StatusInternalServerError, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w": no`, []string{"a", "b", "c"}},
	} {
		var pods []*v1.Pod
		for i, name := range []string{"a", "b", "c", "d"} { // the oldest goes first
			pods = append(pods, pod(name, "n1", func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Duration(4-i) * time.Hour) }))
		}
		a := scripted(t, pods...)
		for _, name := range []string{"a", "b", "c"} {
			a.answers[name] = failure(c.code, c.reason, c.text)
		}
		d, _ := cycler(t, a, old())
		err := d.cycle(t.Context())
		got := a.asked()
		if slices.Sort(got); !slices.Equal(got, c.want) || (err == nil) != (len(c.want) == 4) {
			t.Errorf("%d %s: asked for %v, want %v; %v", c.code, c.text, got, c.want, err)
		}
		if _, kept := d.memory.refusals["u-a"]; kept != (len(c.want) == 4) {
			t.Errorf("%d %s: it is kept: %v", c.code, c.text, kept)
		}
	}
}

// The metrics API, the agents' Leases and a Prometheus give figures; what cannot be had stops what goes by it, and nothing else.
func TestFigures(t *testing.T) {
	a := scripted(t)
	a.raw["/apis/metrics.k8s.io/v1beta1/nodes"] = `{"items":[{"metadata":{"name":"n1"},"usage":{"cpu":"3","memory":"1Gi"}}]}`
	a.raw["/apis/metrics.k8s.io/v1beta1/pods"] =
		`{"items":[{"metadata":{"namespace":"shop","name":"a"},"containers":[{"usage":{"cpu":"1"}},{"usage":{"cpu":"500m"}}]}]}`
	a.raw["/apis/coordination.k8s.io/v1/namespaces/jettison-system/leases"] = `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","items":[
		{"metadata":{"name":"n1","annotations":{"jettison/load":"{\"time\":\"2026-11-23T12:00:00Z\",\"pressurePercent\":{\"memorySome\":40}}"}}},
		{"metadata":{"name":"n2","annotations":{"jettison/load":"broken"}}}]}`
	a.raw["/api/v1/namespaces/ns/secrets/s"] = `{"kind":"Secret","apiVersion":"v1","data":{"prometheusAuthToken":"dA=="}}`
	var token, query string
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, query = r.Header.Get("Authorization"), r.URL.Query().Get("query")
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"n2"},"value":[1,"0.625"]}]}}`))
	}))
	defer prometheus.Close()
	profile := deschedule.Profile{Name: "p"}
	profile.Enable(deschedule.LowNodeUtilization, &deschedule.LowNodeUtilizationArgs{
		Thresholds: deschedule.Thresholds{deschedule.MetricResource: 20}, TargetThresholds: deschedule.Thresholds{deschedule.MetricResource: 50},
		MetricsUtilization: &deschedule.MetricsUtilization{Source: deschedule.PrometheusMetrics, Prometheus: &deschedule.PrometheusQuery{Query: "q"}}})
	other := deschedule.Profile{Name: "o"}
	other.Enable(deschedule.HighNodeUtilization, &deschedule.HighNodeUtilizationArgs{
		Thresholds:         deschedule.Thresholds{"cpu": 20, deschedule.AgentMemorySome: 5},
		MetricsUtilization: &deschedule.MetricsUtilization{Source: deschedule.KubernetesMetrics}})
	policy := &deschedule.Policy{Profiles: []deschedule.Profile{profile, other}, MetricsProviders: []deschedule.MetricsProvider{
		{Source: deschedule.PrometheusMetrics, Prometheus: &deschedule.Prometheus{URL: prometheus.URL,
			AuthToken: &deschedule.AuthToken{SecretReference: &deschedule.SecretReference{Namespace: "ns", Name: "s"}}}},
		{Source: deschedule.KubernetesMetrics}}}
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	f, s := newFigures(client(t, a), policy, "jettison-system"), &deschedule.Snapshot{}
	errs := f.fill(t.Context(), time.Now(), s)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "read the load of node n2: annotation jettison/load: ") {
		t.Errorf("%v", errs)
	}
	cpu, mine, share := s.NodeUse["n1"]["cpu"], s.PodUse["shop/a"]["cpu"], s.Queried["q"]["n2"]
	if cpu.MilliValue() != 3000 || mine.MilliValue() != 1500 || share != 62 || token != "Bearer t" || query != "q" {
		t.Errorf("%v %v %v, token %q, query %q", cpu.String(), mine.String(), share, token, query)
	}
	if got := s.Agents["n1"].Percent[deschedule.AgentMemorySome]; got != 40 || len(s.Agents) != 1 {
		t.Errorf("%+v", s.Agents)
	}
	a.lists["nodes"] = failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")()
	delete(a.raw, "/apis/metrics.k8s.io/v1beta1/nodes")
	prometheus.Close()
	if errs := f.fill(t.Context(), time.Now(), &deschedule.Snapshot{}); len(errs) != 3 {
		t.Errorf("%v", errs)
	}
}

// Each strategy of each profile has one duration a cycle, of planning it and of its evictions. The clock goes on by a second each time it is
// looked at.
func TestTimeOfStrategies(t *testing.T) {
	policy := old()
	other := deschedule.Profile{Name: "other"}
	other.Enable(deschedule.RemoveFailedPods, &deschedule.RemoveFailedPodsArgs{})
	other.Enable(deschedule.RemoveDuplicates, &deschedule.RemoveDuplicatesArgs{})
	policy.Profiles = append(policy.Profiles, other)
	d, now := cycler(t, scripted(t, pod("p1", "n1")), policy)
	d.now = func() time.Time {
		*now = now.Add(time.Second)
		return *now
	}
	for range 2 {
		if err := d.cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	families, err := d.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	took := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "descheduler_strategy_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			key := labels["profile"] + "/" + labels["strategy"]
			took[key] = m.GetHistogram().GetSampleSum()
			if n := m.GetHistogram().GetSampleCount(); n != 2 {
				t.Errorf("%s: %d durations in 2 cycles", key, n)
			}
		}
	}
	failed := took["other/RemoveFailedPods"]
	if len(took) != 3 || failed < 2 || took["other/RemoveDuplicates"] != failed || took["default/PodLifeTime"] <= failed {
		t.Errorf("%v", took)
	}
}

// Metrics have the names of 0.36.0, and readiness comes with the first look at the cluster.
func TestMetricsAndHealth(t *testing.T) {
	m := newMetrics("v1")
	m.evicted.WithLabelValues(resultSuccess, "PodLifeTime", "p", "ns", "n1").Inc()
	m.loop.Observe(0.3)
	m.took(durations{part{"PodLifeTime", "p"}: 300 * time.Millisecond})
	server := httptest.NewServer(m.handler())
	defer server.Close()
	if text := get(t, server.URL+"/metrics", http.StatusOK); !strings.Contains(text,
		`descheduler_pods_evicted_total{namespace="ns",node="n1",profile="p",result="success",strategy="PodLifeTime"} 1`) ||
		!strings.Contains(text, `descheduler_loop_duration_seconds_bucket{le="0.5"} 1`) ||
		!strings.Contains(text, `descheduler_strategy_duration_seconds_bucket{profile="p",strategy="PodLifeTime",le="0.5"} 1`) || !strings.Contains(text, "descheduler_build_info{") {
		t.Errorf("%s", text)
	}
	get(t, server.URL+"/readyz", http.StatusServiceUnavailable)
	m.ready.Store(true)
	get(t, server.URL+"/readyz", http.StatusOK)
	get(t, server.URL+"/healthz", http.StatusOK)
}

// What a cycle says that it did is what was done.
func TestACycleCountsWhatBecameOfItsEvictions(t *testing.T) {
	a := scripted(t, pod("a", "n1"), pod("b", "n1"), pod("c", "n1"), pod("d", "n1", inBackground))
	a.answers["a"] = failure(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: no`)
	a.answers["b"] = failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	a.answers["d"] = failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, backgroundText)
	_, log, err := run(t, a, old())
	if err != nil || !strings.Contains(log, "evictions=4 evicted=1 background=1 refused=1 gone=1 failed=0") {
		t.Errorf("%v: %s", err, log)
	}
}

// Who may evict nobody is told so at the end of a Job; who may in some namespaces has their pods evicted.
func TestTheRightToEvictIsMissing(t *testing.T) {
	forbid := failure(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "a" is forbidden: User "system:serviceaccount:kube-system:d" `+
		`cannot create resource "pods/eviction" in API group "" in the namespace "shop"`)
	a := scripted(t, pod("a", "n1"), pod("b", "n1"))
	a.answers["a"] = forbid
	if _, log, err := run(t, a, old()); err != nil || len(a.asked()) != 2 {
		t.Errorf("%v: %v\n%s", err, a.asked(), log)
	}
	a.answers["b"] = forbid
	if _, log, err := run(t, a, old()); err == nil || !strings.Contains(err.Error(), "none of 2 evictions may be asked for") {
		t.Errorf("%v\n%s", err, log)
	}
}

// What can be read no more after the first look is logged, and not with every try.
func TestALostViewIsSaid(t *testing.T) {
	a := scripted(t)
	var log bytes.Buffer
	s := newSource(client(t, a), slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		s.onError("pods", apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("no")))
	}
	s.onError("nodes", apierrors.NewResourceExpired("too old"))
	s.onError("nodes", io.EOF)
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "resource=pods") {
		t.Errorf("%s", text)
	}
}

// A policy that cannot do anything is one line at the start.
func TestAnIdlePolicyIsSaid(t *testing.T) {
	if _, log, err := run(t, scripted(t), &deschedule.Policy{}); err != nil || !strings.Contains(log, "the policy enables no strategy") {
		t.Errorf("%v: %s", err, log)
	}
}
