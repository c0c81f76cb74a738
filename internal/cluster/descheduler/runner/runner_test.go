package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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
	"k8s.io/client-go/rest"

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

// lifeTimePolicy evicts pods that are older than an hour.
func lifeTimePolicy() *deschedule.Policy {
	profile := deschedule.Profile{Name: "default"}
	profile.Enable(deschedule.PodLifeTime, &deschedule.PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(3600))})
	return &deschedule.Policy{Profiles: []deschedule.Profile{profile}}
}

// run runs one cycle.
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

func apiWithPods(t *testing.T, pods ...*v1.Pod) *api {
	a := newAPI(t)
	a.objects["nodes"] = []any{node("n1"), node("n2")}
	for _, p := range pods {
		a.objects["pods"] = append(a.objects["pods"], p)
	}
	return a
}

// A run evicts the pods that a dry run prints, in the same order and with their UIDs.
func TestDryRunPrintsThePlanOfARun(t *testing.T) {
	pods := []*v1.Pod{pod("a", "n1"), pod("b", "n1"), pod("c", "n2", func(p *v1.Pod) { p.CreationTimestamp = metav1.Now() })}
	a := apiWithPods(t, pods...)
	text, _, err := run(t, a, lifeTimePolicy(), func(o *Options) { o.DryRun = true })
	if err != nil || len(a.requestedPods()) != 0 || len(a.eventTexts()) != 0 {
		t.Fatalf("dry run = %v, evictions requested for %v, events %v, want none", err, a.requestedPods(), a.eventTexts())
	}
	var plan struct{ Evictions []struct{ Name string } }
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	var planned []string
	for _, e := range plan.Evictions {
		planned = append(planned, e.Name)
	}
	policy := lifeTimePolicy()
	policy.GracePeriodSeconds = new(int64(7))
	_, log, err := run(t, a, policy)
	if err != nil || len(planned) != 2 || !slices.Equal(a.requestedPods(), planned) {
		t.Errorf("run = %v, evictions requested for %v, want %v as planned\n%s", err, a.requestedPods(), planned, log)
	}
	e := a.evictions[0]
	if *e.DeleteOptions.Preconditions.UID != types.UID("u-"+e.Name) || *e.DeleteOptions.GracePeriodSeconds != 7 ||
		!strings.HasPrefix(e.Annotations["reason"], "triggered by default/PodLifeTime: age 48h") {
		t.Errorf("eviction = %+v, want its UID, grace period 7 and the reason of PodLifeTime", e)
	}
	if got := a.eventTexts(); len(got) != 2 || !strings.HasPrefix(got[0], "Normal PodLifeTime pod eviction from n1 node by jettison-cluster") {
		t.Errorf("events = %v, want two about PodLifeTime", got)
	}
}

// Rejection by a budget or webhook, or a replaced pod, does not affect other evictions.
func TestEvictionResponses(t *testing.T) {
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
			a := apiWithPods(t, pod("a", "n1", func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Hour) }), pod("b", "n1"))
			a.answers["a"] = c.answer
			policy := lifeTimePolicy()
			policy.EvictionFailureEventNotification = new(true)
			_, log, err := run(t, a, policy)
			if err != nil || !slices.Equal(a.requestedPods(), []string{"a", "b"}) {
				t.Errorf("Run() = %v, evictions requested for %v, want a and b\n%s", err, a.requestedPods(), log)
			}
			if got := a.eventTexts(); len(got) != c.events || c.events == 2 && !strings.HasPrefix(got[0], "Warning EvictionFailed pod eviction from n1 node") {
				t.Errorf("events = %v, want %d, the first about a failure if two", got, c.events)
			}
		})
	}
}

// If requests keep failing, the cycle ends with an error and sends no more requests.
func TestCycleStopsWhenAPIServerIsUnavailable(t *testing.T) {
	a := apiWithPods(t)
	for i := range 10 {
		p := pod(fmt.Sprint("p", i), "n1")
		a.objects["pods"] = append(a.objects["pods"], p)
		a.answers[p.Name] = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
	}
	_, log, err := run(t, a, lifeTimePolicy())
	if err == nil || !strings.Contains(err.Error(), "3 consecutive evictions failed, 0 of 10 done") || len(a.requestedPods()) != 3 {
		t.Errorf("Run() = %v, evictions requested for %v, want an error after three\n%s", err, a.requestedPods(), log)
	}
}

