package deliver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

func status(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }

// faults are ways in which an API is away; hangs is what kube.Client makes of a server that does not answer.
func faults() map[string]func() error {
	return map[string]func() error{
		"refuses connections": func() error { return errors.New("connection refused") },
		"hangs":               func() error { time.Sleep(10 * time.Second); return context.DeadlineExceeded },
		"is overloaded":       func() error { return apierrors.NewTooManyRequests("later", 20) },
		"is not ready":        func() error { return status(http.StatusServiceUnavailable) },
		"has a defect":        func() error { return status(http.StatusInternalServerError) },
		"knows no roles yet":  func() error { return status(http.StatusForbidden) },
	}
}

// The API is away for ten minutes, or for a bit more than an hour, while three pods are evicted and a fourth after it: each is failed once it
// is back, in their order where nothing of theirs was tried alone, and each event is there that is not an hour old; it was not asked all
// the time.
func TestTheAPIIsAwayForLong(t *testing.T) {
	for name, fault := range faults() {
		for _, c := range []struct {
			away  time.Duration
			first int // events of the first three
		}{{10 * time.Minute, 6}, {61 * time.Minute, 0}} {
			t.Run(name+" for "+c.away.String(), func(t *testing.T) {
				during(t, func(w *world) {
					w.set(func() { w.fault = func(string) error { return fault() } })
					for _, name := range []string{"a", "b", "c"} {
						w.evicted(w.runs(name))
					}
					time.Sleep(c.away)
					if n := is(w, func() int { return len(w.asked) }); n < 3 || n > 3*int(c.away/(10*time.Second)) {
						t.Errorf("it is asked %d times", n)
					}
					w.set(func() { w.fault = nil })
					w.evicted(w.runs("d"))
					time.Sleep(6 * time.Minute) // the longest pause after a refusal is five
					failed, events := is(w, func() []string { return slices.Clone(w.failed) }), is(w, w.reasons)
					if !strings.HasPrefix(name, "has") && !strings.HasPrefix(name, "knows") && !slices.Equal(failed, []string{"a", "b", "c", "d"}) {
						t.Errorf("failed in the order %v", failed)
					}
					if slices.Sort(failed); !slices.Equal(failed, []string{"a", "b", "c", "d"}) || len(events) != c.first+2 {
						t.Errorf("failed %v, events %v", failed, events)
					}
				})
			})
		}
	}
}

// An API that says when it wants to be asked again is not asked before.
func TestAnAPIThatAsksForTime(t *testing.T) {
	during(t, func(w *world) {
		is(w, func() bool { return true }) // what it asks at its start is asked
		w.set(func() {
			w.asked, w.fault = nil, func(string) error { return apierrors.NewTooManyRequests("later", 90) }
		})
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		asked := is(w, func() []time.Time { return slices.Clone(w.asked) })
		for i, at := range asked {
			if i > 0 && at.Sub(asked[i-1]) < 90*time.Second {
				t.Errorf("asked again after %v", at.Sub(asked[i-1]))
			}
		}
		w.set(func() { w.fault = nil })
	})
}

// A request for one pod that fails again and again keeps no other pod waiting, and is done when it can be.
func TestOnePodThatCannotBeWritten(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.fault = func(what string) error {
				if what == "patch a" {
					return status(http.StatusInternalServerError)
				}
				return nil
			}
		})
		w.evicted(w.runs("a"))
		w.evicted(w.runs("b"))
		time.Sleep(time.Second)
		if got := is(w, func() []string { return w.failed }); !slices.Equal(got, []string{"b"}) {
			t.Errorf("failed %v", got)
		}
		w.set(func() { w.fault = nil })
		time.Sleep(lastPause)
		if got := is(w, func() []string { return w.failed }); !slices.Equal(got, []string{"b", "a"}) {
			t.Errorf("failed %v", got)
		}
	})
}

