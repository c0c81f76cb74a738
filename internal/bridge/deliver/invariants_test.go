package deliver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"jettison/api"
)

// These tests state what the delivery guarantees, at its outer interface: records in, requests and
// log lines out.

// requests returns the requests that begin with prefix, in order.
func (w *world) requests(prefix string) []string {
	return inspect(w, func() (out []string) {
		for _, what := range w.requestNames {
			if strings.HasPrefix(what, prefix) {
				out = append(out, what)
			}
		}
		return out
	})
}

// The oldest record that is ready is written first, also where younger ones failed before it.
func TestInvariantOldestRecordFirst(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = faultOf("patch", errors.New("connection refused")) })
		var want []string
		for i := range 12 {
			want = append(want, fmt.Sprint("p", i))
			w.addEviction(w.addPod(want[i]))
			inspect(w, func() bool { return true }) // the first is tried
		}
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(time.Minute)
		got := inspect(w, func() []string { return slices.Clone(w.failed) })
		// The first was rejected while reads were served, so it comes last.
		if want = append(want[1:], want[0]); !slices.Equal(got, want) {
			t.Errorf("failed in the order %v, want %v", got, want)
		}
	})
}

// Events are sent in the order of the records, each once, through an outage.
func TestInvariantEventsInOrderAndOnce(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		var want []string
		for i := range 10 {
			id := strings.ToLower(w.addEviction(w.addPod(fmt.Sprint("p", i))).ID)
			want = append(want, fmt.Sprintf("event p%d.%s", i, id), "event n1."+id)
		}
		time.Sleep(20 * time.Minute)
		w.set(func() { w.fault, w.requestNames = nil, nil })
		time.Sleep(5 * time.Minute)
		got := w.requests("event ")
		if slices.Sort(got); len(got) != len(want) || !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("sent %v, want each of %v once", got, want)
		}
		if w.created != len(want) {
			t.Errorf("created %d events, want %d", w.created, len(want))
		}
		w.set(func() { w.requestNames = nil })
		want = nil
		for i := range 10 {
			id := strings.ToLower(w.addEviction(w.addPod(fmt.Sprint("q", i))).ID)
			want = append(want, fmt.Sprintf("event q%d.%s", i, id), "event n1."+id)
		}
		time.Sleep(time.Minute)
		if got := w.requests("event "); !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

// No event is lost, except those of lost records, for which one event and one log line report the
// gap.
func TestInvariantOnlyGapsLoseEvents(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() {
			until := time.Now().UTC().Format("20060102T150405.000000Z")
			w.gap = &api.RecordsGap{Until: until, Reason: "the disk is full"}
			w.agentGone = true
		})
		time.Sleep(time.Second)
		for i := range 40 {
			w.addEviction(w.addPod(fmt.Sprint("p", i)))
		}
		w.set(func() { w.agentGone = false })
		time.Sleep(10 * time.Minute)
		got := map[string]int{}
		for _, reason := range inspect(w, w.reasons) {
			got[reason]++
		}
		if got["EvictionRecordsLost"] != 1 || got["Evicted"] != 40 || got["EvictionThresholdMet"] != 40 ||
			w.created != 81 {
			t.Errorf("events %v, %d created, want 40 of each eviction and one of the gap", got, w.created)
		}
	})
	if n := strings.Count(log, `level=ERROR msg="eviction records lost"`); n != 1 {
		t.Errorf("the gap is logged %d times, want once: %s", n, log)
	}
}

// 25 events are sent immediately, and then one a second.
func TestInvariantEventRate(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Minute)
		w.set(func() { w.requestTimes, w.requestNames = nil, nil })
		began := time.Now()
		for i := range 40 {
			w.addEviction(w.addPod(fmt.Sprint("p", i)))
		}
		time.Sleep(20*time.Second + time.Millisecond)
		burst, after := 0, 0
		inspect(w, func() bool {
			for i, what := range w.requestNames {
				switch since := w.requestTimes[i].Sub(began); {
				case !strings.HasPrefix(what, "event "):
				case since < time.Millisecond:
					burst++
				default:
					after++
					if want := time.Duration(after) * time.Second; since < want || since > want+time.Millisecond {
						t.Errorf("event %d after the burst at %v, want %v", after, since, want)
					}
				}
			}
			return true
		})
		if burst != 25 || after != 20 {
			t.Errorf("%d events at once and %d in 20 s after that, want 25 and 20", burst, after)
		}
	})
}

