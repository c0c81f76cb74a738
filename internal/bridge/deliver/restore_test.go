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

// A status that was taken back is mended when the API is back, however often that was tried in vain.
func TestAStatusThatIsTakenBackWhileTheAPIIsAway(t *testing.T) {
	during(t, func(w *world) {
		w.evicted(w.runs("a"))
		time.Sleep(30 * time.Second)
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
			w.store(p)
			w.fault = func(string) error { return errors.New("connection refused") }
		})
		time.Sleep(time.Hour)
		w.set(func() { w.fault = nil })
		time.Sleep(maxBackoff)
		if p := is(w, func() *v1.Pod { return w.pods["a"] }); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" {
			t.Errorf("%s %s", p.Status.Phase, p.Status.Reason)
		}
	})
}

// Whoever takes a status back again and again means it: that is said once, and then it is left.
func TestAStatusThatIsAlwaysTakenBack(t *testing.T) {
	log := during(t, func(w *world) {
		w.evicted(w.runs("a"))
		for range 4 * maxRestores { // each time it is left to its kubelet for a minute
			time.Sleep(20 * time.Second)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
				w.store(p)
			})
		}
		time.Sleep(time.Minute)
		if n := is(w, func() int { return w.patched }); n != 1+maxRestores {
			t.Errorf("it is written %d times", n)
		}
	})
	if strings.Count(log, "reverted too often") != 1 {
		t.Error(log)
	}
}

// A kubelet that had done with a pod when it was failed is refused how that ended: after a minute it is let have its word, once, and nobody
// writes against it.
func TestAKubeletThatHadDoneWithThePod(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.mute = true })
		r := w.evicted(w.runs("a"))
		written := func() int { return is(w, func() int { return w.patched }) }
		time.Sleep(verdict.KubeletGrace - time.Second)
		if n := written(); n != 1 {
			t.Errorf("it is written %d times within the minute", n)
		}
		time.Sleep(2 * time.Second)
		if p := is(w, func() *v1.Pod { return w.pods["a"] }); written() != 2 || p.Annotations[api.AnnotationEvicted] != r.ID+"#1" || p.Status.Reason != "Evicted" {
			t.Errorf("it is written %d times: %v, %+v", written(), p.Annotations, p.Status)
		}
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Reason, p.Status.Message = "", ""
			p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}
			w.store(p)
		})
		time.Sleep(5 * time.Minute)
		if n := written(); n != 2 {
			t.Errorf("it is written %d times", n)
		}
	})
	if strings.Count(log, "leaving pod status to the kubelet") != 1 || strings.Contains(log, "pod status restored") {
		t.Error(log)
	}
}

// A status that has stayed for a minute is looked at no longer.
func TestAStatusThatStays(t *testing.T) {
	during(t, func(w *world) {
		w.evicted(w.runs("a"))
		time.Sleep(StablePeriod + time.Second)
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
			w.store(p)
		})
		time.Sleep(time.Minute)
		if n := is(w, func() int { return w.patched }); n != 1 {
			t.Errorf("it is written %d times", n)
		}
	})
}

// What is taken back and comes to be as it was has to stay so from then on.
func TestAStatusThatComesAndGoes(t *testing.T) {
	during(t, func(w *world) {
		w.evicted(w.runs("a"))
		as := func(phase v1.PodPhase, reason, message string) {
			p := w.pods["a"].DeepCopy()
			p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, message
			w.store(p)
		}
		time.Sleep(50 * time.Second)
		w.set(func() { as(v1.PodRunning, "", "") })
		time.Sleep(5 * time.Second)
		w.set(func() { as(v1.PodFailed, "Evicted", message) })
		time.Sleep(10 * time.Second)
		w.set(func() { as(v1.PodFailed, "", "") })
		time.Sleep(time.Second)
		if n := is(w, func() int { return w.patched }); n != 2 {
			t.Errorf("it is written %d times", n)
		}
	})
}

// A status is taken back, and while that is mended, which takes its time and fails at first, the agent has nothing more to say of the eviction:
// or has been away for an hour: it is mended all the same.
func TestAStatusThatIsTakenBackAsItsRecordEnds(t *testing.T) {
	for held, ends := range map[time.Duration]bool{3 * time.Minute: true, verdict.EventMaxAge - 11*time.Second: false} {
		takenBackAsItEnds(t, held, ends)
	}
}

func takenBackAsItEnds(t *testing.T, held time.Duration, ends bool) {
	during(t, func(w *world) {
		p := w.runs("a")
		open := *record(p, time.Now())
		over := open
		open.Over = false
		w.set(func() { w.records = append(w.records, &open) })
		time.Sleep(held)
		w.set(func() {
			back := w.pods["a"].DeepCopy()
			back.Status.Phase, back.Status.Reason = v1.PodRunning, ""
			w.store(back)
			w.takes = func(what string) time.Duration {
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
			w.tells(&over)
		}
		time.Sleep(15 * time.Second)
		w.set(func() { w.takes, w.fault = nil, nil })
		time.Sleep(5 * time.Minute)
		if phase := is(w, func() v1.PodPhase { return w.pods["a"].Status.Phase }); phase != v1.PodFailed {
			t.Errorf("after %v it is %s", held, phase)
		}
	})
}

// A reason that was taken away and mended has to stay from then on, too.
func TestAReasonThatComesAndGoes(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.mute = true })
		w.evicted(w.runs("a"))
		for i, after := range []time.Duration{50 * time.Second, 15 * time.Second} {
			time.Sleep(after)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Reason, p.Status.Message = "", ""
				w.store(p)
			})
			time.Sleep(time.Second)
			if n := is(w, func() int { return w.patched }); n != 2+i {
				t.Errorf("it is written %d times, want %d", n, 2+i)
			}
		}
	})
}

// The same of a reason, which its kubelet takes away every ten seconds, and of whose pod the agent has more to say: others come and go
// meanwhile.
func TestAReasonThatIsAlwaysTakenAway(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.mute = true })
		r := w.begun(w.runs("a"))
		r = emptied(r)
		dead := r
		w.tells(&dead)
		for range 60 {
			time.Sleep(10 * time.Second)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Reason, p.Status.Message = "", ""
				w.store(p)
			})
		}
		for range 100 {
			time.Sleep(time.Second)
			w.changed()
		}
		r = over(r)
		w.tells(&r)
	})
	if n := strings.Count(log, "reverted too often"); n != 1 {
		t.Errorf("said %d times: %s", n, log)
	}
}
