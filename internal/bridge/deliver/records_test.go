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
				time.Sleep(time.Second) // in which the server is known, so that events are tried while it is away
				w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
				p := w.runs("a")
				w.evicted(p)
				time.Sleep(9 * time.Minute)
				w.set(func() { c.change(w, p.DeepCopy()) })
				time.Sleep(time.Minute)
				w.set(func() { w.fault = nil })
				time.Sleep(maxBackoff)
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
		time.Sleep(maxBackoff)
		type told struct{ again, patched, events int }
		if n := is(w, func() told { return told{w.resyncs, w.patched, len(w.events)} }); n.again == 0 || n.patched != 2 || n.events != 4 {
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
		time.Sleep(streamTimeout)
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
				time.Sleep(maxBackoff)
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
		w.set(func() { // the write takes its time
			w.takes = func(what string) time.Duration {
				if what == "patch b" {
					return 20 * time.Second
				}
				return 0
			}
		})
		w.evicted(w.runs("b"))
		time.Sleep(15 * time.Second)
		if got := is(w, w.reasons); len(got) != 2 {
			t.Errorf("events while it is failed %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := is(w, w.reasons); len(got) != 4 || len(w.failed) != 2 {
			t.Errorf("events %v, failed %v", got, w.failed)
		}
	})
}

// Where there are events alone no record waits for what an earlier bridge has begun at the API, and nothing is written there.
func TestEventsAloneEndWhatWasBegun(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.alone = true })
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
			r := record(p, time.Now().Add(-2*verdict.KubeletGrace))
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

// A victim that would not die, or of which a container was started anew while others still stopped, is dead in the end, and the agent has
// said its last word of it before the bridge comes to look: it is Failed, and nobody says that it lives.
func TestAVictimThatIsDeadAfterAll(t *testing.T) {
	for name, c := range map[string]struct {
		lives  func(w *world, r *api.Record) // as far as is told
		events string
	}{
		"it would not die": {func(w *world, r *api.Record) {
			r.Outcome = api.OutcomeUndying
			next := *r
			w.tells(&next)
			time.Sleep(time.Minute)
		}, "Evicted EvictionAbandoned EvictionThresholdMet"},
		"it was started anew": {func(w *world, _ *api.Record) {
			w.set(func() {
				p := w.pods["a"].DeepCopy()
				p.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}
				w.store(p)
			})
			time.Sleep(10 * time.Second)
		}, "Evicted EvictionThresholdMet"},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				r := w.begun(w.runs("a"))
				time.Sleep(30 * time.Second)
				c.lives(w, &r)
				w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
				w.evicted(w.runs("b")) // by which the bridge knows that the API is away
				time.Sleep(time.Minute)
				r = emptied(r)
				dead := r
				w.tells(&dead)
				time.Sleep(2 * time.Second)
				r = over(r)
				w.tells(&r)
				time.Sleep(time.Minute)
				w.set(func() { w.fault = nil })
				time.Sleep(time.Minute)
				var events []string
				for name, e := range is(w, func() map[string]*v1.Event { return maps.Clone(w.events) }) {
					if !strings.Contains(name, "/b.") && !strings.HasSuffix(name, strings.ToLower(w.records[1].ID)) {
						events = append(events, e.Reason)
					}
				}
				slices.Sort(events)
				if got := strings.Join(events, " "); w.phase("a") != v1.PodFailed || got != c.events {
					t.Errorf("it is %s, events %s", w.phase("a"), got)
				}
			})
		})
	}
}

// The mark is written, and nobody hears so: the victim is let go of, and where the watch says that it is not marked it may be behind that.
func TestAMarkOfWhichNobodyKnows(t *testing.T) {
	for name, answer := range map[string]error{"no answer": nil, "storage is lost": status(http.StatusInternalServerError)} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				a := w.runs("a")
				time.Sleep(time.Second)
				w.set(func() { w.lost, w.answer, w.behind = true, answer, map[string]*v1.Pod{"a": a} })
				r := w.begun(a)
				time.Sleep(20 * time.Millisecond) // before it is tried again
				r.Outcome, r.Over = api.OutcomeAbandoned, true
				w.tells(&r)
				w.mu.Lock()
				w.lost = false
				w.mu.Unlock()
				time.Sleep(time.Minute)
				w.set(func() { w.behind = nil })
				time.Sleep(time.Minute)
				for _, c := range is(w, func() []v1.PodCondition { return w.pods["a"].Status.Conditions }) {
					if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
						t.Errorf("it lives, and is marked: %d writes", w.patched)
					}
				}
				if w.patched != 2 {
					t.Errorf("%d writes, want a mark and that it is none", w.patched)
				}
			})
		})
	}
}

