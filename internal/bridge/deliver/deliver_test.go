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
)

// A follower that was cut off asks on from before the first record that is not final, so that it hears what became of that one.
func TestWhereAFollowerGoesOn(t *testing.T) {
	f := follower{open: map[string]bool{}}
	if got := f.resumeAfter(); got != "" {
		t.Errorf("the first time from %q", got)
	}
	record := func(id string, over bool) { f.track(&api.Record{ID: id, Outcome: api.OutcomeRunning, Over: over}) }
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
			t.Errorf("after %s (over: %v) from %q, want %q", c.id, c.over, got, c.want)
		}
	}
}

// So many events go at once, and one more each second.
func TestEventsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{tokens: eventBurst, countedAt: time.Now()}
		for i := range eventBurst {
			if !p.allow(time.Now()) || !p.next.IsZero() {
				t.Fatalf("the event %d has to wait", i)
			}
		}
		if p.allow(time.Now()) || !p.next.Equal(time.Now().Add(eventInterval)) {
			t.Errorf("one more at once; the next at %v", p.next)
		}
		time.Sleep(eventInterval)
		if !p.allow(time.Now()) || p.allow(time.Now()) {
			t.Error("after a while there is one")
		}
		time.Sleep(time.Hour)
		for range eventBurst {
			p.allow(time.Now())
		}
		if p.allow(time.Now()) {
			t.Error("after an hour there are more than at first")
		}
		n := 0
		for range 60 { // whoever asks at odd moments has no fewer
			time.Sleep(3 * eventInterval / 2)
			for p.allow(time.Now()) {
				n++
			}
		}
		if n != 90 {
			t.Errorf("%d in 90 s", n)
		}
	})
}

// onePod is a copy of the pods that has one.
type onePod struct{ pod *v1.Pod }

func (o onePod) Pod(string, string) *v1.Pod    { return o.pod }
func (onePod) Synced() (at time.Time, ok bool) { return time.Time{}, true }
func (onePod) Resync()                         {}

// The newest of what is known of a pod counts, whoever said it.
func TestTheNewestCounts(t *testing.T) {
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
		"the answer alone":     {nil, pod("last", "5"), false, "last"},
		"the watch is behind":  {pod("watched", "9"), pod("last", "10"), false, "last"},
		"the watch is level":   {pod("watched", "10"), pod("last", "10"), false, "watched"},
		"the watch is ahead":   {pod("watched", "11"), pod("last", "10"), false, "watched"},
		"no numbers":           {pod("watched", "a"), pod("last", "b"), false, "watched"},
		"it is another by now": {other, pod("last", "10"), false, "other"},
		"it was another":       {before, pod("last", "10"), false, "last"},
		"it is gone":           {pod("watched", "9"), pod("last", "10"), true, ""},
	} {
		got := ""
		d := New(Options{Pods: onePod{c.watched}})
		if p := d.currentPod(&entry{record: &api.Record{}, pod: podView{last: c.last, gone: c.gone}}); p != nil {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Pauses double up to the longest, and what the API asks for is waited.
func TestPausesDouble(t *testing.T) {
	var r backoff
	now := time.Now()
	var all []time.Duration
	for range 12 {
		r.fail(now, maxDeniedBackoff, 0)
		if after := r.retryAt.Sub(now); after < r.delay/2 || after > r.delay+1 || !r.waiting(now) || r.waiting(r.retryAt) {
			t.Errorf("a pause of %v is one of %v", r.delay, after)
		}
		all = append(all, r.delay)
	}
	if !slices.IsSorted(all) || all[0] != minBackoff || all[1] != 2*minBackoff || all[11] != maxDeniedBackoff {
		t.Error(fmt.Sprint(all))
	}
	if r.fail(now, maxBackoff, time.Hour); !r.retryAt.Equal(now.Add(time.Hour)) {
		t.Errorf("asked for an hour: %v", r.retryAt.Sub(now))
	}
}
