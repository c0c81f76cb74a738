package deliver

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// A status that was reverted is restored after an outage, however many restores failed.
func TestRestoreAfterAnOutage(t *testing.T) {
	during(t, func(w *world) {
		w.addEviction(w.addPod("a"))
		time.Sleep(30 * time.Second)
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
			w.storePod(p)
			w.fault = func(string) error { return errors.New("connection refused") }
		})
		time.Sleep(time.Hour)
		w.set(func() { w.fault = nil })
		time.Sleep(maxBackoff)
		if p := inspect(w, func() *v1.Pod { return w.pods["a"] }); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" {
			t.Errorf("pod a is %s with reason %s, want Failed and Evicted", p.Status.Phase, p.Status.Reason)
		}
	})
}

// A client that reverts a status many times does so on purpose: the bridge logs it once and gives
// up.
func TestRestoresAreLimited(t *testing.T) {
	log := during(t, func(w *world) {
		w.addEviction(w.addPod("a"))
		for range 4 * maxRestores { // each time the pod is left to its kubelet for a minute
			time.Sleep(20 * time.Second)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
				w.storePod(p)
			})
		}
		time.Sleep(time.Minute)
		if n := inspect(w, func() int { return w.patched }); n != 1+maxRestores {
			t.Errorf("%d patches sent, want one and all restores", n)
		}
	})
	if strings.Count(log, "reverted too often") != 1 {
		t.Errorf("want one log line for giving up:\n%s", log)
	}
}

// A kubelet that had ended a pod before it was set to Failed cannot report that: after a minute the
// bridge yields once and does not overwrite the kubelet's report.
func TestYieldToTheKubelet(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.muted = true })
		r := w.addEviction(w.addPod("a"))
		written := func() int { return inspect(w, func() int { return w.patched }) }
		time.Sleep(verdict.KubeletGrace - time.Second)
		if n := written(); n != 1 {
			t.Errorf("%d patches sent within the minute, want one", n)
		}
		time.Sleep(2 * time.Second)
		if p := inspect(w, func() *v1.Pod { return w.pods["a"] }); written() != 2 || p.Annotations[api.AnnotationEvicted] != r.ID+"#1" || p.Status.Reason != "Evicted" {
			t.Errorf("%d patches sent, annotations %v, status %+v, want a second one that yields", written(), p.Annotations, p.Status)
		}
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Reason, p.Status.Message = "", ""
			p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}
			w.storePod(p)
		})
		time.Sleep(5 * time.Minute)
		if n := written(); n != 2 {
			t.Errorf("%d patches sent, want two", n)
		}
	})
	if strings.Count(log, "leaving pod status to the kubelet") != 1 || strings.Contains(log, "pod status restored") {
		t.Errorf("want one log line for the yield and none for a restore:\n%s", log)
	}
}

// A status that has stayed as written for a minute is not watched any longer.
func TestStableStatusIsNotWatched(t *testing.T) {
	during(t, func(w *world) {
		w.addEviction(w.addPod("a"))
		time.Sleep(StablePeriod + time.Second)
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
			w.storePod(p)
		})
		time.Sleep(time.Minute)
		if n := inspect(w, func() int { return w.patched }); n != 1 {
			t.Errorf("%d patches sent, want one", n)
		}
	})
}

// A status that was reverted and became correct again must stay so for a minute from then on.
func TestStablePeriodRestarts(t *testing.T) {
	during(t, func(w *world) {
		w.addEviction(w.addPod("a"))
		as := func(phase v1.PodPhase, reason, message string) {
			p := w.pods["a"].DeepCopy()
			p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, message
			w.storePod(p)
		}
		time.Sleep(50 * time.Second)
		w.set(func() { as(v1.PodRunning, "", "") })
		time.Sleep(5 * time.Second)
		w.set(func() { as(v1.PodFailed, "Evicted", message) })
		time.Sleep(10 * time.Second)
		w.set(func() { as(v1.PodFailed, "", "") })
		time.Sleep(time.Second)
		if n := inspect(w, func() int { return w.patched }); n != 2 {
			t.Errorf("%d patches sent, want two", n)
		}
	})
}

// A status is reverted, and the restore is slow and fails at first. The pod is restored even if its
// record becomes final meanwhile, or the agent was gone for an hour.
func TestRevertedAsTheRecordEnds(t *testing.T) {
	for held, ends := range map[time.Duration]bool{3 * time.Minute: true, verdict.EventMaxAge - 11*time.Second: false} {
		testRevertedAsItEnds(t, held, ends)
	}
}

func testRevertedAsItEnds(t *testing.T, held time.Duration, ends bool) {
	during(t, func(w *world) {
		p := w.addPod("a")
		open := *record(p, time.Now())
		over := open
		open.Complete = false
		w.set(func() { w.records = append(w.records, &open) })
		time.Sleep(held)
		w.set(func() {
			back := w.pods["a"].DeepCopy()
			back.Status.Phase, back.Status.Reason = v1.PodRunning, ""
			w.storePod(back)
			w.latency = func(what string) time.Duration {
				if strings.HasPrefix(what, "patch") {
					return 20 * time.Second
				}
				return 0
			}
			w.fault = func(what string) error {
				if strings.HasPrefix(what, "patch") {
					return status(500)
				}
				return nil
			}
		})
		time.Sleep(10 * time.Second)
		if ends {
			w.updateRecord(&over)
		}
		time.Sleep(15 * time.Second)
		w.set(func() { w.latency, w.fault = nil, nil })
		time.Sleep(5 * time.Minute)
		if phase := inspect(w, func() v1.PodPhase { return w.pods["a"].Status.Phase }); phase != v1.PodFailed {
			t.Errorf("after %v pod a is %s, want Failed", held, phase)
		}
	})
}

// A removed reason that was restored must stay for a minute from then on, too.
func TestStablePeriodOfTheReason(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.muted = true })
		w.addEviction(w.addPod("a"))
		for i, after := range []time.Duration{50 * time.Second, 15 * time.Second} {
			time.Sleep(after)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Reason, p.Status.Message = "", ""
				w.storePod(p)
			})
			time.Sleep(time.Second)
			if n := inspect(w, func() int { return w.patched }); n != 2+i {
				t.Errorf("%d patches sent, want %d", n, 2+i)
			}
		}
	})
}

// A kubelet removes the reason every ten seconds, and the record is not final: the bridge logs once
// that it gives up.
func TestReasonRestoresAreLimited(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.muted = true })
		r := w.addOngoing(w.addPod("a"))
		r = emptied(r)
		dead := r
		w.updateRecord(&dead)
		for range 60 {
			time.Sleep(10 * time.Second)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Reason, p.Status.Message = "", ""
				w.storePod(p)
			})
		}
		for range 100 {
			time.Sleep(time.Second)
			w.changed()
		}
		r = finished(r)
		w.updateRecord(&r)
	})
	if n := strings.Count(log, "reverted too often"); n != 1 {
		t.Errorf("giving up is logged %d times, want once:\n%s", n, log)
	}
}
