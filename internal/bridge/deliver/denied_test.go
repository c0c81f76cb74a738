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
		time.Sleep(maxBackoff)
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
						time.Sleep(40 * time.Second)
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
			if !strings.Contains(log, "timed out, retrying") {
				t.Error(log)
			}
		})
	}
}

// failedIn is how long it takes until a pod that is evicted now is Failed.
func (w *world) failedIn(t *testing.T, name string) time.Duration {
	t.Helper()
	began := time.Now()
	w.evicted(w.runs(name))
	for !slices.Contains(is(w, func() []string { return slices.Clone(w.failed) }), name) {
		if time.Sleep(10*time.Millisecond + time.Since(began)/200); time.Since(began) > time.Hour {
			t.Fatalf("%s is not failed", name)
		}
	}
	return time.Since(began)
}

// Events are not answered, as where those that keep them are away or a webhook hangs: no status waits for that, and when they are taken each
// is there.
func TestEventsThatAreNotAnswered(t *testing.T) {
	for name, took := range map[string]time.Duration{"ever": time.Hour, "for as long as a webhook may take": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() {
					w.takes = func(what string) time.Duration {
						if strings.HasPrefix(what, "event ") {
							return took
						}
						return 0
					}
				})
				for i := range 25 {
					w.evicted(w.runs(fmt.Sprint("p", i)))
				}
				for i := range 10 {
					time.Sleep(97 * time.Second)
					if waited := w.failedIn(t, fmt.Sprint("job", i)); waited > time.Second {
						t.Errorf("a pod is failed after %v", waited)
					}
				}
				if asked := is(w, func() int { return len(w.asked) }); asked > 200 {
					t.Errorf("%d requests in a quarter of an hour", asked)
				}
				if sent := is(w, func() int { return len(w.events) }); (sent >= 10) != (took <= 40*time.Second) {
					t.Errorf("%d events by then", sent)
				}
				w.set(func() { w.takes = nil })
				time.Sleep(15 * time.Minute)
				if is, want := is(w, func() int { return len(w.events) }), 2*35; is != want {
					t.Errorf("%d events, want %d", is, want)
				}
			})
		})
	}
}

// Writes of many pods take as long as a webhook may, which lets them, or fails then: pods of other namespaces wait a second at most for each
// that is new, and all are failed in the end.
func TestManyPodsThatTakeLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails bool
		pods  int
	}{{"some", false, 10}, {"some that fail", true, 10}, {"more than may be on their way", true, 100}} {
		t.Run(c.name, func(t *testing.T) {
			during(t, func(w *world) {
				slow := func(what string) bool { return strings.HasPrefix(what, "patch slow") }
				w.set(func() {
					w.takes = func(what string) time.Duration {
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
					w.evicted(w.runs(fmt.Sprint("slow", i)))
				}
				if waited := w.failedIn(t, "first"); waited > time.Duration(c.pods)*writeWait*101/100 {
					t.Errorf("the first of another namespace is failed after %v", waited)
				}
				for i := range 10 {
					time.Sleep(31 * time.Second)
					if waited := w.failedIn(t, fmt.Sprint("job", i)); waited > time.Second {
						t.Errorf("one of another namespace is failed after %v", waited)
					}
				}
				w.set(func() { w.asked = nil })
				time.Sleep(time.Hour)
				if asked := is(w, func() int { return len(w.asked) }); asked > 25*c.pods+100 {
					t.Errorf("%d requests in an hour", asked)
				}
				w.set(func() { w.takes, w.fault = nil, nil })
				time.Sleep(6 * time.Minute)
				if most := is(w, func() int { return w.most }); most > 8 {
					t.Errorf("%d requests at once", most)
				}
				if is := is(w, func() int { return len(w.failed) }); is != c.pods+11 {
					t.Errorf("%d of %d are failed", is, c.pods+11)
				}
			})
		})
	}
}

// A pod whose write took long, and failed, is changed by others all the time since, or was replaced while the watch hangs: it is not asked for
// without a pause.
func TestASlowPodThatIsAlwaysAnother(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprint("replaced ", replaced), func(t *testing.T) {
			during(t, func(w *world) {
				a := w.runs("a")
				w.set(func() {
					w.takes, w.fault = taking("patch a", 2*time.Second), of("patch a", status(http.StatusInternalServerError))
				})
				w.evicted(a)
				time.Sleep(2100 * time.Millisecond)
				w.set(func() {
					w.takes, w.fault = taking("", 20*time.Millisecond), of("patch a", status(http.StatusConflict))
					if replaced {
						other := a.DeepCopy()
						other.UID = "another"
						w.behind, w.fault = map[string]*v1.Pod{"a": a}, nil
						w.store(other)
					}
					w.asked = nil
				})
				time.Sleep(5 * time.Minute)
				if asked := is(w, func() int { return len(w.asked) }); asked > 60 {
					t.Errorf("asked %d times in five minutes", asked)
				}
				w.set(func() { w.takes, w.fault, w.behind = nil, nil, nil })
			})
		})
	}
}