// What the API fails at, or refuses, of one pod keeps no other waiting, and is not asked for all the time: whether it is the pod itself or its
// event.
func TestOnePodThatTheAPIFailsAt(t *testing.T) {
	for name, c := range map[string]struct {
		what string
		code int32
	}{
		"to get": {"get a", http.StatusInternalServerError}, "refuses to get": {"get a", http.StatusForbidden},
		"to take its event": {"event a.", http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				n := 0
				w.set(func() {
					w.fault = func(what string) error {
						if strings.HasPrefix(what, c.what) {
							n++
							return status(c.code)
						}
						return nil
					}
				})
				a := w.runs("a")
				if strings.HasPrefix(c.what, "get") {
					w.set(func() { delete(w.pods, "a") }) // from the copy
				}
				w.evicted(a)
				w.evicted(w.runs("b"))
				time.Sleep(time.Second)
				failed := is(w, func() []string { return slices.Clone(w.failed) })
				_, told := is(w, func() map[string]*v1.Event { return w.events })["shop/b."+strings.ToLower(w.records[1].ID)]
				if !slices.Contains(failed, "b") || !told {
					t.Errorf("failed %v, events %v", failed, is(w, w.reasons))
				}
				time.Sleep(10 * time.Minute)
				if n := is(w, func() int { return n }); n < 3 || n > 45 {
					t.Errorf("it is asked %d times in ten minutes", n)
				}
				w.set(func() { w.fault = nil })
			})
		})
	}
}

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
		time.Sleep(lastPause)
		if p := is(w, func() *v1.Pod { return w.pods["a"] }); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" {
			t.Errorf("%s %s", p.Status.Phase, p.Status.Reason)
		}
	})
}

// The clock was set back, and the agent went and came: what it has evicted since has a lower ID than what it told before, and is told.
func TestAClockThatWasSetBack(t *testing.T) {
	during(t, func(w *world) {
		p := w.runs("a")
		w.set(func() {
			r := *record(p, time.Now().Add(time.Hour))
			w.records = append(w.records, &r)
		})
		time.Sleep(time.Second)
		w.set(func() { w.away = true })
		w.evicted(w.runs("b"))
		time.Sleep(time.Minute)
		w.set(func() { w.away = false })
		time.Sleep(lastPause)
		if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"a", "b"}) || w.created != 4 {
			t.Errorf("failed %v, %d events", got, w.created)
		}
	})
}

// While the API was away the pod was deleted, replaced, ended by itself, or has come back healthy: it is left alone, and what happened to it
// is told.
func TestWhatBecameOfAPodMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, p *v1.Pod)
		events string
	}{
		"deleted":  {func(w *world, _ *v1.Pod) { delete(w.pods, "a") }, "Evicted EvictionThresholdMet"},
		"replaced": {func(w *world, p *v1.Pod) { p.UID = types.UID("another"); w.store(p) }, "Evicted EvictionThresholdMet"},
		"ended":    {func(w *world, p *v1.Pod) { p.Status.Phase = v1.PodSucceeded; w.store(p) }, "Evicted EvictionThresholdMet"},
		"healthy": {func(w *world, p *v1.Pod) {
			p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now())
			w.store(p)
		}, "Evicted EvictionOutlived EvictionThresholdMet"},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
				p := w.runs("a")
				w.evicted(p)
				time.Sleep(9 * time.Minute)
				w.set(func() { c.change(w, p.DeepCopy()) })
				time.Sleep(time.Minute)
				w.set(func() { w.fault = nil })
				time.Sleep(lastPause)
				if got := strings.Join(is(w, w.reasons), " "); got != c.events || w.patched != 0 {
					t.Errorf("%d patches, events %s", w.patched, got)
				}
			})
		})
	}
}

// The agent goes and comes: records that it told before make nothing twice, the pods are told once more, and what it evicted meanwhile
// follows.
func TestAnAgentThatGoesAndComes(t *testing.T) {
	during(t, func(w *world) {
		w.evicted(w.runs("a"))
		time.Sleep(time.Second)
		w.set(func() { w.away = true })
		w.evicted(w.runs("b"))
		time.Sleep(time.Hour / 2)
		if n := is(w, func() int { return w.follows }); n < 10 || n > 240 {
			t.Errorf("it is asked %d times", n)
		}
		w.set(func() { w.away = false })
		time.Sleep(lastPause)
		type told struct{ again, patched, events int }
		if n := is(w, func() told { return told{w.again, w.patched, len(w.events)} }); n.again == 0 || n.patched != 2 || n.events != 4 {
			t.Errorf("%+v, events %v", n, is(w, w.reasons))
		}
	})
}

// An agent that hangs for good keeps its streams open: the one in its place is heard all the same.
func TestAnAgentInThePlaceOfOneThatHangs(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.hangs, w.away = true, true }) // who follows already is hung up on, and asks again
		w.evicted(w.runs("a"))
		time.Sleep(5 * time.Minute)
		w.set(func() { w.hangs, w.away = false, false })
		time.Sleep(renewEvery)
		if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"a"}) {
			t.Errorf("failed %v", got)
		}
	})
}