// A proxy in front of the API server, such as the sidecar of a service mesh, knows no pods: its
// answers reject no pod, and show no pod gone. The cycle ends, and the next one tries the pods again.
func TestProxyAnswersForAPIServer(t *testing.T) {
	for _, c := range []struct {
		code int
		text string
	}{{http.StatusForbidden, "RBAC: access denied"}, {http.StatusNotFound, "default backend - 404"}, {http.StatusConflict, "conflict"},
		{http.StatusBadRequest, "Client sent an HTTP request to an HTTPS server."}, {http.StatusBadGateway, "upstream connect error"}} {
		a := apiWithPods(t, pod("a", "n1"), pod("b", "n1"), pod("c", "n1"), pod("d", "n1"))
		a.proxyCode, a.proxyText = c.code, c.text
		d, now := newDescheduler(t, a, lifeTimePolicy())
		if err := d.cycle(t.Context()); err == nil || !strings.Contains(err.Error(), "3 consecutive evictions failed, 0 of 4 done") {
			t.Errorf("%d %s: cycle() = %v, want an error after three evictions", c.code, c.text, err)
		}
		a.mu.Lock()
		a.proxyCode, a.evictions = 0, nil
		a.mu.Unlock()
		*now = now.Add(time.Second)
		if err := d.cycle(t.Context()); err != nil || len(a.requestedPods()) != 4 {
			t.Errorf("%d %s: next cycle() = %v, evictions requested for %v, want all four", c.code, c.text, err, a.requestedPods())
		}
	}
}

// A response with Retry-After is not retried: waiting would delay all other evictions.
func TestRetryAfterIsIgnored(t *testing.T) {
	a := apiWithPods(t, pod("a", "n1"))
	a.answers["a"] = func() metav1.Status {
		s := failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later",
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause})()
		s.Details.RetryAfterSeconds = 10
		return s
	}
	if _, log, err := run(t, a, lifeTimePolicy()); err != nil || len(a.requestedPods()) != 1 {
		t.Errorf("Run() = %v, evictions requested for %v, want a single request\n%s", err, a.requestedPods(), log)
	}
}

func TestForbiddenListFailsImmediately(t *testing.T) {
	a := apiWithPods(t)
	a.lists["poddisruptionbudgets"] = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "poddisruptionbudgets is forbidden")()
	if _, _, err := run(t, a, lifeTimePolicy()); err == nil || !strings.Contains(err.Error(), "list poddisruptionbudgets: ") {
		t.Errorf("Run() = %v, want an error about listing poddisruptionbudgets", err)
	}
}

// newDescheduler returns a descheduler for running cycles by hand, and its clock.
func newDescheduler(t *testing.T, a *api, policy *deschedule.Policy) (*descheduler, *time.Time) {
	t.Helper()
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := &descheduler{o: Options{Policy: policy, Interval: time.Minute, Log: slog.New(slog.DiscardHandler), Format: output.AsJSON, Stdout: terminal.Fixed(&out, 80)},
		history: newHistory(), metrics: newMetrics("t")}
	now := time.Now()
	d.now = func() time.Time { return now }
	ctx, cancel := context.WithCancel(t.Context())
	read := client(t, a)
	d.write, d.source = read, newSource(read, d.o.Log)
	d.usage = newUsageReader(read, &rest.TLSClientConfig{}, policy, "jettison-system")
	t.Cleanup(func() { d.source.close(cancel) })
	if err := d.source.sync(ctx); err != nil {
		t.Fatal(err)
	}
	return d, &now
}

