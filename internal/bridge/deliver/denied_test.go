package deliver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Failing requests for one pod do not delay other pods, and succeed as soon as the server accepts
// them.
func TestFailingPodDoesNotDelayOthers(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.fault = func(what string) error {
				if what == "patch a" {
					return status(http.StatusInternalServerError)
				}
				return nil
			}
		})
		w.addEviction(w.addPod("a"))
		w.addEviction(w.addPod("b"))
		time.Sleep(time.Second)
		if got := inspect(w, func() []string { return w.failed }); !slices.Equal(got, []string{"b"}) {
			t.Errorf("pods set to Failed: %v, want b only", got)
		}
		w.set(func() { w.fault = nil })
		time.Sleep(maxBackoff)
		if got := inspect(w, func() []string { return w.failed }); !slices.Equal(got, []string{"b", "a"}) {
			t.Errorf("pods set to Failed: %v, want a too", got)
		}
	})
}

// Requests for one pod or its event that fail or are denied do not delay other pods, and are
// retried with backoff.
func TestServerErrorForOnePod(t *testing.T) {
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
				a := w.addPod("a")
				if strings.HasPrefix(c.what, "get") {
					w.set(func() { delete(w.pods, "a") }) // from the copy
				}
				w.addEviction(a)
				w.addEviction(w.addPod("b"))
				time.Sleep(time.Second)
				failed := inspect(w, func() []string { return slices.Clone(w.failed) })
				_, sent := inspect(w, func() map[string]*v1.Event { return w.events })["shop/b."+strings.ToLower(w.records[1].ID)]
				if !slices.Contains(failed, "b") || !sent {
					t.Errorf("pods set to Failed: %v, events %v, want those of b", failed, inspect(w, w.reasons))
				}
				time.Sleep(10 * time.Minute)
				if n := inspect(w, func() int { return n }); n < 3 || n > 45 {
					t.Errorf("%d requests in ten minutes, want 3 to 45", n)
				}
				w.set(func() { w.fault = nil })
			})
		})
	}
}

// A request that is denied for a missing role is retried later.
func TestMissingRole(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.fault = func(what string) error {
				if strings.HasPrefix(what, "get ") {
					return status(http.StatusForbidden)
				}
				return nil
			}
		})
		w.addEviction(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gone", UID: "u"}})
		time.Sleep(100 * time.Millisecond)
		if n := inspect(w, func() int { return len(w.requestTimes) }); n > 2 { // including the version request
			t.Errorf("%d requests immediately, want at most 2", n)
		}
		w.set(func() { w.fault = nil })
	})
}

// Writes of one pod, or of its event, time out while the server serves other requests. Other pods
// do not wait, and the writes are retried with backoff.
func TestTimeoutOfOnePod(t *testing.T) {
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
						time.Sleep(40 * time.Second)
						return fmt.Errorf("patch pods/status: %w", context.DeadlineExceeded) // as kube.Client
					}
				})
				for _, name := range []string{"a", "b", "c"} {
					w.addEviction(w.addPod(name))
				}
				time.Sleep(15 * time.Second)
				if got := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(got, "b") || !slices.Contains(got, "c") {
					t.Errorf("pods set to Failed after 15 s: %v, want b and c", got)
				}
				time.Sleep(time.Hour)
				if got, want := inspect(w, func() int { return w.created }), 4; got < want {
					t.Errorf("%d events sent, want those of the others", got)
				}
				if got := inspect(w, func() int { return tries }); got < 5 || got > 30 {
					t.Errorf("%d tries in an hour, want 5 to 30", got)
				}
				w.addEviction(w.addPod("d"))
				time.Sleep(30 * time.Second)
				if got := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(got, "d") {
					t.Errorf("pods set to Failed: %v, want d too", got)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(6 * time.Minute)
				if got := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Contains(got, "a") {
					t.Errorf("pods set to Failed: %v, want a too", got)
				}
			})
			if !strings.Contains(log, "timed out, retrying") {
				t.Errorf("want a timeout in the log:\n%s", log)
			}
		})
	}
}

// timeToFail evicts a new pod and returns how long it takes until it is Failed.
func (w *world) timeToFail(t *testing.T, name string) time.Duration {
	t.Helper()
	began := time.Now()
	w.addEviction(w.addPod(name))
	for !slices.Contains(inspect(w, func() []string { return slices.Clone(w.failed) }), name) {
		if time.Sleep(10*time.Millisecond + time.Since(began)/200); time.Since(began) > time.Hour {
			t.Fatalf("pod %s is not Failed after an hour", name)
		}
	}
	return time.Since(began)
}

