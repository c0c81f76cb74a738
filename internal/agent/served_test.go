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

// served is what the endpoints of an agent answer.
func (l *testLoop) served(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	l.b.endpoints.Find(path)(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// A scrape of a node with 110 pods names none of them, and is about as large as that of a node with one.
func TestAScrapeOfManyPods(t *testing.T) {
	const most = 300 << 10
	var sizes [2]int
	for i, pods := range []int{1, 110} {
		l := newLoop(t, "", nil)
		for n := range pods - 1 { // beside the one that there is
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
		l.shown.changed()
		l.shown.publish(l.loop)
		text := l.served(api.PathMetrics).Body.String()
		if want := fmt.Sprintf("jettison_pods{state=\"listed\"} %d\n", len(listing.Sandboxes)); !strings.Contains(text, want) ||
			len(listing.Sandboxes) < pods-1 || strings.Contains(text, "crowd") || strings.Contains(text, "4444") {
			t.Errorf("of %d pods: no line %s, or a pod's name", pods, want)
		}
		sizes[i] = len(text)
	}
	if t.Logf("one pod: %d bytes, 110 pods: %d bytes", sizes[0], sizes[1]); sizes[1] > most || sizes[1] > 2*sizes[0] {
		t.Errorf("want at most %d, and not by the pod", most)
	}
}

// A scrape gets what the loop has published and what its parts count, and the node's figures come from a look beside it.
func TestWhatIsServed(t *testing.T) {
	l := newLoop(t, "", nil)
	if text := l.served(api.PathMetrics).Body.String(); !strings.Contains(text, "jettison_build_info") || strings.Contains(text, "condition_status") {
		t.Errorf("before the loop runs: %s", text)
	}
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.look(t.Context(), time.Now())
	l.onTick(t.Context(), time.Now())
	l.shown.changed()
	l.shown.publish(l.loop)
	text := l.served(api.PathMetrics).Body.String()
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
			t.Errorf("no line %s", line)
		}
	}
	// The cgroup above all pods has no limit here, and nobody asked for one: that is no signal that is lost.
	if line := `jettison_signal_observed{eviction_signal="allocatableMemory.available"} 0`; strings.Contains(text, line+"\n") {
		t.Errorf("a line %s, by which an alert says for ever that a threshold does nothing", line)
	}
	if t.Failed() {
		t.Log(text)
	}
	var s v1alpha1.Summary
	if err := json.Unmarshal(l.served(api.PathSummary).Body.Bytes(), &s); err != nil || len(s.Pods) != 1 {
		t.Errorf("summary %+v, %v", s, err)
	}
	if text := l.served(api.PathResource).Body.String(); !strings.Contains(text, `pod_memory_working_set_bytes{namespace="default",pod="pod"}`) {
		t.Errorf("resource metrics: %s", text)
	}
}

// On the network there is what is read, and beside a kubelet not what that one serves.
func TestTheNetwork(t *testing.T) {
	l := newLoop(t, "listen: 127.0.0.1:1\n", nil)
	for kubelet, want := range map[bool]int{true: http.StatusForbidden, false: http.StatusOK} {
		l.shown.kubelet.Store(kubelet)
		h, why := l.b.endpoints.Remote(api.PathResource)
		if (h != nil) != (want == http.StatusOK) || (why == "") != (h != nil) {
			t.Errorf("kubelet %v: %v %s", kubelet, h != nil, why)
		}
	}
	if h, _ := l.b.endpoints.Remote(api.PathPprof); h != nil {
		t.Error("profiles are served")
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
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// Scrapers read while the loop works.
func TestScrapesBesideTheLoop(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.shown.turn()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				_ = l.served(api.PathMetrics)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for {
		l.shown.turn()
		l.look(t.Context(), time.Now())
		select {
		case <-done:
			return
		case <-l.shown.asked:
			l.shown.wanted()
		default:
		}
		l.shown.publish(l.loop)
	}
}

// A port that another process took first, as any user may, keeps no agent from guarding the node.
func TestAPortThatIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	l := newLoop(t, "", nil)
	l.o.Config.Listen = other.Addr().String()
	if err := l.b.serve(); err != nil {
		t.Errorf("the agent does not start: %v", err)
	}
	if text := l.Text(); !strings.Contains(text, "network listener not started, retrying") {
		t.Error(text)
	}
}

// Metrics are written once for each State that was published, however many read them, and anew once the loop has hung for a second.
func TestMetricsAreWrittenOnceAState(t *testing.T) {
	s := newShown(Options{}, "")
	m := &meter{shown: s}
	if a, b := m.metrics(0), m.metrics(0); len(a) == 0 || &a[0] == &b[0] {
		t.Error("nothing is published yet, and the text is kept")
	}
	publish := func() {
		state := &api.State{Time: time.Now()}
		s.last.Store(&publication{state: state, now: &metrics.Now{State: state}, next: make(chan struct{})})
	}
	publish()
	a, b := m.metrics(1), m.metrics(2)
	if &a[0] != &b[0] {
		t.Error("written twice")
	}
	publish()
	if b = m.metrics(2); &a[0] == &b[0] || bytes.Equal(a, b) {
		t.Error("not written for a newer State")
	}
	m.at = m.at.Add(-fresh)
	if c := m.metrics(2); &b[0] == &c[0] {
		t.Error("not written a second later")
	}
}
