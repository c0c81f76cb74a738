package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/api"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/metrics"
	"jettison/stats/read"
)

// serve returns the answer of the agent's endpoints.
func (l *testLoop) serve(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	l.b.endpoints.Find(path)(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// A scrape of a node with 110 pods names none of them, and is about as large as with one pod.
func TestAScrapeOfManyPods(t *testing.T) {
	const most = 300 << 10
	var sizes [2]int
	for i, pods := range []int{1, 110} {
		l := newLoop(t, "", nil)
		for n := range pods - 1 { // in addition to the node's pod
			uid := fmt.Sprintf("%08d-1111-2222-3333-444455556666", n)
			l.AddPod("kubepods/burstable/pod"+uid, 1)
			l.Runtime.Change(func() {
				l.Runtime.Sandboxes = append(l.Runtime.Sandboxes, &runtimev1.PodSandbox{
					Id: "sandbox-" + uid, State: runtimev1.PodSandboxState_SANDBOX_READY,
					Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Namespace: "crowd", Name: "crowd-" + uid},
				})
			})
		}
		listing, err := l.b.lister.Client().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.onListed(podlister.Update{Pods: read.NewIndex(listing)})
		l.look(t.Context(), time.Now())
		l.onTick(t.Context(), time.Now())
		l.publisher.markChanged()
		l.publisher.publish(l.loop)
		text := l.serve(api.PathMetrics).Body.String()
		if want := fmt.Sprintf("jettison_pods{state=\"listed\"} %d\n", len(listing.Sandboxes)); !strings.Contains(text, want) ||
			len(listing.Sandboxes) < pods-1 || strings.Contains(text, "crowd") || strings.Contains(text, "4444") {
			t.Errorf("scrape of %d pods: line %s is missing, or a pod is named", pods, want)
		}
		sizes[i] = len(text)
	}
	if t.Logf("one pod: %d bytes, 110 pods: %d bytes", sizes[0], sizes[1]); sizes[1] > most || sizes[1] > 2*sizes[0] {
		t.Errorf("scrapes of %d and %d bytes, want at most %d, and not growing with the pods", sizes[0], sizes[1], most)
	}
}

// A scrape contains the published State and the counts of the parts; the node's figures come from a
// separate measurement.
func TestServedMetricsAndStats(t *testing.T) {
	l := newLoop(t, "", nil)
	if text := l.serve(api.PathMetrics).Body.String(); !strings.Contains(text, "jettison_build_info") || strings.Contains(text, "condition_status") {
		t.Errorf("scrape before the loop runs: %s", text)
	}
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.look(t.Context(), time.Now())
	l.onTick(t.Context(), time.Now())
	l.publisher.markChanged()
	l.publisher.publish(l.loop)
	text := l.serve(api.PathMetrics).Body.String()
	for _, line := range []string{
		`jettison_signal_available_bytes{eviction_signal="memory.available"} 5.24288e+08`,
		`jettison_threshold_bytes{eviction_signal="memory.available",kind="hard"} 1.048576e+08`,
		`jettison_condition_status{condition="MemoryPressure"} 0`,
		`jettison_source_up{source="memory"} 1`,
		`jettison_pods{state="listed"} 1`,
		`jettison_looks_total{kind="cheap"} 1`,
		`jettison_mode_info{beside_kubelet="false",disk="act",gc="act",dry_run="false",pods="off"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the scrape lacks the line %s", line)
		}
	}
	// The cgroup above all pods has no limit here, and none is configured: the signal does not count
	// as lost.
	if line := `jettison_signal_observed{eviction_signal="allocatableMemory.available"} 0`; strings.Contains(text, line+"\n") {
		t.Errorf("the scrape has the line %s, which raises an alert forever", line)
	}
	if t.Failed() {
		t.Log(text)
	}
	var s v1alpha1.Summary
	if err := json.Unmarshal(l.serve(api.PathSummary).Body.Bytes(), &s); err != nil || len(s.Pods) != 1 {
		t.Errorf("Summary = %+v, %v, want one pod", s, err)
	}
	if text := l.serve(api.PathResource).Body.String(); !strings.Contains(text, `pod_memory_working_set_bytes{namespace="default",pod="pod"}`) {
		t.Errorf("resource metrics lack the pod: %s", text)
	}
}

// The network serves read paths only, and next to a kubelet not those that the kubelet serves.
func TestNetworkEndpoints(t *testing.T) {
	l := newLoop(t, "listen: 127.0.0.1:1\n", nil)
	for kubelet, want := range map[bool]int{true: http.StatusForbidden, false: http.StatusOK} {
		l.publisher.kubelet.Store(kubelet)
		h, why := l.b.endpoints.Remote(api.PathResource)
		if (h != nil) != (want == http.StatusOK) || (why == "") != (h != nil) {
			t.Errorf("kubelet %v: resource metrics served %v, reason %s", kubelet, h != nil, why)
		}
	}
	if h, _ := l.b.endpoints.Remote(api.PathPprof); h != nil {
		t.Error("profiles are served on the network")
	}
	l.o.Config.Listen = "127.0.0.1:0"
	if err := l.b.serve(); err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(l.Text(), "address=")
	address, _, _ = strings.Cut(address, " ")
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: tr}).Get("http://" + address + api.PathMetrics)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 200 || !strings.Contains(string(text), "jettison_build_info") {
		t.Errorf("scrape over the network: status %d, body %s", res.StatusCode, text)
	}
}

// Scrapers read concurrently with the loop.
func TestConcurrentScrapes(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.publisher.recordTurn()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				_ = l.serve(api.PathMetrics)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for {
		l.publisher.recordTurn()
		l.look(t.Context(), time.Now())
		select {
		case <-done:
			return
		case <-l.publisher.requests:
			l.publisher.publishNow()
		default:
		}
		l.publisher.publish(l.loop)
	}
}

// A port that another process uses does not keep the agent from starting.
func TestPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	l := newLoop(t, "", nil)
	l.o.Config.Listen = other.Addr().String()
	if err := l.b.serve(); err != nil {
		t.Errorf("the agent does not start with a port in use: %v", err)
	}
	if text := l.Text(); !strings.Contains(text, "network listener not started, retrying") {
		t.Errorf("the port in use is not logged: %s", text)
	}
}

// Metrics are written once for each published State, however many readers there are, and again
// after the loop has hung for a second.
func TestMetricsAreWrittenOnceAState(t *testing.T) {
	s := newPublisher(Options{}, "")
	m := &meter{publisher: s}
	if a, b := m.metrics(0), m.metrics(0); len(a) == 0 || &a[0] == &b[0] {
		t.Error("the text is cached although no State is published")
	}
	publish := func() {
		state := &api.State{Time: time.Now()}
		s.last.Store(&publication{state: state, now: &metrics.Now{State: state}, next: make(chan struct{})})
	}
	publish()
	a, b := m.metrics(1), m.metrics(2)
	if &a[0] != &b[0] {
		t.Error("metrics were written twice for one State")
	}
	publish()
	if b = m.metrics(2); &a[0] == &b[0] || bytes.Equal(a, b) {
		t.Error("metrics were not written for a newer State")
	}
	m.at = m.at.Add(-maxStateAge)
	if c := m.metrics(2); &b[0] == &c[0] {
		t.Error("metrics were not written again after a second")
	}
}
