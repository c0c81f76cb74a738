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
			if !strings.Contains(log, "takes too long") {
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
				if waited := w.failedIn(t, "first"); waited > time.Duration(c.pods)*turn*101/100 {
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

// A webhook asks for time for pods of one namespace, in the API's words: others wait as long as it has asked for, or for the longest pause, but
// never for good, and no more is asked than of an API that is away.
func TestAWebhookThatAsksForTime(t *testing.T) {
	for _, c := range []struct {
		took, asked time.Duration
	}{{0, 0}, {0, time.Minute}, {3 * time.Second, 0}, {3 * time.Second, time.Minute}} {
		t.Run(fmt.Sprintf("within %v, and asks for %v", c.took, c.asked), func(t *testing.T) {
			log := during(t, func(w *world) {
				const pods = 20
				fault := status(http.StatusTooManyRequests)
				if c.asked > 0 {
					fault = apierrors.NewTooManyRequests("later", int(c.asked.Seconds()))
				}
				w.set(func() { w.takes, w.fault = taking("patch bad", c.took), of("patch bad", fault) })
				for i := range pods {
					w.evicted(w.runs(fmt.Sprint("bad", i)))
				}
				time.Sleep(5 * time.Minute)
				w.set(func() { w.asked = nil })
				for i := range 10 {
					time.Sleep(47 * time.Second)
					if waited := w.failedIn(t, fmt.Sprint("job", i)); waited > lastPause+5*time.Second {
						t.Errorf("one of another namespace is failed after %v", waited)
					}
				}
				if asked := is(w, func() int { return len(w.asked) }); asked > 10*20*(maxWriting+1) {
					t.Errorf("asked %d times in ten minutes", asked)
				}
				w.set(func() { w.takes, w.fault = nil, nil })
				time.Sleep(6 * time.Minute)
				if got := is(w, func() int { return len(w.failed) }); got != pods+10 {
					t.Errorf("%d are failed", got)
				}
			})
			if n := strings.Count(log, "level=ERROR") + strings.Count(log, "level=WARN"); n > 2*20 {
				t.Errorf("%d lines", n)
			}
		})
	}
}

// An API that answers nobody is asked for one pod, and for no other until its pause is over.
func TestNobodyIsAskedForAfterOneThatHangs(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.takes, w.askedFor = taking("", time.Hour), nil })
		for _, name := range []string{"a", "b", "c"} {
			w.runs(name)
		}
		for _, name := range []string{"a", "b", "c"} {
			w.evicted(w.pods[name])
		}
		time.Sleep(11*time.Second + firstPause/4) // within which one write is given a second, and one read ten
		if got := is(w, func() []string { return slices.Clone(w.askedFor) }); !slices.Equal(got, []string{"patch a", "get a"}) {
			t.Errorf("asked for %q", got)
		}
		w.set(func() { w.takes = nil })
	})
}

// The connection of one pod's write is reset each time, as by what stands before the API: others and events do not wait for good, and nobody
// says that the API is away.
func TestOnePodWhoseWriteIsReset(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.fault = of("patch bad", errors.New("connection reset by peer")) })
		w.evicted(w.runs("bad"))
		for i := range 5 {
			if waited := w.failedIn(t, fmt.Sprint("good", i)); waited > lastPause {
				t.Errorf("another is failed after %v", waited)
			}
			time.Sleep(5 * time.Minute)
		}
		if got := is(w, func() int { return len(w.events) }); got != 12 {
			t.Errorf("%d events", got)
		}
		if asked := is(w, func() int { return len(w.asked) }); asked > 25*2*5 {
			t.Errorf("asked %d times", asked)
		}
		w.set(func() { w.fault = nil })
	})
	if strings.Contains(log, "is away") || strings.Count(log, "does not take a pod's status") != 1 {
		t.Error(log)
	}
}

// Writes hang of many pods, and of another one once took long: it has its turn among these.
func TestAPodThatWasSlowOnce(t *testing.T) {
	during(t, func(w *world) {
		spike := taking("patch good", 1500*time.Millisecond)
		w.set(func() {
			w.takes = func(what string) time.Duration { return max(taking("patch bad", 31*time.Second)(what), spike(what)) }
			w.fault = of("patch bad", status(http.StatusInternalServerError))
		})
		const bad = 40
		for i := range bad {
			w.evicted(w.runs(fmt.Sprint("bad", i)))
		}
		time.Sleep(bad * turn)
		began := time.Now()
		w.evicted(w.runs("good"))
		time.Sleep(5 * time.Second)
		w.set(func() { w.takes = taking("patch bad", 31*time.Second) })
		for w.phase("good") != v1.PodFailed && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > (bad+2*maxWriting)*31*time.Second/maxWriting {
			t.Errorf("failed after %v", took)
		}
		w.set(func() { w.takes, w.fault = nil, nil })
	})
}

