package deliver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// During an outage the pod was deleted, replaced, ended by itself or restarted healthy. Its status
// is not written, and its events report the eviction.
func TestPodChangedDuringAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, p *v1.Pod)
		events string
	}{
		"deleted":  {func(w *world, _ *v1.Pod) { delete(w.pods, "a") }, "Evicted EvictionThresholdMet"},
		"replaced": {func(w *world, p *v1.Pod) { p.UID = types.UID("another"); w.storePod(p) }, "Evicted EvictionThresholdMet"},
		"ended":    {func(w *world, p *v1.Pod) { p.Status.Phase = v1.PodSucceeded; w.storePod(p) }, "Evicted EvictionThresholdMet"},
		"healthy": {func(w *world, p *v1.Pod) {
			p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now())
			w.storePod(p)
		}, "Evicted EvictionOutlived EvictionThresholdMet"},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				time.Sleep(time.Second) // the version is read, so that events are tried during the outage
				w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
				p := w.addPod("a")
				w.addEviction(p)
				time.Sleep(9 * time.Minute)
				w.set(func() { c.change(w, p.DeepCopy()) })
				time.Sleep(time.Minute)
				w.set(func() { w.fault = nil })
				time.Sleep(maxBackoff)
				if got := strings.Join(inspect(w, w.reasons), " "); got != c.events || w.patched != 0 {
					t.Errorf("%d patches and events %s, want none and the events of the case", w.patched, got)
				}
			})
		})
	}
}

// The agent disconnects and reconnects: repeated records have no effect, the pods are resent, and
// later evictions are delivered.
func TestAgentReconnects(t *testing.T) {
	during(t, func(w *world) {
		w.addEviction(w.addPod("a"))
		time.Sleep(time.Second)
		w.set(func() { w.agentGone = true })
		w.addEviction(w.addPod("b"))
		time.Sleep(time.Hour / 2)
		if n := inspect(w, func() int { return w.streams }); n < 10 || n > 240 {
			t.Errorf("%d stream requests in half an hour, want backoff", n)
		}
		w.set(func() { w.agentGone = false })
		time.Sleep(maxBackoff)
		type counts struct{ resyncs, patched, events int }
		if n := inspect(w, func() counts { return counts{w.resyncs, w.patched, len(w.events)} }); n.resyncs == 0 || n.patched != 2 || n.events != 4 {
			t.Errorf("state %+v and events %v, want a resync, 2 patches, 4 events", n, inspect(w, w.reasons))
		}
	})
}

// An agent that hangs keeps its streams open: the agent that replaces it is followed nevertheless.
func TestAgentReplacesOneThatHangs(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.agentHangs, w.agentGone = true, true }) // close the open stream; further ones hang
		w.addEviction(w.addPod("a"))
		time.Sleep(5 * time.Minute)
		w.set(func() { w.agentHangs, w.agentGone = false, false })
		time.Sleep(streamTimeout)
		if got := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"a"}) {
			t.Errorf("pods set to Failed: %v, want a", got)
		}
	})
}

// A record gap is one event of the node. If the outage lasted over an hour, none is sent.
func TestRecordGap(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		want int
	}{"recent": {10 * time.Minute, 1}, "too late": {61 * time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() {
					w.fault = func(string) error { return errors.New("connection refused") }
					w.gap = &api.RecordsGap{Until: time.Now().UTC().Format("20060102T150405.000000Z"), Reason: "the disk is full"}
					w.agentGone = true // close the stream, so that the gap is sent again
				})
				time.Sleep(time.Minute)
				w.set(func() { w.agentGone = false })
				time.Sleep(c.away)
				w.set(func() { w.fault = nil })
				time.Sleep(maxBackoff)
				got := inspect(w, w.reasons)
				if len(got) != c.want || c.want > 0 && got[0] != "EvictionRecordsLost" || w.created > c.want {
					t.Errorf("events %v, created %d times, want one for a recent gap", got, w.created)
				}
			})
		})
	}
}