// A Retry-After of the server applies to all requests, that of a webhook to the pod that it
// rejects.
func TestInvariantRetryAfterOfServerAndWebhook(t *testing.T) {
	for _, webhook := range []bool{false, true} {
		during(t, func(w *world) {
			time.Sleep(time.Second)
			busy := apierrors.NewTooManyRequests("later", 300)
			w.set(func() {
				w.fault = func(string) error { return busy }
				if webhook {
					w.fault = faultOf("patch a", busy)
				}
			})
			w.addEviction(w.addPod("a"))
			time.Sleep(time.Second)
			w.set(func() { w.requestTimes, w.requestNames = nil, nil })
			w.addEviction(w.addPod("b"))
			time.Sleep(298 * time.Second)
			w.mu.Lock()
			w.fault = nil
			w.mu.Unlock()
			switch got := w.requests(""); {
			case !webhook && len(got) > 0:
				t.Errorf("within the server's Retry-After: requests %v, want none", got)
			case webhook && (slices.Contains(got, "patch a") || !slices.Contains(got, "patch b")):
				t.Errorf("within the webhook's Retry-After: requests %v, want patch b without patch a", got)
			}
			time.Sleep(maxBackoff)
			if w.phase("a") != v1.PodFailed || w.phase("b") != v1.PodFailed {
				t.Errorf("webhook %v: phases %s and %s after Retry-After, want Failed",
					webhook, w.phase("a"), w.phase("b"))
			}
		})
	}
}

// While a kubelet may fail the pod first, the server is tried each second.
func TestInvariantRetryWithinASecond(t *testing.T) {
	for i := range 10 {
		during(t, func(w *world) {
			time.Sleep(time.Second)
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			job := w.addPod("job")
			job.Spec.RestartPolicy = v1.RestartPolicyNever
			w.addEviction(w.addPod("a"))
			w.addEviction(job)
			time.Sleep(10*time.Minute + time.Duration(i)*170*time.Millisecond)
			w.mu.Lock()
			w.fault = nil
			w.mu.Unlock()
			time.Sleep(time.Second)
			if w.phase("job") != v1.PodFailed {
				t.Errorf("the pod is %s a second after the server is back, want Failed", w.phase("job"))
			}
		})
	}
}

// At most 4,096 records are pending. Beyond that the oldest one is dropped, which is logged.
func TestInvariantBoundOnEntries(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.agentGone = true })
		began := time.Now()
		w.set(func() {
			for i := range 4098 {
				r := record(&v1.Pod{}, began) // without a name, so that no request is made
				r.ID = fmt.Sprintf("%s-%04x", r.ID, i)
				r.Outcome, r.Complete, r.Emptied, r.Cleaned = api.OutcomeRunning, false, api.Stamp{}, api.Stamp{}
				w.records = append(w.records, r)
			}
			w.agentGone = false
		})
		time.Sleep(time.Minute)
		for _, some := range [][]*api.Record{w.records[2:], w.records[:2]} { // the agent repeats the dropped ones
			w.set(func() {
				for i, r := range some {
					done := finished(emptied(*r))
					some[i] = &done
				}
			})
			time.Sleep(time.Minute)
		}
	})
	const line = `level=ERROR msg="eviction queue full, oldest entry dropped" ` +
		"record=20000101T000000.000000Z-"
	if n := strings.Count(log, "oldest entry dropped"); n != 2 || !strings.Contains(log, line+"0000\n") ||
		!strings.Contains(log, line+"0001\n") {
		t.Errorf("%d records dropped, want the two oldest", n)
	}
}

