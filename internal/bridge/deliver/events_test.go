package deliver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventFault has events, or those of some pods, fail.
func (w *world) eventFault(of string, fault func() error) {
	w.set(func() {
		w.fault = func(what string) error {
			if strings.HasPrefix(what, "event "+of) {
				return fault()
			}
			return nil
		}
	})
}

// An API that takes no events is asked less and less often, also where there is nothing else to tell, and that is said once; statuses do not
// wait for what it asks of events.
func TestAnAPIThatTakesNoEvents(t *testing.T) {
	for name, fault := range map[string]error{
		"refuses connections": context.Canceled, "is not ready": status(503), "asks for a second": apierrors.NewTooManyRequests("later", 1),
		"asks for five minutes": apierrors.NewTooManyRequests("later", 300),
	} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", events alone ", alone), func(t *testing.T) {
				log := during(t, func(w *world) {
					w.set(func() { w.alone = alone })
					w.eventFault("", func() error { return fault })
					const pods = 20
					for i := range pods {
						w.evicted(w.runs(fmt.Sprint("a", i)))
					}
					time.Sleep(5 * time.Minute)
					w.set(func() { w.asked = nil })
					time.Sleep(10 * time.Minute)
					if asked := is(w, func() int { return len(w.asked) }); asked > 45 {
						t.Errorf("it is asked %d times in ten minutes", asked)
					}
					if !alone {
						if waited := w.failedIn(t, "b"); waited > time.Second {
							t.Errorf("a status waits for %v", waited)
						}
					}
					w.set(func() { w.fault = nil })
					time.Sleep(10 * time.Minute)
					if got := is(w, func() int { return len(w.events) }); got < 2*pods {
						t.Errorf("%d events", got)
					}
				})
				if strings.Count(log, "accepts no events") != 1 || strings.Count(log, "accepts events again") != 1 || strings.Contains(log, "API server unreachable") {
					t.Error(log)
				}
			})
		}
	}
}

// Events of some pods are not answered, or an API has a limit for one namespace: those of others do not wait until these are given up.
func TestEventsOfOthers(t *testing.T) {
	for name, fault := range map[string]func() error{
		"not answered": func() error { time.Sleep(40 * time.Second); return context.DeadlineExceeded },
		"limited":      func() error { return apierrors.NewTooManyRequests("later", 10) },
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.eventFault("bad", fault)
				for i := range 10 {
					w.evicted(w.runs(fmt.Sprint("bad", i)))
				}
				w.evicted(w.runs("good"))
				of := func(pod string) (reasons []string) {
					for _, e := range w.events {
						if strings.HasPrefix(e.Name, pod+".") || e.InvolvedObject.Kind == "Node" && strings.HasSuffix(e.Name, strings.ToLower(w.records[10].ID)) {
							reasons = append(reasons, e.Reason)
						}
					}
					slices.Sort(reasons)
					return slices.Compact(reasons)
				}
				time.Sleep(10 * time.Minute)
				if got := is(w, func() []string { return of("good") }); !slices.Equal(got, []string{"Evicted", "EvictionThresholdMet"}) {
					t.Errorf("after ten minutes it has %v", got)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(10 * time.Minute)
				if got, want := is(w, func() int { return len(w.events) }), 22; got != want {
					t.Errorf("%d events, want %d", got, want)
				}
			})
		})
	}
}

// What comes to be due while a pass waits for another pod is done after it, whatever else wakes the loop.
func TestDueWithinAPass(t *testing.T) {
	for range 20 { // in which the loop hears first of the one or the other
		during(t, func(w *world) {
			first := true
			w.set(func() {
				w.fault = func(what string) error {
					if what == "patch a" && first {
						first = false
						return status(500)
					}
					return nil
				}
				w.takes = func(what string) time.Duration {
					if what == "patch b" || strings.HasPrefix(what, "event ") {
						return 30 * time.Second
					}
					return 0
				}
			})
			a, b := w.runs("a"), w.runs("b")
			w.evicted(a)
			time.Sleep(100 * time.Millisecond)
			w.evicted(b)
			time.Sleep(5 * time.Second)
			if failed := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(failed, "a") {
				t.Errorf("failed %v", failed)
			}
			w.set(func() { w.takes = nil })
		})
	}
}

