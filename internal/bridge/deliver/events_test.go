package deliver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventFault makes events fail, or those of pods that start with prefix of.
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

// While the API server accepts no events, the bridge backs off, also if nothing else is due, and
// logs it once. Statuses do not wait for the Retry-After of events.
func TestServerAcceptsNoEvents(t *testing.T) {
	for name, fault := range map[string]error{
		"refuses connections": context.Canceled, "is not ready": status(503), "asks for a second": apierrors.NewTooManyRequests("later", 1),
		"asks for five minutes": apierrors.NewTooManyRequests("later", 300),
	} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", events alone ", alone), func(t *testing.T) {
				log := during(t, func(w *world) {
					w.set(func() { w.eventsOnly = alone })
					w.eventFault("", func() error { return fault })
					const pods = 20
					for i := range pods {
						w.addEviction(w.addPod(fmt.Sprint("a", i)))
					}
					time.Sleep(5 * time.Minute)
					w.set(func() { w.requestTimes = nil })
					time.Sleep(10 * time.Minute)
					if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 45 {
						t.Errorf("%d requests in ten minutes, want at most 45", asked)
					}
					if !alone {
						if waited := w.timeToFail(t, "b"); waited > time.Second {
							t.Errorf("pod Failed after %v, want within a second", waited)
						}
					}
					w.set(func() { w.fault = nil })
					time.Sleep(10 * time.Minute)
					if got := inspect(w, func() int { return len(w.events) }); got < 2*pods {
						t.Errorf("%d events sent, want at least two per pod", got)
					}
				})
				if strings.Count(log, "accepts no events") != 1 || strings.Count(log, "accepts events again") != 1 || strings.Contains(log, "API server unreachable") {
					t.Errorf("want one log line for the failure, one for the recovery, none for statuses:\n%s", log)
				}
			})
		}
	}
}

// While events of some pods time out or are rate limited, events of other pods do not wait for
// them.
func TestFailingEventsDoNotDelayOthers(t *testing.T) {
	for name, fault := range map[string]func() error{
		"not answered": func() error { time.Sleep(40 * time.Second); return context.DeadlineExceeded },
		"limited":      func() error { return apierrors.NewTooManyRequests("later", 10) },
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.eventFault("bad", fault)
				for i := range 10 {
					w.addEviction(w.addPod(fmt.Sprint("bad", i)))
				}
				w.addEviction(w.addPod("good"))
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
				if got := inspect(w, func() []string { return of("good") }); !slices.Equal(got, []string{"Evicted", "EvictionThresholdMet"}) {
					t.Errorf("events of pod good after ten minutes: %v, want both", got)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(10 * time.Minute)
				if got, want := inspect(w, func() int { return len(w.events) }), 22; got != want {
					t.Errorf("%d events sent in total, want %d", got, want)
				}
			})
		})
	}
}

// Events of many pods of one namespace are rejected in any way, for example by a webhook of the
// tenant, and so are those of another pod for a while: its events do not wait for them, and those of
// the node are sent.
func TestEventsBehindManyRejectedOnes(t *testing.T) {
	for name, fault := range map[string]func() error{
		"not answered": func() error { time.Sleep(40 * time.Second); return context.DeadlineExceeded },
		"reset":        func() error { return errors.New("connection reset by peer") },
		"limited":      func() error { return status(http.StatusTooManyRequests) },
		"denied":       func() error { return status(http.StatusForbidden) },
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				const bad = 400
				outage := true
				w.set(func() {
					w.fault = func(what string) error {
						switch {
						case strings.HasPrefix(what, "event bad"):
							return fault()
						case strings.HasPrefix(what, "event good") && outage:
							return status(http.StatusInternalServerError)
						}
						return nil
					}
				})
				for i := range bad {
					p := w.addPod(fmt.Sprint("bad", i))
					w.set(func() { p.Namespace = "tenant" })
					w.addEviction(p)
				}
				w.addEviction(w.addPod("good"))
				time.Sleep(5 * time.Minute)
				w.set(func() { outage = false })
				time.Sleep(54 * time.Minute)
				good, onNode := 0, 0
				for key, e := range inspect(w, func() map[string]*v1.Event { return maps.Clone(w.events) }) {
					if strings.HasPrefix(key, "shop/good.") {
						good++
					}
					if e.InvolvedObject.Kind == "Node" {
						onNode++
					}
				}
				if good != 1 || onNode != bad+1 {
					t.Errorf("after an hour %d events of the other pod and %d of the node are sent, want 1 and %d", good, onNode, bad+1)
				}
				w.set(func() { w.fault = nil })
			})
		})
	}
}

