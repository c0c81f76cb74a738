package deliver

import (
	"errors"
	"fmt"
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