// LM8: evictions in the background are requested once, count against limits, and are requested
// again after a timeout.
func TestBackgroundEviction(t *testing.T) {
	a := apiWithPods(t, pod("p1", "n1", inBackground), pod("p2", "n1", inBackground), pod("p3", "n2"), pod("p4", "n2"))
	for _, name := range []string{"p1", "p2"} {
		a.answers[name] = failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, backgroundText)
	}
	d, now := newDescheduler(t, a, lifeTimePolicy())
	for range 2 {
		if err := d.cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	asked := a.requestedPods()
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"p1", "p2", "p3", "p4"}) {
		t.Errorf("evictions requested for %v, want one for each pod", asked)
	}
	for result, want := range map[string]float64{resultBackground: 2, resultSuccess: 2} {
		if got := evictionCount(t, d, result); got != want {
			t.Errorf("evictions with result %s = %v, want %v", result, got, want)
		}
	}
	plan, err := d.plan(t.Context(), *now, durations{})
	if err != nil || len(plan.Evictions) != 0 {
		t.Errorf("plan() = %v, evictions = %+v, want none", err, plan.Evictions)
	}
	*now = now.Add(backgroundTimeout)
	if plan, err = d.plan(t.Context(), *now, durations{}); err != nil || len(plan.Evictions) != 4 { // p3 and p4 still exist, too
		t.Errorf("after the timeout: plan() = %v, evictions = %+v, want four", err, plan.Evictions)
	}
	d.o.Policy.MaxNoOfPodsToEvictTotal = new(uint(3))
	d.history.addBackground(*now, a.objects["pods"][0].(*v1.Pod))
	if plan, err = d.plan(t.Context(), *now, durations{}); err != nil || len(plan.Evictions) != 2 {
		t.Errorf("with limit 3 and one request: plan() = %v, evictions = %+v, want two", err, plan.Evictions)
	}
}

// Tenants can annotate their pods as being evicted in the background. Without a request by this
// process such pods are skipped and use no limit.
func TestForgedBackgroundEvictionUsesNoLimit(t *testing.T) {
	says := func(p *v1.Pod) { p.Annotations[requestOnly], p.Annotations[inProgress] = "", "" }
	a := apiWithPods(t, pod("p1", "n1", says), pod("p2", "n1", says), pod("p3", "n1"), pod("p4", "n2"))
	policy := lifeTimePolicy()
	policy.MaxNoOfPodsToEvictTotal, policy.MaxNoOfPodsToEvictPerNode = new(uint(2)), new(uint(1))
	d, _ := newDescheduler(t, a, policy)
	if err := d.cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := a.requestedPods()
	if slices.Sort(asked); !slices.Equal(asked, []string{"p3", "p4"}) {
		t.Errorf("evictions requested for %v, want p3 and p4", asked)
	}
}

// The event of a pod with a long name has a valid name.
func TestEventsOfPodsWithLongNames(t *testing.T) {
	a := apiWithPods(t, pod(strings.Repeat("p", 253), "n1"))
	if _, log, err := run(t, a, lifeTimePolicy()); err != nil || len(a.eventTexts()) != 1 {
		t.Errorf("Run() = %v, events = %v, want one; log %s", err, a.eventTexts(), log)
	}
}

// After a rejected eviction, other pods use the limit first.
func TestRejectedPodIsNotRetriedImmediately(t *testing.T) {
	older := func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Hour) }
	a := apiWithPods(t, pod("a", "n1", older), pod("b", "n1"))
	a.answers["a"] = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	policy := lifeTimePolicy()
	policy.MaxNoOfPodsToEvictTotal = new(uint(1))
	d, now := newDescheduler(t, a, policy)
	for range 2 {
		if err := d.cycle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.requestedPods(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("evictions requested for %v, want a, then b", got)
	}
	*now = now.Add(rejectionPeriod)
	if err := d.cycle(t.Context()); err != nil || len(a.requestedPods()) != 3 {
		t.Errorf("cycle() = %v, evictions requested for %v, want a third request", err, a.requestedPods())
	}
}

// A denial by a webhook or policy, with any status code, and a broken webhook concern only their
// pods.
func TestWebhookRejectionAffectsOnlyItsPod(t *testing.T) {
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
		{http.StatusInternalServerError, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w": no`, []string{"a", "b", "c", "d"}},
	} {
		var pods []*v1.Pod
		for i, name := range []string{"a", "b", "c", "d"} { // the oldest is evicted first
			pods = append(pods, pod(name, "n1", func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Duration(4-i) * time.Hour) }))
		}
		a := apiWithPods(t, pods...)
		for _, name := range []string{"a", "b", "c"} {
			a.answers[name] = failure(c.code, c.reason, c.text)
		}
		d, _ := newDescheduler(t, a, lifeTimePolicy())
		err := d.cycle(t.Context())
		got := a.requestedPods()
		if slices.Sort(got); !slices.Equal(got, c.want) || err != nil {
			t.Errorf("%d %s: evictions requested for %v, want %v; error %v", c.code, c.text, got, c.want, err)
		}
		if _, kept := d.history.rejections["u-a"]; !kept {
			t.Errorf("%d %s: no rejection of pod a recorded, want one", c.code, c.text)
		}
	}
}