// What keeps a pod waiting is said when it begins, and again when it is another thing.
func TestWhatKeepsAPodWaitingIsSaidOnce(t *testing.T) {
	log := during(t, func(w *world) {
		for range 2 {
			for _, code := range []int32{http.StatusInternalServerError, http.StatusForbidden} {
				w.set(func() { w.fault = of("patch", status(code)) })
				if len(w.records) == 0 {
					w.evicted(w.runs("a"))
				}
				time.Sleep(20 * time.Minute)
			}
		}
		w.set(func() { w.fault = nil })
	})
	for _, what := range []string{"fails to take a pod's status", "refuses what is to be told"} {
		if n := strings.Count(log, what); n != 2 {
			t.Errorf("%q is said %d times", what, n)
		}
	}
}

// A slow write is on its way when the network begins to drop all packets, for half an hour: it is told soon after that.
func TestASlowPodAfterANetworkThatDropsPackets(t *testing.T) {
	for i := range 10 {
		during(t, func(w *world) {
			time.Sleep(time.Second)
			w.set(func() { w.takes = taking("patch", time.Hour) })
			w.evicted(w.runs("a"))
			time.Sleep(2 * time.Second)
			w.set(func() { w.takes = taking("", time.Hour) })
			time.Sleep(30*time.Minute + time.Duration(i)*17*time.Second)
			w.set(func() { w.takes = nil })
			for range 60 {
				time.Sleep(time.Second)
				w.changed()
			}
			if w.phase("a") != v1.PodFailed {
				t.Errorf("it is %s", w.phase("a"))
			}
		})
	}
}

// What a webhook has asked for holds though the agent has more to say of the pod.
func TestTimeThatIsAskedForOnePod(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = of("patch", apierrors.NewTooManyRequests("later", 300)) })
		r := w.begun(w.runs("a"))
		time.Sleep(time.Second)
		w.set(func() { w.askedFor = nil })
		r = emptied(r)
		dead := r
		w.tells(&dead)
		time.Sleep(time.Second)
		r = over(r)
		w.tells(&r)
		time.Sleep(290 * time.Second)
		if asked := is(w, func() []string { return slices.Clone(w.askedFor) }); slices.Contains(asked, "patch a") {
			t.Errorf("asked for %q", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// Many pods wait for a webhook that asks for time, and nobody hurries: one that comes after them has its turn when a few have been tried at a time.
func TestAPodBehindManyThatAreNotTaken(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = of("patch bad", apierrors.NewTooManyRequests("later", 300)) })
		const bad = 40
		for i := range bad {
			w.evicted(w.runs(fmt.Sprint("bad", i)))
		}
		if waited := w.failedIn(t, "good"); waited > bad/maxVain*lastPause {
			t.Errorf("failed after %v", waited)
		}
		w.set(func() { w.fault = nil })
	})
}

// An API takes no writes, and many pods wait, of which one ends by itself: it is asked each second, for one of them.
func TestManyPodsWhileOneEndsByItself(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = of("patch", status(http.StatusServiceUnavailable)) })
		for i := range 30 {
			w.evicted(w.runs(fmt.Sprint("a", i)))
		}
		job := w.runs("job")
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		w.evicted(job)
		time.Sleep(5 * time.Minute)
		w.set(func() { w.asked = nil })
		time.Sleep(10 * time.Minute)
		if asked := is(w, func() int { return len(w.asked) }); asked > 2*600*2 { // a read and a write, after a pause between its half and itself
			t.Errorf("asked %d times in ten minutes", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// What keeps a pod waiting is said again where it was written meanwhile.
func TestWhatKeepsAPodWaitingIsSaidAgain(t *testing.T) {
	log := during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = of("patch", status(http.StatusInternalServerError)) })
		r := w.begun(w.runs("a"))
		time.Sleep(time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(time.Minute)
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Conditions = nil // as kube-controller-manager takes the mark back
			w.store(p)
			w.fault = of("patch", status(http.StatusInternalServerError))
		})
		time.Sleep(time.Minute)
		w.set(func() { w.fault = nil })
		r = over(emptied(r))
		w.tells(&r)
	})
	if n := strings.Count(log, "fails to take a pod's status"); n != 2 {
		t.Errorf("said %d times: %s", n, log)
	}
}
