package deliver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
					if waited := w.failedIn(t, fmt.Sprint("job", i)); waited > maxBackoff+5*time.Second {
						t.Errorf("one of another namespace is failed after %v", waited)
					}
				}
				if asked := is(w, func() int { return len(w.asked) }); asked > 10*20*(maxInFlight+1) {
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
		time.Sleep(11*time.Second + minBackoff/4) // within which one write is given a second, and one read ten
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
			if waited := w.failedIn(t, fmt.Sprint("good", i)); waited > maxBackoff {
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
	if strings.Contains(log, "API server unreachable") || strings.Count(log, "pod status write rejected") != 1 {
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
		time.Sleep(bad * writeWait)
		began := time.Now()
		w.evicted(w.runs("good"))
		time.Sleep(5 * time.Second)
		w.set(func() { w.takes = taking("patch bad", 31*time.Second) })
		for w.phase("good") != v1.PodFailed && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > (bad+2*maxInFlight)*31*time.Second/maxInFlight {
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
	for _, what := range []string{"pod status request failed", "pod status request denied"} {
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
		if waited := w.failedIn(t, "good"); waited > bad/maxRejected*maxBackoff {
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
	if n := strings.Count(log, "pod status request failed"); n != 2 {
		t.Errorf("said %d times: %s", n, log)
	}
}

// A pod that was not taken, and one that took long, are as any other when they have been written.
func TestAPodThatIsTakenInTheEnd(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() {
			w.takes, w.fault = taking("patch slow", 2*time.Second), of("patch vain", status(http.StatusServiceUnavailable))
		})
		slow := w.begun(w.runs("slow"))
		time.Sleep(5 * time.Second) // for an ID of its own
		vain := w.begun(w.runs("vain"))
		time.Sleep(10 * time.Second)
		w.set(func() { w.takes, w.fault = nil, nil })
		time.Sleep(time.Minute) // both are marked
		w.set(func() { w.takes = taking("patch hung", time.Hour) })
		for i := range maxInFlight {
			w.evicted(w.runs(fmt.Sprint("hung", i)))
		}
		time.Sleep(10 * time.Second)
		slow = over(emptied(slow))
		w.tells(&slow)
		time.Sleep(10 * time.Millisecond)
		if w.phase("slow") != v1.PodFailed {
			t.Errorf("it waits for those that hang: %s", w.phase("slow"))
		}
		w.set(func() { w.takes = nil })
		time.Sleep(10 * time.Minute)
		w.set(func() { w.failed, w.fault = nil, func(string) error { return errors.New("connection refused") } })
		vain = over(emptied(vain))
		w.tells(&vain)
		w.evicted(w.runs("after"))
		time.Sleep(time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(time.Minute)
		if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"vain", "after"}) {
			t.Errorf("failed in the order %v", got)
		}
	})
}
