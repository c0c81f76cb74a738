package writes

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/cluster/taint"
)

// recoveringAPI serves node n, which loses its taints and renews its Lease at a time, and pod p.
type recoveringAPI struct {
	recovers time.Time
	webhook  time.Duration // delay of patches of pods

	mu     sync.Mutex
	writes []string // "METHOD PATH"
}

func (a *recoveringAPI) node(tainted bool) *v1.Node {
	n := &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "1"}}
	if tainted {
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}}
	}
	return n
}

func (a *recoveringAPI) lease(renewed bool) *coordination.Lease {
	at := metav1.NewMicroTime(time.Unix(0, 0))
	if renewed {
		at = metav1.NewMicroTime(time.Unix(10, 0))
	}
	return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: v1.NamespaceNodeLease},
		Spec: coordination.LeaseSpec{RenewTime: &at}}
}

func (a *recoveringAPI) pod() *v1.Pod {
	p := &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p", ResourceVersion: "1"}}
	p.Spec.NodeName = "n"
	return p
}

func (a *recoveringAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		a.mu.Lock()
		a.writes = append(a.writes, r.Method+" "+r.URL.Path)
		a.mu.Unlock()
	}
	if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/pods/") {
		time.Sleep(a.webhook)
	}
	recovered := !time.Now().Before(a.recovers)
	var body any = a.pod()
	switch {
	case strings.Contains(r.URL.Path, "/leases"):
		body = coordination.LeaseList{TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"},
			Items: []coordination.Lease{*a.lease(recovered)}}
	case strings.Contains(r.URL.Path, "/nodes/"):
		body = a.node(!recovered)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

// sent returns the writes with that method.
func (a *recoveringAPI) sent(method string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.writes), func(w string) bool { return !strings.HasPrefix(w, method+" ") })
}

// writer returns a Writer with one write per second, the first of which is free after ready.
func (a *recoveringAPI) writer(t *testing.T, pdbPeriod, ready time.Duration) *Writer {
	config := &rest.Config{Transport: a, QPS: 1, Burst: 1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kubernetes.NewForConfig(&rest.Config{Transport: a, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	for range ready / time.Second {
		go func() { _ = client.CoreV1().RESTClient().GetRateLimiter().Wait(t.Context()) }()
	}
	synctest.Wait()
	return New(client, reader, pdbPeriod)
}

// A node recovers while a write waits for the rate limit, or for the webhook of the write before.
// Its pods stay, and it stays ready.
func TestNodeRecoversBeforeWrite(t *testing.T) {
	for name, c := range map[string]struct {
		busy, webhook, pdbPeriod time.Duration
		method                   string // that must not be sent
	}{
		"before the delete, rate limit": {method: http.MethodDelete},
		"before the delete, webhook":    {webhook: 30 * time.Second, method: http.MethodDelete},
		"before the condition":          {busy: 2 * time.Second, method: http.MethodPatch},
		"before the eviction":           {busy: 2 * time.Second, pdbPeriod: time.Hour, method: http.MethodPost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &recoveringAPI{recovers: time.Now().Add(500 * time.Millisecond), webhook: c.webhook}
				w := a.writer(t, c.pdbPeriod, c.busy)
				out, err := w.Evict(t.Context(), a.pod(), a.node(true), &taint.Eviction{Deadline: time.Now()}, 0, time.Now())
				if sent := a.sent(c.method); err != nil || out.ChangedNode == nil || len(sent) > 0 {
					t.Errorf("Evict() = changed node %v, error %v after %v, want the node and no %s", out.ChangedNode, err, sent, c.method)
				}
			})
		})
	}
	t.Run("before the status of the node", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := &recoveringAPI{recovers: time.Now().Add(500 * time.Millisecond)}
			w := a.writer(t, 0, 2*time.Second)
			out := w.Node(t.Context(), &Node{Node: a.node(false), Lease: a.lease(false), CheckLease: true,
				Status: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}})
			if sent := a.sent(http.MethodPatch); out.Renewed == nil || len(sent) > 0 {
				t.Errorf("Node() = renewed Lease %v, error %v after %v, want the Lease and no write", out.Renewed, out.Status, sent)
			}
		})
	})
}

// Each write takes one turn of the rate limit.
func TestWritesKeepRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &recoveringAPI{recovers: time.Now().Add(time.Hour)}
		w, began := a.writer(t, 0, 0), time.Now()
		if _, err := w.Evict(t.Context(), a.pod(), a.node(true), &taint.Eviction{}, time.Hour, time.Now()); err != nil {
			t.Error(err)
		}
		if _, err := w.Mark(t.Context(), a.pod(), time.Now()); err != nil {
			t.Error(err)
		}
		out := w.Node(t.Context(), &Node{Node: a.node(true), Lease: a.lease(false), CheckLease: true, WriteTaints: true,
			Status: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}, Labels: map[string]string{"a": "b"}})
		if out.Status != nil || out.Taints != nil || out.Labels != nil {
			t.Errorf("Node() = errors %v, %v, %v, want none", out.Status, out.Taints, out.Labels)
		}
		if took := time.Since(began).Round(time.Millisecond); took != 5*time.Second {
			t.Errorf("6 writes took %v at one per second, want 5s", took)
		}
	})
}