// A full record file has dropped old records at each start of a bridge: that is no error.
func TestOldRecordGap(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() {
			w.gap = &api.RecordsGap{Until: time.Now().Add(-48 * time.Hour).UTC().Format("20060102T150405.000000Z"), Reason: "the file is bounded"}
			w.agentGone = true // close the stream, so that the gap is sent again
		})
		time.Sleep(time.Minute)
		if n := inspect(w, func() int { return w.streams }); n > 20 {
			t.Errorf("%d stream requests in a minute, want backoff", n)
		}
		w.set(func() { w.agentGone = false })
		time.Sleep(time.Minute)
	})
	if strings.Contains(log, "level=ERROR") {
		t.Errorf("want no error in the log:\n%s", log)
	}
}

// No event names a record before its pod is Failed for it: the pod's author could fake that status
// first.
func TestNoEventNamesARecordBeforeItsPodIsFailed(t *testing.T) {
	during(t, func(w *world) {
		p := w.addPod("a")
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} // the write waits for its sandbox
		dead := *record(p, time.Now())
		clean := dead
		dead.Cleaned, dead.Outcome, dead.Complete = api.Stamp{}, api.OutcomeRunning, false
		w.set(func() { w.records = append(w.records, &dead) })
		time.Sleep(10 * time.Second)
		if got := inspect(w, w.reasons); len(got) > 0 {
			t.Errorf("events %v before the pod is Failed, want none", got)
		}
		w.set(func() { w.records[0] = &clean })
		time.Sleep(time.Second)
		if got := inspect(w, w.reasons); len(got) != 2 || len(w.failed) != 1 {
			t.Errorf("events %v, pods set to Failed %v, want two and one", got, w.failed)
		}
		w.set(func() { // the write is slow
			w.latency = func(what string) time.Duration {
				if what == "patch b" {
					return 20 * time.Second
				}
				return 0
			}
		})
		w.addEviction(w.addPod("b"))
		time.Sleep(15 * time.Second)
		if got := inspect(w, w.reasons); len(got) != 2 {
			t.Errorf("events %v during the write, want the first two", got)
		}
		time.Sleep(10 * time.Second)
		if got := inspect(w, w.reasons); len(got) != 4 || len(w.failed) != 2 {
			t.Errorf("events %v, pods set to Failed %v, want four and two", got, w.failed)
		}
	})
}

// With events only, records do not wait for statuses that an earlier bridge has written, and no
// status is written.
func TestEventsOnlyAfterStatusesWereWritten(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.eventsOnly = true })
		for name, begun := range map[string]func(*v1.Pod, *api.Record){
			"failed": func(p *v1.Pod, r *api.Record) {
				p.Annotations = map[string]string{api.AnnotationEvicted: r.ID}
				p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "Evicted", message
			},
			"taken back": func(p *v1.Pod, r *api.Record) { p.Annotations = map[string]string{api.AnnotationEvicted: r.ID} },
			"marked": func(p *v1.Pod, r *api.Record) {
				r.Outcome, r.Emptied, r.Cleaned = api.OutcomeUndying, api.Stamp{}, api.Stamp{}
				p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: verdict.ReasonTarget}}
			},
		} {
			p := w.addPod(name)
			r := record(p, time.Now().Add(-2*verdict.KubeletGrace))
			w.set(func() {
				r.ID = fmt.Sprintf("%s-%04x", r.ID, len(w.records))
				p = p.DeepCopy()
				begun(p, r)
				w.storePod(p)
				w.records = append(w.records, r)
			})
		}
		time.Sleep(3 * time.Hour)
		if n := inspect(w, func() int { return w.patched }); n != 0 {
			t.Errorf("%d patches sent, want none", n)
		}
	})
}

