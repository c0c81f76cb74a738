package runner

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"jettison/internal/cluster/kubeclient"
)

// lossyProxy answers requests like the API server, and loses each first watch of a resource after
// the headers. The resource version of the second one has expired.
type lossyProxy struct {
	api *api

	mu      sync.Mutex
	watches map[string]int // by path
}

func (p *lossyProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") != "" {
		p.api.ServeHTTP(w, r)
		return w.Result(), nil
	}
	p.mu.Lock()
	p.watches[r.URL.Path]++
	second := p.watches[r.URL.Path] == 2
	p.mu.Unlock()
	if second {
		w.Header().Set("Content-Type", "application/json")
		p.api.answer(w, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
		return w.Result(), nil
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: silence{r.Context()}}, nil
}

// A watch whose events are lost, while the connection answers pings, ends after its timeout: plans do
// not use old objects for longer.
func TestLostWatchIsMadeAgain(t *testing.T) {
	a := apiWithPods(t, pod("old", "n1"))
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{Host: a.URL, QPS: -1, Transport: &lossyProxy{api: a, watches: map[string]int{}},
			ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		client, err := kubeclient.New(config, "read", 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := newSource(client, slog.New(slog.NewTextHandler(io.Discard, nil)))
		defer s.close(cancel)
		if err := s.sync(ctx); err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		a.objects["pods"] = append(a.objects["pods"], pod("new", "n1"))
		a.mu.Unlock()
		time.Sleep(12 * time.Minute) // client-go asks for at most 10 minutes
		if pods := s.snapshot().Pods; !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.Name == "new" }) {
			t.Errorf("%d pods after 12 minutes, want also the new one", len(pods))
		}
	})
}