// Events time out, for example because of a webhook: statuses do not wait for them, and all are
// sent in the end.
func TestEventTimeouts(t *testing.T) {
	for name, took := range map[string]time.Duration{"ever": time.Hour, "for as long as a webhook may take": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() {
					w.latency = func(what string) time.Duration {
						if strings.HasPrefix(what, "event ") {
							return took
						}
						return 0
					}
				})
				for i := range 25 {
					w.addEviction(w.addPod(fmt.Sprint("p", i)))
				}
				for i := range 10 {
					time.Sleep(97 * time.Second)
					if waited := w.timeToFail(t, fmt.Sprint("job", i)); waited > time.Second {
						t.Errorf("pod set to Failed after %v, want within a second", waited)
					}
				}
				if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 200 {
					t.Errorf("%d requests in a quarter of an hour, want at most 200", asked)
				}
				if sent := inspect(w, func() int { return len(w.events) }); (sent >= 10) != (took <= 40*time.Second) {
					t.Errorf("%d events sent before the recovery", sent)
				}
				w.set(func() { w.latency = nil })
				time.Sleep(15 * time.Minute)
				if is, want := inspect(w, func() int { return len(w.events) }), 2*35; is != want {
					t.Errorf("%d events sent, want %d", is, want)
				}
			})
		})
	}
}

// Writes of many pods are delayed by a webhook and then succeed or fail. Each new one delays pods
// of other namespaces by at most a second, and all are set to Failed in the end.
func TestManySlowWrites(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails bool
		pods  int
	}{{"some", false, 10}, {"some that fail", true, 10}, {"more than may be on their way", true, 100}} {
		t.Run(c.name, func(t *testing.T) {
			during(t, func(w *world) {
				slow := func(what string) bool { return strings.HasPrefix(what, "patch slow") }
				w.set(func() {
					w.latency = func(what string) time.Duration {
						if slow(what) {
							return 30 * time.Second
						}
						return 0
					}
					w.fault = func(what string) error {
						if c.fails && slow(what) {
							return status(http.StatusInternalServerError)
						}
						return nil
					}
				})
				for i := range c.pods {
					w.addEviction(w.addPod(fmt.Sprint("slow", i)))
				}
				if waited := w.timeToFail(t, "first"); waited > time.Duration(c.pods)*writeWait*101/100 {
					t.Errorf("first pod of another namespace Failed after %v, want sooner", waited)
				}
				for i := range 10 {
					time.Sleep(31 * time.Second)
					if waited := w.timeToFail(t, fmt.Sprint("job", i)); waited > time.Second {
						t.Errorf("pod of another namespace Failed after %v, want within a second", waited)
					}
				}
				w.set(func() { w.requestTimes = nil })
				time.Sleep(time.Hour)
				if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 25*c.pods+100 {
					t.Errorf("%d requests in an hour, want fewer", asked)
				}
				w.set(func() { w.latency, w.fault = nil, nil })
				time.Sleep(6 * time.Minute)
				if most := inspect(w, func() int { return w.peak }); most > 8 {
					t.Errorf("%d requests at the same time, want at most 8", most)
				}
				if is := inspect(w, func() int { return len(w.failed) }); is != c.pods+11 {
					t.Errorf("%d pods set to Failed, want %d", is, c.pods+11)
				}
			})
		})
	}
}

// A pod with a slow, failed write is changed by others all the time, or was replaced while the
// watch hangs: the bridge backs off.
func TestSlowPodThatKeepsChanging(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprint("replaced ", replaced), func(t *testing.T) {
			during(t, func(w *world) {
				a := w.addPod("a")
				w.set(func() {
					w.latency, w.fault = latencyOf("patch a", 2*time.Second), faultOf("patch a", status(http.StatusInternalServerError))
				})
				w.addEviction(a)
				time.Sleep(2100 * time.Millisecond)
				w.set(func() {
					w.latency, w.fault = latencyOf("", 20*time.Millisecond), faultOf("patch a", status(http.StatusConflict))
					if replaced {
						other := a.DeepCopy()
						other.UID = "another"
						w.watchedPods, w.fault = map[string]*v1.Pod{"a": a}, nil
						w.storePod(other)
					}
					w.requestTimes = nil
				})
				time.Sleep(5 * time.Minute)
				if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 60 {
					t.Errorf("%d requests in five minutes, want at most 60", asked)
				}
				w.set(func() { w.latency, w.fault, w.watchedPods = nil, nil, nil })
			})
		})
	}
}