// Work that becomes due while a pass waits for another pod is done after the pass, whichever event
// wakes the loop.
func TestWorkDueDuringAPass(t *testing.T) {
	for range 20 { // the order in which the loop receives the two differs
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
				w.latency = func(what string) time.Duration {
					if what == "patch b" || strings.HasPrefix(what, "event ") {
						return 30 * time.Second
					}
					return 0
				}
			})
			a, b := w.addPod("a"), w.addPod("b")
			w.addEviction(a)
			time.Sleep(100 * time.Millisecond)
			w.addEviction(b)
			time.Sleep(5 * time.Second)
			if failed := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(failed, "a") {
				t.Errorf("pods set to Failed: %v, want a among them", failed)
			}
			w.set(func() { w.latency = nil })
		})
	}
}

// An API server that asked for a second before an outage is retried when the watch recovers,
// however long the backoff is.
func TestWatchRecoversAfterRetryAfter(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return apierrors.NewTooManyRequests("later", 1) } })
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		w.changed()
		time.Sleep(2 * time.Second)
		if failed := inspect(w, func() []string { return slices.Clone(w.failed) }); len(failed) != 1 {
			t.Errorf("pods set to Failed: %v, want one", failed)
		}
	})
}

// After half an hour in which the network drops packets, events that were tried meanwhile are sent
// within a minute.
func TestEventsAfterPacketLoss(t *testing.T) {
	for _, alone := range []bool{false, true} {
		for i := range 40 {
			during(t, func(w *world) {
				w.set(func() { w.eventsOnly = alone })
				time.Sleep(time.Second)
				w.set(func() { w.latency = latencyOf("event ", time.Hour) })
				w.addEviction(w.addPod("a"))
				time.Sleep(time.Second)
				w.mu.Lock() // without a notification
				w.latency = latencyOf("", time.Hour)
				w.mu.Unlock()
				time.Sleep(30*time.Minute + time.Duration(i)*6700*time.Millisecond)
				w.mu.Lock()
				w.latency = nil
				w.mu.Unlock()
				time.Sleep(time.Minute)
				if got := inspect(w, func() int { return len(w.events) }); got != 2 {
					t.Errorf("events only %v: %d events sent, want 2", alone, got)
				}
			})
		}
	}
}

// The Retry-After of one event applies to that event, that of the server to all.
func TestRetryAfterOfEvents(t *testing.T) {
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
				w.addEviction(w.addPod("a"))
				w.addEviction(w.addPod("b"))
				time.Sleep(290 * time.Second)
				got := slices.DeleteFunc(inspect(w, func() []string { return slices.Clone(w.requestNames) }), func(what string) bool {
					return !strings.HasPrefix(what, "event ")
				})
				if want := map[bool]int{true: 1, false: 4}[c.all]; len(got) != want {
					t.Errorf("requests %q, want %d events", got, want)
				}
				w.set(func() { w.fault = nil })
			})
		})
	}
}

// After the server accepts events again, a further failure starts with a short backoff.
func TestEventBackoffResets(t *testing.T) {
	during(t, func(w *world) {
		w.eventFault("", func() error { return status(503) })
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(2 * maxBackoff)
		w.eventFault("", func() error { return status(503) })
		w.addEviction(w.addPod("b"))
		time.Sleep(10 * time.Millisecond)
		w.set(func() { w.fault = nil })
		time.Sleep(4 * minBackoff)
		if got := inspect(w, func() int { return len(w.events) }); got != 4 {
			t.Errorf("%d events sent, want 4", got)
		}
	})
}

// Events that a webhook delays by half a minute after a network outage are waited for as usual.
func TestSlowEventsAfterAnOutage(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.eventsOnly = true })
		time.Sleep(time.Second)
		w.set(func() { w.latency = latencyOf("", time.Hour) })
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.latency = latencyOf("event ", 30*time.Second) })
		time.Sleep(5 * time.Minute)
		if got := inspect(w, func() int { return len(w.events) }); got != 2 {
			t.Errorf("%d events sent, want 2", got)
		}
		w.set(func() { w.latency = nil })
	})
}