// An API that asked for a second before it went is asked when the watch is back, however long the pause had become.
func TestAWatchThatIsBackAfterItWasAskedForTime(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return apierrors.NewTooManyRequests("later", 1) } })
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		w.changed()
		time.Sleep(2 * time.Second)
		if failed := is(w, func() []string { return slices.Clone(w.failed) }); len(failed) != 1 {
			t.Errorf("failed %v", failed)
		}
	})
}

// A network that drops packets for half an hour: events that were tried meanwhile are there a minute after it.
func TestEventsAfterANetworkThatDropsPackets(t *testing.T) {
	for _, alone := range []bool{false, true} {
		for i := range 40 {
			during(t, func(w *world) {
				w.set(func() { w.alone = alone })
				time.Sleep(time.Second)
				w.set(func() { w.takes = taking("event ", time.Hour) })
				w.evicted(w.runs("a"))
				time.Sleep(time.Second)
				w.mu.Lock() // of which nobody hears
				w.takes = taking("", time.Hour)
				w.mu.Unlock()
				time.Sleep(30*time.Minute + time.Duration(i)*6700*time.Millisecond)
				w.mu.Lock()
				w.takes = nil
				w.mu.Unlock()
				time.Sleep(time.Minute)
				if got := is(w, func() int { return len(w.events) }); got != 2 {
					t.Errorf("events alone %v: %d events", alone, got)
				}
			})
		}
	}
}

// What an API asks for one event holds for that one, and what it asks for all for all.
func TestTimeThatIsAskedForEvents(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		all   bool
	}{
		"one": {apierrors.NewGenericServerResponse(500, "post", schema.GroupResource{Resource: "events"}, "a", "", 300, false), false},
		"all": {apierrors.NewTooManyRequests("later", 300), true},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() {
					w.fault = func(what string) error {
						if !strings.HasPrefix(what, "event a.") && !(c.all && strings.HasPrefix(what, "event ")) {
							return nil
						}
						return c.fault
					}
				})
				w.evicted(w.runs("a"))
				w.evicted(w.runs("b"))
				time.Sleep(290 * time.Second)
				got := slices.DeleteFunc(is(w, func() []string { return slices.Clone(w.askedFor) }), func(what string) bool {
					return !strings.HasPrefix(what, "event ")
				})
				if want := map[bool]int{true: 1, false: 3}[c.all]; len(got) != want {
					t.Errorf("asked for %q, want %d", got, want)
				}
				w.set(func() { w.fault = nil })
			})
		})
	}
}

// An API that took no events for long, and takes them again: when it takes none once more, it is asked soon.
func TestAnAPIThatTakesEventsNowAndThen(t *testing.T) {
	during(t, func(w *world) {
		w.eventFault("", func() error { return status(503) })
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(2 * maxBackoff)
		w.eventFault("", func() error { return status(503) })
		w.evicted(w.runs("b"))
		time.Sleep(10 * time.Millisecond)
		w.set(func() { w.fault = nil })
		time.Sleep(4 * minBackoff)
		if got := is(w, func() int { return len(w.events) }); got != 4 {
			t.Errorf("%d events", got)
		}
	})
}

// Where a network dropped packets, events take half a minute each from then on, by a webhook: they are waited for as if it had not.
func TestEventsThatTakeLongAfterAnOutage(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.alone = true })
		time.Sleep(time.Second)
		w.set(func() { w.takes = taking("", time.Hour) })
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.takes = taking("event ", 30*time.Second) })
		time.Sleep(5 * time.Minute)
		if got := is(w, func() int { return len(w.events) }); got != 2 {
			t.Errorf("%d events", got)
		}
		w.set(func() { w.takes = nil })
	})
}
