package nodestats

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/cgroup"
	"jettison/internal/node/nodetest"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// taker returns a Taker on a node made of files.
func taker(t *testing.T, opened *atomic.Int32) (*nodetest.Node, *Taker) {
	t.Helper()
	n := nodetest.New(t)
	taker := New(Options{Node: "node-1", Open: func() (*read.Reader, func(), error) {
		opened.Add(1)
		fs, err := cgroup.OpenTree(n.Dir + "/cgroup")
		if err != nil {
			return nil, nil, err
		}
		reader, err := read.NewReader(fs, n.Sources.Proc, "")
		return reader, func() { fs.Close() }, err
	}})
	t.Cleanup(func() {
		if err := taker.Close(); err != nil {
			t.Error(err)
		}
		if _, err := taker.Take(context.Background(), true); err == nil {
			t.Error("Take succeeds after Close")
		}
	})
	return n, taker
}

// Before the runtime has listed its pods there is no Summary; later all requests of one second
// share one measurement.
func TestSummary(t *testing.T) {
	var opened atomic.Int32
	n, taker := taker(t, &opened)
	n.AddPod("kubepods/burstable/pod11111111-1111-1111-1111-111111111111", 100) // unknown to the runtime
	if _, err := taker.Take(t.Context(), true); !errors.Is(err, ErrEarly) {
		t.Errorf("Take before the first list: error %v, want ErrEarly", err)
	}
	taker.SetPods(n.Runs())
	first, err := taker.Take(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if first.Node.NodeName != "node-1" || len(first.Pods) != 1 || first.Pods[0].PodRef.UID != nodetest.UID ||
		*first.Pods[0].Memory.WorkingSetBytes != 400<<20 {
		t.Errorf("first Summary = %+v, want node-1 with one pod", first)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if s, err := taker.Take(t.Context(), false); err != nil || len(s.Pods) != 1 {
				t.Errorf("concurrent Take = %+v, %v, want one pod", s, err)
			}
		})
	}
	all.Wait()
	taker.closeIdle()
	if again, err := taker.Take(t.Context(), true); err != nil || again == first || opened.Load() != 2 {
		t.Errorf("Take after closeIdle: error %v, opened %d times, want 2", err, opened.Load())
	}
}

// A failure to open the sources is returned, and the next request tries again.
func TestSummaryWithoutSources(t *testing.T) {
	taker := New(Options{Open: func() (*read.Reader, func(), error) { return nil, nil, errors.New("no cgroups") }})
	taker.SetPods(read.Index{})
	for range 2 {
		if _, err := taker.Take(t.Context(), false); err == nil || err.Error() != "no cgroups" {
			t.Errorf("error = %v, want no cgroups", err)
		}
	}
	if err := taker.Close(); err != nil {
		t.Error(err)
	}
}

// Resource metrics equal a kubelet's to the letter: names, types, texts, labels, and times where it
// has them. Absent values are omitted, and an error is reported.
func TestResourceMetrics(t *testing.T) {
	at := metav1.NewTime(time.UnixMilli(1_700_000_000_123))
	p := func(v uint64) *uint64 { return &v }
	s := &v1alpha1.Summary{
		Node: v1alpha1.NodeStats{
			CPU: &v1alpha1.CPUStats{Time: at, UsageCoreNanoSeconds: p(12_500_000_000)}, Memory: &v1alpha1.MemoryStats{Time: at, WorkingSetBytes: p(4096)},
		},
		Pods: []v1alpha1.PodStats{{
			PodRef: v1alpha1.PodReference{Namespace: "ns", Name: "p"},
			CPU:    &v1alpha1.CPUStats{Time: at, UsageCoreNanoSeconds: p(1_000_000)}, Memory: &v1alpha1.MemoryStats{Time: at},
			Containers: []v1alpha1.ContainerStats{{
				Name: "c", StartTime: at, Memory: &v1alpha1.MemoryStats{Time: at, WorkingSetBytes: p(2048)},
				Swap: &v1alpha1.SwapStats{Time: at, SwapUsageBytes: p(10), SwapAvailableBytes: p(20)},
			}},
		}},
	}
	want := `# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="c",namespace="ns",pod="p"} 2048 1700000000123
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",namespace="ns",pod="p"} 1.7000000001230001e+09
# HELP container_swap_limit_bytes [ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="c",namespace="ns",pod="p"} 30 1700000000123
# HELP container_swap_usage_bytes [ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="c",namespace="ns",pod="p"} 10 1700000000123
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 12.5 1700000000123
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 4096 1700000000123
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 0.001 1700000000123
`
	const last = `# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error `
	if got := string(Resource(s)); got != want+last+"0\n" {
		t.Errorf("resource metrics:\n%s\nwant\n%s", got, want+last)
	}
	if got := string(Resource(nil)); got != last+"1\n" || strings.Contains(got, "node_") {
		t.Errorf("resource metrics of a failed scrape: %s", got)
	}
}

// The golden file is also read by metrics-server's own client in e2e/metricsserver: pods with
// several containers, with and without swap, one that starts, and a container with nothing known
// except its start.
func TestWhatMetricsServerReads(t *testing.T) {
	text, err := os.ReadFile("testdata/node.json")
	if err != nil {
		t.Fatal(err)
	}
	var s v1alpha1.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	nodetest.Golden(t, "node.metrics", string(Resource(&s)))
}