// A victim that did not die, or with a container that restarted while others were being stopped, is
// dead in the end, and its record is final before the bridge judges it: it is set to Failed, and no
// event reports it as running.
func TestVictimDiesLate(t *testing.T) {
	for name, c := range map[string]struct {
		lives  func(w *world, r *api.Record) // makes it look alive
		events string
	}{
		"it would not die": {func(w *world, r *api.Record) {
			r.Outcome = api.OutcomeUndying
			next := *r
			w.updateRecord(&next)
			time.Sleep(time.Minute)
		}, "Evicted EvictionAbandoned EvictionThresholdMet"},
		"it was started anew": {func(w *world, _ *api.Record) {
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}
				w.storePod(p)
			})
			time.Sleep(10 * time.Second)
		}, "Evicted EvictionThresholdMet"},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				r := w.addOngoing(w.addPod("a"))
				time.Sleep(30 * time.Second)
				c.lives(w, &r)
				w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
				w.addEviction(w.addPod("b")) // its write makes the bridge notice the outage
				time.Sleep(time.Minute)
				r = emptied(r)
				dead := r
				w.updateRecord(&dead)
				time.Sleep(2 * time.Second)
				r = finished(r)
				w.updateRecord(&r)
				time.Sleep(time.Minute)
				w.set(func() { w.fault = nil })
				time.Sleep(time.Minute)
				var events []string
				for name, e := range inspect(w, func() map[string]*v1.Event { return maps.Clone(w.events) }) {
					if !strings.Contains(name, "/b.") && !strings.HasSuffix(name, strings.ToLower(w.records[1].ID)) {
						events = append(events, e.Reason)
					}
				}
				slices.Sort(events)
				if got := strings.Join(events, " "); w.phase("a") != v1.PodFailed || got != c.events {
					t.Errorf("pod a is %s with events %s, want Failed and the events of an eviction", w.phase("a"), got)
				}
			})
		})
	}
}

// A victim in uninterruptible sleep dies after more than an hour, while the agent's stream of records
// is renewed: it is set to Failed.
func TestVictimDiesAfterAnHour(t *testing.T) {
	for name, renewed := range map[string]bool{"stream is open": false, "stream is renewed": true} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				r := w.addOngoing(w.addPod("a"))
				time.Sleep(10 * time.Second)
				r.Outcome = api.OutcomeUndying
				undying := r
				w.updateRecord(&undying)
				time.Sleep(70 * time.Minute)
				w.addEviction(w.addPod("b")) // the position in the stream moves
				time.Sleep(time.Minute)
				if renewed {
					w.set(func() { w.agentGone = true })
					time.Sleep(time.Second)
				}
				dead := emptied(r)
				w.updateRecord(&dead)
				w.set(func() { w.agentGone = false })
				time.Sleep(maxBackoff)
				if w.phase("a") != v1.PodFailed {
					t.Errorf("pod a is %s after its death, want Failed", w.phase("a"))
				}
				final := finished(dead)
				w.updateRecord(&final)
			})
		})
	}
}

// The mark is written, but the response is lost. The eviction is abandoned, and the watch that
// shows no mark may be behind.
func TestLostResponseOfAMark(t *testing.T) {
	for name, answer := range map[string]error{"no answer": nil, "storage is lost": status(http.StatusInternalServerError)} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				a := w.addPod("a")
				time.Sleep(time.Second)
				w.set(func() { w.loseResponses, w.lostError, w.watchedPods = true, answer, map[string]*v1.Pod{"a": a} })
				r := w.addOngoing(a)
				time.Sleep(verdict.MarkDelay + 20*time.Millisecond) // less than the backoff
				r.Outcome, r.Complete = api.OutcomeAbandoned, true
				w.updateRecord(&r)
				w.mu.Lock()
				w.loseResponses = false
				w.mu.Unlock()
				time.Sleep(time.Minute)
				w.set(func() { w.watchedPods = nil })
				time.Sleep(time.Minute)
				for _, c := range inspect(w, func() []v1.PodCondition { return w.pods["a"].Status.Conditions }) {
					if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
						t.Errorf("the pod lives and is still marked after %d writes", w.patched)
					}
				}
				if w.patched != 2 {
					t.Errorf("%d writes, want the mark and its removal", w.patched)
				}
			})
		})
	}
}

// marked reports whether the condition DisruptionTarget of a pod is True.
func (w *world) marked(name string) bool {
	return inspect(w, func() bool {
		return slices.ContainsFunc(w.pods[name].Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
		})
	})
}