// During an outage of ten minutes the server gets no more requests than before: a probe at each
// retry, and events that were due before it.
func TestInvariantTrafficDuringAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(string) error
		most  int
	}{
		"unreachable":    {func(string) error { return errors.New("connection refused") }, 35},
		"not ready":      {func(string) error { return status(http.StatusServiceUnavailable) }, 35},
		"takes no write": {faultOf("patch", status(http.StatusServiceUnavailable)), 35 * (maxTried + 1)},
	} {
		for range 5 {
			during(t, func(w *world) {
				time.Sleep(time.Second)
				w.set(func() { w.fault = c.fault })
				for i := range 30 {
					w.addEviction(w.addPod(fmt.Sprint("p", i)))
				}
				time.Sleep(5 * time.Minute)
				w.set(func() { w.requestTimes, w.requestNames = nil, nil })
				time.Sleep(10 * time.Minute)
				got := len(slices.DeleteFunc(w.requests(""), func(what string) bool {
					return name == "takes no write" && strings.HasPrefix(what, "event ")
				}))
				t.Logf("%s: %d requests", name, got)
				if got > c.most {
					t.Errorf("%s: %d requests in 10 min, want at most %d", name, got, c.most)
				}
				w.set(func() { w.fault = nil })
			})
		}
	}
}

// maxTried is the number of writes that are tried at most in one pass while the server rejects
// them.
const maxTried = 4

// One write of a pod is in flight at a time, also if the agent changes the record meanwhile.
func TestInvariantOneWriteInFlightPerPod(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.latency = latencyOf("patch", 30*time.Second) })
		r := w.addOngoing(w.addPod("a"))
		time.Sleep(5 * time.Second)
		r = emptied(r)
		dead := r
		w.updateRecord(&dead)
		time.Sleep(5 * time.Second)
		r = finished(r)
		w.updateRecord(&r)
		for range 10 {
			time.Sleep(time.Second)
			w.changed()
		}
		inFlight := 0
		w.set(func() { inFlight = w.inFlight })
		if got := w.requests("patch a"); len(got) != 1 || inFlight != 1 {
			t.Errorf("%d writes requested and %d requests in flight after 20 s, want one", len(got), inFlight)
		}
		time.Sleep(2 * time.Minute)
		if w.phase("a") != v1.PodFailed {
			t.Errorf("the pod is %s, want Failed", w.phase("a"))
		}
		w.set(func() { w.latency = nil })
	})
}

// A lost write of one record does not delay another record of the same pod. Here the agent abandons
// the eviction of a pod, and that write is lost. Five seconds later it evicts the pod after all,
// and the kubelet would report the pod as failed without a reason.
func TestInvariantLostWriteDoesNotDelayOtherRecords(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		a := w.addPod("a")
		w.set(func() {
			ends := a.DeepCopy()
			ends.Spec.RestartPolicy = v1.RestartPolicyNever
			w.storePod(ends)
		})
		first := w.addOngoing(a)
		time.Sleep(5 * time.Second)
		w.set(func() { w.latency = latencyOf("patch a", time.Minute) })
		first.Outcome, first.Complete, first.Killed = api.OutcomeAbandoned, true, api.Stamp{}
		w.updateRecord(&first)
		time.Sleep(3 * time.Second)
		w.set(func() { w.latency = nil })
		time.Sleep(2 * time.Second)
		w.addEviction(a)
		time.Sleep(time.Second)
		if w.phase("a") != v1.PodFailed {
			t.Errorf("the pod is %s a second after it was evicted, want Failed", w.phase("a"))
		}
	})
}

// While a webhook rejects all status writes of a pod, the events of each of its records are sent
// without extra delay.
func TestInvariantEventsDoNotWaitForOtherRecords(t *testing.T) {
	for records := range 4 {
		during(t, func(w *world) {
			time.Sleep(time.Second)
			w.set(func() { w.latency = latencyOf("patch a", time.Minute) })
			a := w.addPod("a")
			for range records {
				w.addEviction(a)
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			if got := inspect(w, func() int { return w.created }); got != 2*records {
				t.Errorf("%d events of %d records after a minute, want %d", got, records, 2*records)
			}
			w.set(func() { w.latency = nil })
		})
	}
}
