package runner

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// webhookPods returns an API server with count pods behind a broken webhook, each of its own owner,
// and a younger pod that can be evicted.
func webhookPods(t *testing.T, count int) *api {
	a := apiWithPods(t, pod("other", "n1"))
	for i := range count {
		p := pod(fmt.Sprint("w", i), "n1", func(p *v1.Pod) {
			p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Hour)
			p.OwnerReferences[0].UID = types.UID(fmt.Sprint("rs", i))
		})
		a.objects["pods"] = append(a.objects["pods"], p)
		a.answers[p.Name] = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			`Internal error occurred: failed calling webhook "w": failed to call webhook: Post "https://w/": dial tcp: connection refused`)
	}
	return a
}

// Pods behind a broken webhook do not stop the evictions of others, and are tried again after
// growing pauses.
func TestPodsBehindBrokenWebhookBackOff(t *testing.T) {
	a := webhookPods(t, 3)
	d, now := newDescheduler(t, a, lifeTimePolicy())
	began := *now
	for _, c := range []struct {
		at   time.Duration
		want int // tries of each pod so far
	}{{0, 1}, {30 * time.Second, 1}, {time.Minute, 2}, {2*time.Minute + 59*time.Second, 2}, {3 * time.Minute, 3},
		{7 * time.Minute, 4}, {15 * time.Minute, 5}, {24 * time.Minute, 5}, {25 * time.Minute, 6}} {
		*now = began.Add(c.at)
		if err := d.cycle(t.Context()); err != nil {
			t.Errorf("after %v: cycle() = %v, want no error", c.at, err)
		}
		tries := map[string]int{}
		for _, name := range a.requestedPods() {
			tries[name]++
		}
		if tries["w0"] != c.want || tries["w1"] != c.want || tries["w2"] != c.want || tries["other"] == 0 {
			t.Errorf("after %v: evictions requested = %v, want %d for w0, w1 and w2, some for other", c.at, tries, c.want)
		}
	}
}

// A webhook that is broken for many pods, and takes its time, ends the cycle: its plan would become
// stale. Pods of other namespaces come first.
func TestManyPodsBehindSlowWebhookEndCycle(t *testing.T) {
	a := webhookPods(t, 12)
	elsewhere := pod("elsewhere", "n1")
	elsewhere.Namespace = "bank"
	a.objects["pods"] = append(a.objects["pods"], elsewhere)
	var waited atomic.Int64
	for name, answer := range a.answers {
		a.answers[name] = func() metav1.Status {
			waited.Add(int64(30 * time.Second))
			return answer()
		}
	}
	d, now := newDescheduler(t, a, lifeTimePolicy())
	d.now = func() time.Time { return now.Add(time.Duration(waited.Load())) }
	if err := d.cycle(t.Context()); err == nil || !strings.Contains(err.Error(), "webhooks failed for 10 evictions after 5m0s, 1 of 14 done") {
		t.Errorf("cycle() = %v, want an error after 10 failures and one eviction", err)
	}
	if got := a.requestedPods(); got[0] != "w0" || got[1] != "elsewhere" || len(got) != 11 {
		t.Errorf("evictions requested for %v, want elsewhere after the first failure", got)
	}
}

// A single run in which each eviction failed fails: otherwise a CronJob would succeed without effect,
// as long as a webhook for all evictions is broken.
func TestRunFailsIfAllEvictionsFail(t *testing.T) {
	a := webhookPods(t, 2)
	a.objects["pods"] = a.objects["pods"][1:] // without the pod that can be evicted
	if _, log, err := run(t, a, lifeTimePolicy()); err == nil || !strings.Contains(err.Error(), "all 2 evictions failed") || len(a.requestedPods()) != 2 {
		t.Errorf("Run() = %v, evictions requested for %v, want an error after both\n%s", err, a.requestedPods(), log)
	}
}

// Many pods of one owner behind a slow webhook delay the others for one call of it.
func TestSlowWebhookIsCalledOncePerOwner(t *testing.T) {
	a := webhookPods(t, 30)
	var waited atomic.Int64
	for _, p := range a.objects["pods"][1:] {
		p := p.(*v1.Pod)
		p.OwnerReferences[0].UID = "slow"
		answer := a.answers[p.Name]
		a.answers[p.Name] = func() metav1.Status {
			waited.Add(int64(10 * time.Second))
			return answer()
		}
	}
	d, now := newDescheduler(t, a, lifeTimePolicy())
	d.now = func() time.Time { return now.Add(time.Duration(waited.Load())) }
	for _, want := range [][]string{{"w0", "other"}, {"w0", "other", "w1"}} {
		if err := d.cycle(t.Context()); err != nil || !slices.Equal(a.requestedPods()[:len(want)], want) || len(a.requestedPods()) > len(want)+1 {
			t.Errorf("cycle() = %v, evictions requested for %v, want %v", err, a.requestedPods(), want)
		}
	}
}

// Pods behind a webhook that fails immediately end no cycle: a CronJob remembers nothing, and would never
// come to the other pods.
func TestFastBrokenWebhookEndsNoCycle(t *testing.T) {
	for range 3 {
		a := webhookPods(t, 12)
		d, _ := newDescheduler(t, a, lifeTimePolicy())
		err := d.cycle(t.Context())
		if got := a.requestedPods(); err != nil || len(got) != 13 || got[12] != "other" {
			t.Errorf("cycle() = %v, evictions requested for %v, want all and other last", err, got)
		}
	}
}

// patientAPI answers requests without a network. Evictions of the pods in slow take as long as a
// webhook may.
type patientAPI struct {
	api  *api
	slow []string
}

func (p patientAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "" {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: silence{r.Context()}}, nil
	}
	if slices.ContainsFunc(p.slow, func(name string) bool { return strings.Contains(r.URL.Path, "/"+name+"/eviction") }) {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(30*time.Second + time.Millisecond):
		}
	}
	w := httptest.NewRecorder()
	p.api.ServeHTTP(w, r)
	return w.Result(), nil
}

// silence is a response that never sends anything.
type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, io.EOF }
func (s silence) Close() error             { return nil }

// A webhook may take 30 s. The API server's answer after that time names the webhook: its pods stop
// no eviction of others.
func TestEvictionsWaitForWebhooks(t *testing.T) {
	a := webhookPods(t, 3)
	for _, p := range a.objects["pods"] {
		p.(*v1.Pod).CreationTimestamp.Time = p.(*v1.Pod).CreationTimestamp.AddDate(-50, 0, 0) // the test begins in 2000
	}
	synctest.Test(t, func(t *testing.T) {
		_, log, err := run(t, a, lifeTimePolicy(), func(o *Options) { o.API.Transport = patientAPI{a, []string{"w0", "w1", "w2"}} })
		if got := a.requestedPods(); err != nil || !slices.Contains(got, "other") {
			t.Errorf("Run() = %v, evictions requested for %v, want no error and other\n%s", err, got, log)
		}
	})
}