// Records that are lost are an event of the node, once; where the API was away for so long that nobody wants to know, there is none.
func TestAGapInTheRecords(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		want int
	}{"told": {10 * time.Minute, 1}, "too late": {61 * time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() {
					w.fault = func(string) error { return errors.New("connection refused") }
					w.gap = &api.RecordsGap{Until: time.Now().UTC().Format("20060102T150405.000000Z"), Reason: "the disk is full"}
					w.away = true // it hangs up, and tells it anew
				})
				time.Sleep(time.Minute)
				w.set(func() { w.away = false })
				time.Sleep(c.away)
				w.set(func() { w.fault = nil })
				time.Sleep(lastPause)
				got := is(w, w.reasons)
				if len(got) != c.want || c.want > 0 && got[0] != "EvictionRecordsLost" || w.created > c.want {
					t.Errorf("events %v, sent %d times", got, w.created)
				}
			})
		})
	}
}

// A file of records that is full has lost its oldest ones at each start of a bridge: nobody has to do anything about it.
func TestRecordsThatWentLongAgo(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() {
			w.gap = &api.RecordsGap{Until: time.Now().Add(-48 * time.Hour).UTC().Format("20060102T150405.000000Z"), Reason: "the file is bounded"}
			w.away = true // it hangs up, and tells it anew
		})
		time.Sleep(time.Minute)
		if n := is(w, func() int { return w.follows }); n > 20 {
			t.Errorf("it is asked %d times in a minute", n)
		}
		w.set(func() { w.away = false })
		time.Sleep(time.Minute)
	})
	if strings.Contains(log, "level=ERROR") {
		t.Error(log)
	}
}

// No event names a record before its pod is failed for it: its author could say first that it was.
func TestNothingNamesARecordBeforeItsPodIsFailed(t *testing.T) {
	during(t, func(w *world) {
		p := w.runs("a")
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} // whose sandbox is waited for
		dead := *record(p, time.Now())
		clean := dead
		dead.Cleaned, dead.Outcome, dead.Over = api.Stamp{}, api.OutcomeRunning, false
		w.set(func() { w.records = append(w.records, &dead) })
		time.Sleep(10 * time.Second)
		if got := is(w, w.reasons); len(got) > 0 {
			t.Errorf("events %v", got)
		}
		w.set(func() { w.records[0] = &clean })
		time.Sleep(time.Second)
		if got := is(w, w.reasons); len(got) != 2 || len(w.failed) != 1 {
			t.Errorf("events %v, failed %v", got, w.failed)
		}
	})
}

// Whoever takes a status back again and again means it: that is said once, and then it is left.
func TestAStatusThatIsAlwaysTakenBack(t *testing.T) {
	log := during(t, func(w *world) {
		w.evicted(w.runs("a"))
		for range 4 * mendings { // each time it is left to its kubelet for a minute
			time.Sleep(20 * time.Second)
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.Phase, p.Status.Reason = v1.PodRunning, ""
				w.store(p)
			})
		}
		time.Sleep(time.Minute)
		if n := is(w, func() int { return w.patched }); n != 1+mendings {
			t.Errorf("it is written %d times", n)
		}
	})
	if strings.Count(log, "again and again") != 1 {
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
		time.Sleep(verdict.TakenBackFor - time.Second)
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
	if strings.Count(log, "is let have its word") != 1 || strings.Contains(log, "mended") {
		t.Error(log)
	}
}

// Where there are events alone no record waits for what an earlier bridge has begun at the API, and nothing is written there.
func TestEventsAloneEndWhatWasBegun(t *testing.T) {
	during(t, func(w *world) {
		w.alone = true
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
			p := w.runs(name)
			r := record(p, time.Now().Add(-2*verdict.TakenBackFor))
			w.set(func() {
				r.ID = fmt.Sprintf("%s-%04x", r.ID, len(w.records))
				p = p.DeepCopy()
				begun(p, r)
				w.store(p)
				w.records = append(w.records, r)
			})
		}
		time.Sleep(3 * time.Hour)
		if n := is(w, func() int { return w.patched }); n != 0 {
			t.Errorf("it is written %d times", n)
		}
	})
}