// Usage comes from the metrics API, Leases of agents and Prometheus. A missing source affects
// only strategies that need it.
func TestUsageReader(t *testing.T) {
	a := apiWithPods(t)
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
	f, s := newUsageReader(client(t, a), &rest.TLSClientConfig{}, policy, "jettison-system"), &deschedule.Snapshot{}
	errs := f.fill(t.Context(), time.Now(), s)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "load of node n2: annotation jettison/load: ") {
		t.Errorf("fill() = %v, want one error about node n2", errs)
	}
	cpu, mine, share := s.NodeUsage["n1"]["cpu"], s.PodUsage["shop/a"]["cpu"], s.Queried["q"]["n2"]
	if cpu.MilliValue() != 3000 || mine.MilliValue() != 1500 || share != 62 || token != "Bearer t" || query != "q" {
		t.Errorf("usage of n1 = %v, of pod a = %v, share of n2 = %v, token %q, query %q, want 3, 1.5, 62, \"Bearer t\", \"q\"", cpu.String(), mine.String(), share, token, query)
	}
	if got := s.Agents["n1"].Percent[deschedule.AgentMemorySome]; got != 40 || len(s.Agents) != 1 {
		t.Errorf("agent load = %+v, want memorySome 40 for n1 only", s.Agents)
	}
	a.lists["nodes"] = failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")()
	delete(a.raw, "/apis/metrics.k8s.io/v1beta1/nodes")
	prometheus.Close()
	if errs := f.fill(t.Context(), time.Now(), &deschedule.Snapshot{}); len(errs) != 3 {
		t.Errorf("fill() = %v, want three errors", errs)
	}
}

// Each strategy of each profile has one duration for each cycle, which includes its evictions.
// The clock advances by a second with each reading.
func TestStrategyDurations(t *testing.T) {
	policy := lifeTimePolicy()
	other := deschedule.Profile{Name: "other"}
	other.Enable(deschedule.RemoveFailedPods, &deschedule.RemoveFailedPodsArgs{})
	other.Enable(deschedule.RemoveDuplicates, &deschedule.RemoveDuplicatesArgs{})
	policy.Profiles = append(policy.Profiles, other)
	d, now := newDescheduler(t, apiWithPods(t, pod("p1", "n1")), policy)
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
				t.Errorf("%s: %d durations in 2 cycles, want 2", key, n)
			}
		}
	}
	failed := took["other/RemoveFailedPods"]
	if len(took) != 3 || failed < 2 || took["other/RemoveDuplicates"] != failed || took["default/PodLifeTime"] <= failed {
		t.Errorf("durations = %v, want three, the longest for PodLifeTime", took)
	}
}

// Metrics have the names of 0.36.0. Readiness requires that all objects were listed.
func TestMetricsAndHealth(t *testing.T) {
	m := newMetrics("v1")
	m.evicted.WithLabelValues(resultSuccess, "PodLifeTime", "p", "ns", "n1").Inc()
	m.loop.Observe(0.3)
	m.observeStrategies(durations{strategyKey{"PodLifeTime", "p"}: 300 * time.Millisecond})
	server := httptest.NewServer(m.handler())
	defer server.Close()
	if text := get(t, server.URL+"/metrics", http.StatusOK); !strings.Contains(text,
		`descheduler_pods_evicted_total{namespace="ns",node="n1",profile="p",result="success",strategy="PodLifeTime"} 1`) ||
		!strings.Contains(text, `descheduler_loop_duration_seconds_bucket{le="0.5"} 1`) ||
		!strings.Contains(text, `descheduler_strategy_duration_seconds_bucket{profile="p",strategy="PodLifeTime",le="0.5"} 1`) || !strings.Contains(text, "descheduler_build_info{") {
		t.Errorf("metrics lack an expected line:\n%s", text)
	}
	get(t, server.URL+"/readyz", http.StatusServiceUnavailable)
	m.ready.Store(true)
	get(t, server.URL+"/readyz", http.StatusOK)
	get(t, server.URL+"/healthz", http.StatusOK)
}

