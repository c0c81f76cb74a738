package deliver

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// A follower resumes before the first record that is not final, so that it receives its later
// changes.
func TestFollowerResumesBeforeOpenRecords(t *testing.T) {
	f := follower{open: map[string]bool{}}
	if got := f.resumeAfter(); got != "" {
		t.Errorf("first stream resumes after %q, want the start", got)
	}
	record := func(id string, over bool) { f.track(&api.Record{ID: id, Outcome: api.OutcomeRunning, Complete: over}) }
	for _, c := range []struct {
		id   string
		over bool
		want string
	}{
		{"20060720T020000.000001Z-0001", true, "20060720T020000.000001Z-0001"},
		{"20060720T020000.000002Z-0002", false, "20060720T020000.000002Z-000"},
		{"20060720T020000.000003Z-0003", false, "20060720T020000.000002Z-000"},
		{"20060720T020000.000002Z-0002", true, "20060720T020000.000003Z-000"},
		{"20060720T020000.000003Z-0003", true, "20060720T020000.000003Z-0003"},
	} {
		record(c.id, c.over)
		if got := f.resumeAfter(); got != c.want || !c.over && got >= c.id {
			t.Errorf("after %s (over: %v) it resumes after %q, want %q", c.id, c.over, got, c.want)
		}
	}
}

// A burst of events is sent immediately, then one more each second.
func TestEventRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{tokens: eventBurst, countedAt: time.Now()}
		for i := range eventBurst {
			if !p.allow(time.Now()) || !p.next.IsZero() {
				t.Fatalf("event %d of the burst must wait, want none to wait", i)
			}
		}
		if p.allow(time.Now()) || !p.next.Equal(time.Now().Add(eventInterval)) {
			t.Errorf("after the burst: event allowed or next at %v, want it in one interval", p.next)
		}
		time.Sleep(eventInterval)
		if !p.allow(time.Now()) || p.allow(time.Now()) {
			t.Error("after one interval: want exactly one event allowed")
		}
		time.Sleep(time.Hour)
		for range eventBurst {
			p.allow(time.Now())
		}
		if p.allow(time.Now()) {
			t.Error("after an hour: more than one burst of events allowed")
		}
		n := 0
		for range 60 { // irregular calls get the full rate too
			time.Sleep(3 * eventInterval / 2)
			for p.allow(time.Now()) {
				n++
			}
		}
		if n != 90 {
			t.Errorf("%d events allowed in 90 s, want 90", n)
		}
	})
}

// A dead victim is Failed after one request, whenever it died, and after two if its kubelet writes its
// status meanwhile.
func TestDeathToFailed(t *testing.T) {
	const took = 100 * time.Millisecond // each request
	for name, c := range map[string]struct {
		dies   time.Duration // after the kill
		writes time.Duration // of the kubelet, after the death; 0: none
		want   time.Duration // from the death to Failed
	}{
		"soon":                          {20 * time.Millisecond, 0, took},
		"late, as on a busy node":       {700 * time.Millisecond, 0, took},
		"with the mark on its way":      {verdict.MarkDelay + 50*time.Millisecond, 0, took + 50*time.Millisecond},
		"later":                         {2 * verdict.MarkDelay, 0, took},
		"and its kubelet reports it":    {2 * verdict.MarkDelay, 50 * time.Millisecond, 2 * took},
		"early, and it is reported too": {20 * time.Millisecond, 50 * time.Millisecond, 2 * took},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				time.Sleep(time.Second)
				w.set(func() { w.latency = latencyOf("", took) })
				r := w.addOngoing(w.addPod("a"))
				time.Sleep(c.dies)
				dead, died := emptied(r), time.Now()
				w.updateRecord(&dead)
				if c.writes > 0 {
					time.Sleep(c.writes)
					w.set(func() { w.storePod(w.pods["a"].DeepCopy()) })
				}
				for w.phase("a") != v1.PodFailed && time.Since(died) < time.Minute {
					time.Sleep(time.Millisecond)
				}
				if waited := time.Since(died); waited > c.want+5*time.Millisecond {
					t.Errorf("victim that dies %s is Failed %v after its death, want within %v", name, waited, c.want)
				}
				final := finished(dead)
				w.updateRecord(&final)
			})
		})
	}
}

// onePod is a copy of the pods that holds one pod.
type onePod struct{ pod *v1.Pod }

func (o onePod) Pod(string, string) *v1.Pod    { return o.pod }
func (onePod) Synced() (at time.Time, ok bool) { return time.Time{}, true }
func (onePod) Resync()                         {}

// The newest version of a pod counts, whether it is from the watch or from a response.
func TestCurrentPodIsTheNewest(t *testing.T) {
	pod := func(name, version string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: version, Name: name}}
	}
	other, before := pod("other", "11"), pod("before", "9")
	other.UID, before.UID = "v", "v"
	for name, c := range map[string]struct {
		watched, last *v1.Pod
		gone          bool
		want          string
	}{
		"neither":              {nil, nil, false, ""},
		"the watch alone":      {pod("watched", "5"), nil, false, "watched"},
		"the response alone":   {nil, pod("last", "5"), false, "last"},
		"the watch is behind":  {pod("watched", "9"), pod("last", "10"), false, "last"},
		"the watch is current": {pod("watched", "10"), pod("last", "10"), false, "watched"},
		"the watch is ahead":   {pod("watched", "11"), pod("last", "10"), false, "watched"},
		"no numbers":           {pod("watched", "a"), pod("last", "b"), false, "watched"},
		"replaced since":       {other, pod("last", "10"), false, "other"},
		"replaced before":      {before, pod("last", "10"), false, "last"},
		"gone":                 {pod("watched", "9"), pod("last", "10"), true, ""},
	} {
		got := ""
		d := New(Options{Pods: onePod{c.watched}})
		if p := d.currentPod(&entry{record: &api.Record{}, pod: podView{last: c.last, gone: c.gone}}); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%s: current pod is %q, want %q", name, got, c.want)
		}
	}
}

// The delay doubles up to the maximum, and a Retry-After is respected.
func TestBackoffDoubles(t *testing.T) {
	var r backoff
	now := time.Now()
	var all []time.Duration
	for range 12 {
		r.fail(now, maxDeniedBackoff, 0)
		if after := r.retryAt.Sub(now); after < r.delay/2 || after > r.delay+1 || !r.waiting(now) || r.waiting(r.retryAt) {
			t.Errorf("delay %v: retry after %v, want between half of it and all of it", r.delay, after)
		}
		all = append(all, r.delay)
	}
	if !slices.IsSorted(all) || all[0] != minBackoff || all[1] != 2*minBackoff || all[11] != maxDeniedBackoff {
		t.Errorf("delays %v, want doubling from the minimum to the maximum", fmt.Sprint(all))
	}
	if r.fail(now, maxBackoff, time.Hour); !r.retryAt.Equal(now.Add(time.Hour)) {
		t.Errorf("Retry-After 1h: retry after %v, want 1h", r.retryAt.Sub(now))
	}
}
