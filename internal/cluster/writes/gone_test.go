package writes

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/cluster/taint"
)

// An object is gone only if the API server names it in a 404, not if a proxy or an admission webhook
// answers 404. The mirror must not forget a dead node, which no later event brings back.
func TestNotFoundNamesTheObject(t *testing.T) {
	for _, c := range []struct {
		name, kind, body string
		gone             bool
	}{
		{"API server", "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,` +
			`"message":"\"n\" not found","details":{"name":"n","kind":"nodes"}}`, true},
		{"proxy", "text/plain", "default backend - 404", false},
		{"webhook", "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,` +
			`"message":"admission webhook \"w\" denied the request: owner not found"}`, false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, c.body)
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		w, n := New(client, client, 0), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
		if out := w.Node(t.Context(), &Node{Node: n, WriteTaints: true}); out.Gone != c.gone || (out.Taints == nil) != c.gone {
			t.Errorf("404 of the %s: node gone %v, error %v, want gone %v", c.name, out.Gone, out.Taints, c.gone)
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p", ResourceVersion: "1"}}
		out, err := w.Mark(t.Context(), p, time.Now())
		if out.Gone != c.gone || (err == nil) != c.gone {
			t.Errorf("404 of the %s: pod gone %v, error %v, want gone %v", c.name, out.Gone, err, c.gone)
		}
		out, err = w.Evict(t.Context(), p, n, &taint.Eviction{}, 0, time.Now())
		if out.NodeGone != c.gone || (err == nil) != c.gone {
			t.Errorf("404 of the %s: node of the pod gone %v, error %v, want gone %v", c.name, out.NodeGone, err, c.gone)
		}
		s.Close()
	}
}
