package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/internal/cluster/kubeclient"
)

// api is a scripted API server: it lists the given objects and answers evictions as configured.
type api struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	objects map[string][]any // by resource
	// responses to evictions by pod name; missing: the eviction succeeds
	answers   map[string]func() metav1.Status
	lists     map[string]metav1.Status // errors returned instead of a list
	evictions []policyv1.Eviction
	events    []map[string]any
	raw       map[string]string // raw responses, by path
	// status code and text of a proxy's response to each eviction; 0: no proxy
	proxyCode int
	proxyText string
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, objects: map[string][]any{}, answers: map[string]func() metav1.Status{}, lists: map[string]metav1.Status{},
		raw: map[string]string{"/version": fmt.Sprintf(`{"gitVersion":"v1.%d.0"}`, clientMinorVersion)}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) config() *rest.Config {
	return &rest.Config{Host: a.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") != "":
		a.answer(w, metav1.Status{Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodPost && last == "eviction":
		a.evict(w, r, parts[len(parts)-2])
	case r.Method == http.MethodPost && last == "events":
		a.event(w, r)
	case r.Method == http.MethodGet:
		a.list(w, r.URL.Path, last)
	default:
		a.t.Errorf("unexpected request to the API server: %s %s", r.Method, r.URL)
	}
}

func (a *api) answer(w http.ResponseWriter, s metav1.Status) {
	s.Kind, s.APIVersion = "Status", "v1"
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(s.Details.RetryAfterSeconds))
	}
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s)
}

func (a *api) list(w http.ResponseWriter, path, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text, ok := a.raw[path]; ok {
		_, _ = io.WriteString(w, text)
		return
	}
	if s, ok := a.lists[resource]; ok {
		a.answer(w, s)
		return
	}
	items := a.objects[resource]
	if items == nil {
		items = []any{}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items})
}

func (a *api) evict(w http.ResponseWriter, r *http.Request, pod string) {
	var e policyv1.Eviction
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		a.t.Error(err)
	}
	a.mu.Lock()
	a.evictions = append(a.evictions, e)
	script, code, text := a.answers[pod], a.proxyCode, a.proxyText
	a.mu.Unlock()
	if code != 0 {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
		return
	}
	if script != nil {
		if s := script(); s.Code != 0 {
			a.answer(w, s)
			return
		}
	}
	a.answer(w, metav1.Status{Status: "Success", Code: http.StatusCreated})
}

func (a *api) event(w http.ResponseWriter, r *http.Request) {
	var e map[string]any
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		a.t.Error(err)
	}
	if of, _ := e["metadata"].(map[string]any); len(fmt.Sprint(of["name"])) > 253 {
		a.answer(w, metav1.Status{Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "metadata.name"})
		return
	}
	a.mu.Lock()
	a.events = append(a.events, e)
	a.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(e)
}

// requestedPods returns the names of the pods with eviction requests, in order.
func (a *api) requestedPods() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.evictions {
		out = append(out, e.Name)
	}
	return out
}

// eventTexts returns the events as "Type Reason note".
func (a *api) eventTexts() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		out = append(out, fmt.Sprint(e["type"], " ", e["reason"], " ", e["note"]))
	}
	return out
}

// failure returns a response with an error.
func failure(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) func() metav1.Status {
	return func() metav1.Status {
		return metav1.Status{Status: "Failure", Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Causes: causes}}
	}
}

func client(t *testing.T, a *api) kubernetes.Interface {
	t.Helper()
	c, err := kubeclient.New(a.config(), "test", 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// evictionCount returns the number of evictions with a result in the metrics.
func evictionCount(t *testing.T, d *descheduler, result string) (sum float64) {
	t.Helper()
	families, err := d.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "descheduler_pods_evicted_total" && l.GetName() == "result" && l.GetValue() == result {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func get(t *testing.T, url string, code int) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != code {
		t.Errorf("GET %s = %s, error %v, want status %d: %s", url, r.Status, err, code, text)
	}
	return string(text)
}
