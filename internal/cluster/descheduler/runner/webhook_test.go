package runner

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhookPods returns an API server with count pods behind a broken webhook, and a younger pod that
// can be evicted.
func webhookPods(t *testing.T, count int) *api {
	a := apiWithPods(t, pod("other", "n1"))
	for i := range count {
		p := pod(fmt.Sprint("w", i), "n1", func(p *v1.Pod) { p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Hour) })
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