// A status that has stayed for a minute is looked at no longer.
func TestAStatusThatStays(t *testing.T) {
	during(t, func(w *world) {
		w.evicted(w.runs("a"))
		time.Sleep(HoldFor + time.Second)
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

// A role that is missing is asked for once, and then later.
func TestARoleThatIsMissing(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.fault = func(what string) error {
				if strings.HasPrefix(what, "get ") {
					return status(http.StatusForbidden)
				}
				return nil
			}
		})
		w.evicted(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gone", UID: "u"}})
		time.Sleep(100 * time.Millisecond)
		if n := is(w, func() int { return len(w.asked) }); n > 2 { // for the version, too
			t.Errorf("asked %d times at once", n)
		}
		w.set(func() { w.fault = nil })
	})
}

// What is to be known of the API server before a status may be written is known before the first eviction, which would wait for it.
func TestAServerIsKnownBeforeTheFirstEviction(t *testing.T) {
	during(t, func(w *world) {
		var asked []string
		w.set(func() { w.fault = func(what string) error { asked = append(asked, what); return nil } })
		a := w.runs("a")
		if before := is(w, func() []string { return slices.Clone(asked) }); !slices.Equal(before, []string{"version"}) {
			t.Errorf("before the eviction the API was asked for %q", before)
		}
		w.evicted(a)
		if all := is(w, func() []string { return slices.Clone(asked) }); len(all) < 2 || all[1] != "patch a" {
			t.Errorf("in the end for %q", all)
		}
	})
}

// What writes of one pod, or of its event, take longer than is waited for, and the API answers all else: nobody but that pod waits, nor is it
// asked for all the time.
func TestOnePodThatTakesTooLong(t *testing.T) {
	for _, what := range []string{"patch a", "event a."} {
		t.Run(what, func(t *testing.T) {
			log := during(t, func(w *world) {
				tries := 0
				w.set(func() {
					w.fault = func(asks string) error {
						if !strings.HasPrefix(asks, what) {
							return nil
						}
						w.set(func() { tries++ })
						time.Sleep(10 * time.Second)
						return fmt.Errorf("patch pods/status: %w", context.DeadlineExceeded) // as kube's
					}
				})
				for _, name := range []string{"a", "b", "c"} {
					w.evicted(w.runs(name))
				}
				time.Sleep(15 * time.Second)
				if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(got, "b") || !slices.Contains(got, "c") {
					t.Errorf("after a quarter of a minute %v are failed", got)
				}
				time.Sleep(time.Hour)
				if got, want := is(w, func() int { return w.created }), 4; got < want {
					t.Errorf("%d events, want those of the others", got)
				}
				if got := is(w, func() int { return tries }); got < 5 || got > 30 {
					t.Errorf("it is asked for %d times in an hour", got)
				}
				w.evicted(w.runs("d"))
				time.Sleep(30 * time.Second)
				if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(got, "d") {
					t.Errorf("%v are failed, want d too", got)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(6 * time.Minute)
				if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(got, "a") {
					t.Errorf("%v are failed, want a too", got)
				}
			})
			if !strings.Contains(log, "takes too long") {
				t.Error(log)
			}
		})
	}
}

// A pod that its kubelet says by itself to have failed is told of before that, where the API comes back after however long; other pods are
// asked for less and less often.
func TestAPodThatEndsByItselfIsToldOfAtOnce(t *testing.T) {
	for policy, most := range map[v1.RestartPolicy]time.Duration{v1.RestartPolicyNever: raceLast, v1.RestartPolicyAlways: lastPause} {
		during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			p := w.runs("a")
			p.Spec.RestartPolicy = policy
			w.evicted(p)
			time.Sleep(20*time.Minute + 321*time.Millisecond)
			w.mu.Lock() // of which nobody hears
			w.fault = nil
			w.mu.Unlock()
			back := time.Now()
			for len(is(w, func() []string { return w.failed })) == 0 && time.Since(back) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(back); took > most {
				t.Errorf("%s: told after %v, want %v", policy, took, most)
			}
			n := 0
			for _, at := range is(w, func() []time.Time { return w.asked }) {
				if at.After(back.Add(-10*time.Minute)) && at.Before(back) {
					n++
				}
			}
			if n > int(10*time.Minute/(most/2))+1 {
				t.Errorf("%s: asked %d times in ten minutes", policy, n)
			}
		})
	}
}

// A watch that has something to say shows that the API is there: it is asked then, unless it has asked for time itself.
func TestAWatchThatIsBackFirst(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		w.runs("b")
		w.changed()
		time.Sleep(firstPause)
		if got := is(w, func() []string { return slices.Clone(w.failed) }); len(got) != 1 {
			t.Errorf("%v are failed", got)
		}
	})
}
