package writes

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/cluster/taint"
)

// slowAPI answers writes after the longest timeout of a webhook, and reads immediately.
type slowAPI struct{ t *testing.T }

func (s slowAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(31 * time.Second):
		}
	}
	body := `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"d","name":"p","uid":"p","resourceVersion":"1"}}`
	switch {
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		body = `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	case strings.Contains(r.URL.Path, "/nodes/"):
		body = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"n","resourceVersion":"1"}}`
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewBufferString(body)), Request: r}, nil
}

// A webhook may delay a write for 30 s, for example because its backend was on the silent node. If
// the client gives up earlier, the API server drops the request, even if it ignores the webhook.
func TestWritesWaitForWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Transport: slowAPI{t}, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "1"}}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p", ResourceVersion: "1"}}
		w := New(client, client, 0)
		if out := w.Node(t.Context(), &Node{Node: n, WriteTaints: true}); out.Taints != nil {
			t.Errorf("taints of a node: %v, want no error", out.Taints)
		}
		if _, err := w.Mark(t.Context(), p, time.Now()); err != nil {
			t.Errorf("mark of a pod: %v, want no error", err)
		}
		for _, pdbPeriod := range []time.Duration{0, time.Hour} {
			e := &taint.Eviction{Deadline: time.Now()}
			if _, err := New(client, client, pdbPeriod).Evict(t.Context(), p, n, e, 0, time.Now()); err != nil {
				t.Errorf("end of a pod with a PDB period of %v: %v, want no error", pdbPeriod, err)
			}
		}
	})
}