// marked tells that a pod is about to be disrupted, as far as is said.
func (w *world) marked(name string) bool {
	return is(w, func() bool {
		return slices.ContainsFunc(w.pods[name].Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
		})
	})
}

// A mark of which nobody knows, and the API that is back knows no roles for three seconds, or a new bridge begins with a list that is behind.
func TestAMarkThatTheWatchDoesNotKnow(t *testing.T) {
	during(t, func(w *world) {
		a := w.runs("a")
		time.Sleep(time.Second)
		w.set(func() { w.lost, w.behind = true, map[string]*v1.Pod{"a": a} })
		r := w.begun(a)
		time.Sleep(20 * time.Millisecond)
		r.Outcome, r.Over = api.OutcomeAbandoned, true
		w.tells(&r)
		w.set(func() { w.lost, w.fault = false, func(string) error { return status(http.StatusForbidden) } })
		time.Sleep(3 * time.Second)
		w.set(func() { w.fault = nil })
		time.Sleep(5 * time.Second)
		w.set(func() { w.behind = nil })
		time.Sleep(time.Minute)
		if w.marked("a") {
			t.Error("it lives, and is marked")
		}
	})
}

func TestABridgeThatBeginsWithAListThatIsBehind(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.away = true })
		a := w.runs("a")
		marked := a.DeepCopy()
		marked.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: verdict.ReasonTarget}}
		w.set(func() {
			w.store(marked)
			w.behind = map[string]*v1.Pod{"a": a}
		})
		r := w.begun(a)
		r.Outcome, r.Over = api.OutcomeAbandoned, true
		w.tells(&r)
		w.set(func() { w.away = false })
		time.Sleep(time.Minute)
		w.set(func() { w.behind = nil })
		time.Sleep(time.Minute)
		if w.marked("a") {
			t.Error("it lives, and is marked")
		}
	})
}

// A mark of which nobody knows, and the pod may not be read: it is let be.
func TestAMarkOfWhichNobodyMayKnow(t *testing.T) {
	during(t, func(w *world) {
		a := w.runs("a")
		time.Sleep(time.Second)
		w.set(func() { w.fault = of("patch", status(http.StatusInternalServerError)) })
		r := w.begun(a)
		time.Sleep(time.Minute)
		w.set(func() { w.fault = of("get", status(http.StatusForbidden)) })
		r.Outcome, r.Over = api.OutcomeAbandoned, true
		w.tells(&r)
	})
}

// A write was refused for long, and the agent has more to say: what is due then is tried at once.
func TestWhatIsDueAnewIsTriedAtOnce(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = of("patch", status(http.StatusInternalServerError)) })
		r := w.begun(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		w.fault = nil
		w.mu.Unlock()
		r = over(emptied(r))
		w.tells(&r)
		time.Sleep(time.Millisecond)
		if w.phase("a") != v1.PodFailed {
			t.Errorf("it is %s", w.phase("a"))
		}
	})
}

// A victim was taken for one that lives, and is dead after all; before that can be judged anew others have to be written, which takes long:
// meanwhile nobody says that it lives.
func TestWhatIsNotJudgedIsNotTold(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.takes, w.fault = taking("patch", 30*time.Second), of("patch a", status(http.StatusInternalServerError))
		})
		r := w.begun(w.runs("a"))
		time.Sleep(35 * time.Second) // its mark has failed, after long
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}
			w.store(p)
		})
		time.Sleep(maxDeniedBackoff)
		for i := range maxInFlight {
			w.evicted(w.runs(fmt.Sprint("slow", i)))
		}
		time.Sleep(10 * time.Second)
		r = over(emptied(r))
		w.tells(&r)
		time.Sleep(5 * time.Minute)
		w.set(func() { w.takes, w.fault = nil, nil })
		time.Sleep(6 * time.Minute)
		if got := is(w, w.reasons); w.phase("a") != v1.PodFailed || slices.Contains(got, "EvictionOutlived") {
			t.Errorf("it is %s, events %v", w.phase("a"), got)
		}
	})
}
