// Package metricsserver reads the agent's metrics with other projects' code: /metrics/resource with
// metrics-server's client, and /metrics with Prometheus' parser. It is a separate module, tested in
// its folder.
package metricsserver

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/metrics-server/pkg/scraper/client"
	"sigs.k8s.io/metrics-server/pkg/scraper/client/resource"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

// The agent's metrics of a node, and the figures from which they were written
// (internal/agent/nodestats, TestWhatMetricsServerReads).
const (
	served  = "../../internal/agent/nodestats/testdata/node.metrics"
	figures = "../../internal/agent/nodestats/testdata/node.json"
)

// The fields of a Summary (k8s.io/kubelet pkg/apis/stats/v1alpha1) that metrics-server uses.
type (
	value struct {
		Time                 time.Time
		UsageCoreNanoSeconds *uint64
		WorkingSetBytes      *uint64
	}
	usage struct {
		Name        string
		StartTime   time.Time
		CPU, Memory *value
	}
	summary struct {
		Node usage
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []usage
		}
	}
)

// point returns the expected point of metrics-server; ok false: it drops this and its pod.
func (u *usage) point() (p storage.MetricsPoint, ok bool) {
	if u.CPU == nil || u.Memory == nil || u.CPU.UsageCoreNanoSeconds == nil || u.Memory.WorkingSetBytes == nil {
		return p, false
	}
	// Seconds as written to text, and nanoseconds as parsed from it.
	p.CumulativeCPUUsed, p.MemoryUsage = uint64(float64(*u.CPU.UsageCoreNanoSeconds)/1e9*1e9), *u.Memory.WorkingSetBytes
	p.Timestamp = u.Memory.Time.Truncate(time.Millisecond)
	if !u.StartTime.IsZero() {
		p.StartTime = time.Unix(0, int64(float64(u.StartTime.UnixNano())/1e9*1e9))
	}
	return p, true
}

func same(got, want storage.MetricsPoint) bool {
	return got.CumulativeCPUUsed == want.CumulativeCPUUsed && got.MemoryUsage == want.MemoryUsage &&
		got.Timestamp.Equal(want.Timestamp) && got.StartTime.Equal(want.StartTime)
}

// scrape has metrics-server's client scrape a server that answers with a text as the agent does.
func scrape(t *testing.T, text []byte) *storage.MetricsBatch {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" {
			t.Errorf("client requests path %s, want /metrics/resource", r.URL)
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text)
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c, err := resource.NewForConfig(&client.KubeletClientConfig{
		Client: rest.Config{Timeout: 10 * time.Second}, AddressTypePriority: []corev1.NodeAddressType{corev1.NodeInternalIP}, Scheme: "http", DefaultPort: number,
	})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	batch, err := c.GetMetrics(context.Background(), node)
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// metrics-server reads every figure of the node and of each container with known CPU and memory,
// and nothing else.
func TestMetricsServerReadsWhatTheAgentServes(t *testing.T) {
	text, err := os.ReadFile(served)
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if all, err := os.ReadFile(figures); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(all, &s); err != nil {
		t.Fatal(err)
	}
	batch := scrape(t, text)
	s.Node.StartTime = time.Time{} // no metric has it
	if want, ok := s.Node.point(); !ok || len(batch.Nodes) != 1 || !same(batch.Nodes["node-1"], want) {
		t.Errorf("metrics of the node = %+v, want %+v", batch.Nodes, want)
	}
	pods, containers := 0, 0
	for _, p := range s.Pods {
		got := batch.Pods[types.NamespacedName{Namespace: p.PodRef.Namespace, Name: p.PodRef.Name}].Containers
		known := 0
		for i := range p.Containers {
			want, ok := p.Containers[i].point()
			if !ok {
				continue
			}
			known++
			if is, has := got[p.Containers[i].Name]; !has || !same(is, want) {
				t.Errorf("metrics of %s, container %s = %+v, want %+v", p.PodRef.Name, p.Containers[i].Name, is, want)
			}
		}
		if len(got) != known {
			t.Errorf("%s has %d containers with metrics, want %d", p.PodRef.Name, len(got), known)
		}
		containers += known
		if known > 0 {
			pods++
		}
	}
	if len(batch.Pods) != pods || containers == 0 {
		t.Errorf("%d pods with metrics, want %d, of %d containers", len(batch.Pods), pods, containers)
	}
	t.Logf("%d pods, %d containers", pods, containers)
}

// The absence of all figures is reported as a kubelet reports it, and is no error of the scrape.
func TestMetricsServerReadsThatThereIsNothing(t *testing.T) {
	batch := scrape(t, []byte("# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n"+
		"# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n"))
	if len(batch.Nodes)+len(batch.Pods) != 0 {
		t.Errorf("metrics of an empty scrape = %+v, want none", batch)
	}
}