// A page in a browser on this host cannot read the metrics through a name of its own. Idle
// connections are limited.
func TestMetricsServerIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, address := &descheduler{o: Options{Log: slog.New(slog.DiscardHandler)}, metrics: newMetrics("v1")}, l.Addr().String()
	defer d.serve(l)()
	for host, want := range map[string]int{"localhost:10258": 200, "evil.example:10258": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != want {
			t.Errorf("GET /metrics with host %s = %s, %v, want %d", host, response.Status, err, want)
		}
	}
	var open []net.Conn
	for range 100 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		open = append(open, c)
	}
	get(t, "http://"+address+"/healthz", http.StatusOK)
	held := 0
	for _, c := range open {
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			held++
		}
	}
	if held > 32 {
		t.Errorf("%d of %d idle connections are open, want at most 32", held, len(open))
	}
}

// The log of a cycle counts the actual outcomes.
func TestCycleLogsOutcomes(t *testing.T) {
	a := apiWithPods(t, pod("a", "n1"), pod("b", "n1"), pod("c", "n1"), pod("d", "n1", inBackground))
	a.answers["a"] = failure(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: no`)
	a.answers["b"] = failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	a.answers["d"] = failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, backgroundText)
	_, log, err := run(t, a, lifeTimePolicy())
	if err != nil || !strings.Contains(log, "evictions=4 evicted=1 background=1 rejected=1 gone=1 failed=0") {
		t.Errorf("Run() = %v, log lacks the counts of outcomes: %s", err, log)
	}
}

// A cycle fails if all evictions are forbidden. If only some are, the others happen.
func TestMissingPermissionToEvict(t *testing.T) {
	forbid := failure(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "a" is forbidden: User "system:serviceaccount:kube-system:d" `+
		`cannot create resource "pods/eviction" in API group "" in the namespace "shop"`)
	a := apiWithPods(t, pod("a", "n1"), pod("b", "n1"))
	a.answers["a"] = forbid
	if _, log, err := run(t, a, lifeTimePolicy()); err != nil || len(a.requestedPods()) != 2 {
		t.Errorf("Run() = %v, evictions requested for %v, want a and b\n%s", err, a.requestedPods(), log)
	}
	a.answers["b"] = forbid
	if _, log, err := run(t, a, lifeTimePolicy()); err == nil || !strings.Contains(err.Error(), "all 2 evictions are forbidden") {
		t.Errorf("Run() = %v, want an error about forbidden evictions\n%s", err, log)
	}
}

// Watch errors after the initial list are logged at most once per logInterval.
func TestWatchErrorsAreLoggedOnce(t *testing.T) {
	a := apiWithPods(t)
	var log bytes.Buffer
	s := newSource(client(t, a), slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		s.onError("pods", apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("no")))
	}
	s.onError("nodes", apierrors.NewResourceExpired("too old"))
	s.onError("nodes", io.EOF)
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "resource=pods") {
		t.Errorf("log = %s, want one line about pods", text)
	}
}

func TestIdlePolicyIsLogged(t *testing.T) {
	if _, log, err := run(t, apiWithPods(t), &deschedule.Policy{}); err != nil || !strings.Contains(log, "policy enables no strategy") {
		t.Errorf("Run() = %v, log lacks the idle policy: %s", err, log)
	}
}

// A move is remembered for a day, so that the next cycles do not repeat it without effect.
func TestMovesAreRemembered(t *testing.T) {
	h, now := newHistory(), time.Now()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: "n1"}}
	for range 2 { // the second move of the owner from the node replaces the first
		h.addEvicted(now, &deschedule.Eviction{Pod: p, Moves: []deschedule.PastMove{{Namespace: "x", Owner: "o", Node: "n1"}}})
	}
	s := &deschedule.Snapshot{}
	if h.fill(now.Add(time.Minute), s); len(s.Moves) != 1 || !s.Moves[0].At.Equal(now) {
		t.Errorf("after a minute: moves = %+v, want one of %v", s.Moves, now)
	}
	s = &deschedule.Snapshot{}
	if h.fill(now.Add(25*time.Hour), s); len(s.Moves) != 0 {
		t.Errorf("after 25 hours: moves = %+v, want none", s.Moves)
	}
}