// The mark's response is lost, and the recovered server knows no roles for three seconds, or a new
// bridge starts with a stale list.
func TestLostMarkWithoutRoles(t *testing.T) {
	during(t, func(w *world) {
		a := w.addPod("a")
		time.Sleep(time.Second)
		w.set(func() { w.loseResponses, w.watchedPods = true, map[string]*v1.Pod{"a": a} })
		r := w.addOngoing(a)
		time.Sleep(verdict.MarkDelay + 20*time.Millisecond)
		r.Outcome, r.Complete = api.OutcomeAbandoned, true
		w.updateRecord(&r)
		w.set(func() { w.loseResponses, w.fault = false, func(string) error { return status(http.StatusForbidden) } })
		time.Sleep(3 * time.Second)
		w.set(func() { w.fault = nil })
		time.Sleep(5 * time.Second)
		w.set(func() { w.watchedPods = nil })
		time.Sleep(time.Minute)
		if w.marked("a") {
			t.Error("the pod lives and is still marked")
		}
	})
}

func TestStaleListAtStart(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.agentGone = true })
		a := w.addPod("a")
		marked := a.DeepCopy()
		marked.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: verdict.ReasonTarget}}
		w.set(func() {
			w.storePod(marked)
			w.watchedPods = map[string]*v1.Pod{"a": a}
		})
		r := w.addOngoing(a)
		r.Outcome, r.Complete = api.OutcomeAbandoned, true
		w.updateRecord(&r)
		w.set(func() { w.agentGone = false })
		time.Sleep(time.Minute)
		w.set(func() { w.watchedPods = nil })
		time.Sleep(time.Minute)
		if w.marked("a") {
			t.Error("the pod lives and is still marked")
		}
	})
}

// The mark's response is lost, and the pod may not be read: the entry is finished.
func TestLostMarkOfAnUnreadablePod(t *testing.T) {
	during(t, func(w *world) {
		a := w.addPod("a")
		time.Sleep(time.Second)
		w.set(func() { w.fault = faultOf("patch", status(http.StatusInternalServerError)) })
		r := w.addOngoing(a)
		time.Sleep(time.Minute)
		w.set(func() { w.fault = faultOf("get", status(http.StatusForbidden)) })
		r.Outcome, r.Complete = api.OutcomeAbandoned, true
		w.updateRecord(&r)
	})
}

// A write was denied for long, and the agent changes the record: the next write is tried
// immediately.
func TestChangedRecordIsTriedImmediately(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = faultOf("patch", status(http.StatusInternalServerError)) })
		r := w.addOngoing(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		w.fault = nil
		w.mu.Unlock()
		r = finished(emptied(r))
		w.updateRecord(&r)
		time.Sleep(time.Millisecond)
		if w.phase("a") != v1.PodFailed {
			t.Errorf("pod a is %s, want Failed", w.phase("a"))
		}
	})
}

// A victim was judged as running and is dead after all. Before it is judged again, others are
// written slowly: meanwhile no event reports it as running.
func TestNoEventsBeforeANewVerdict(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.latency, w.fault = latencyOf("patch", 30*time.Second), faultOf("patch a", status(http.StatusInternalServerError))
		})
		r := w.addOngoing(w.addPod("a"))
		time.Sleep(35 * time.Second) // the slow write of its mark has failed
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}
			w.storePod(p)
		})
		time.Sleep(maxDeniedBackoff)
		for i := range maxInFlight {
			w.addEviction(w.addPod(fmt.Sprint("slow", i)))
		}
		time.Sleep(10 * time.Second)
		r = finished(emptied(r))
		w.updateRecord(&r)
		time.Sleep(5 * time.Minute)
		w.set(func() { w.latency, w.fault = nil, nil })
		time.Sleep(6 * time.Minute)
		if got := inspect(w, w.reasons); w.phase("a") != v1.PodFailed || slices.Contains(got, "EvictionOutlived") {
			t.Errorf("pod a is %s with events %v, want Failed and no report that it runs", w.phase("a"), got)
		}
	})
}
