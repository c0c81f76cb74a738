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

	"jettison/internal/bridge/verdict"
)

// A webhook answers with Retry-After for pods of one namespace: other pods wait at most for the
// longest backoff, and the rate of requests stays that of an unreachable server.
func TestRetryAfterOfAWebhook(t *testing.T) {
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
				w.set(func() { w.latency, w.fault = latencyOf("patch bad", c.took), faultOf("patch bad", fault) })
				for i := range pods {
					w.addEviction(w.addPod(fmt.Sprint("bad", i)))
				}
				time.Sleep(5 * time.Minute)
				w.set(func() { w.requestTimes = nil })
				for i := range 10 {
					time.Sleep(47 * time.Second)
					if waited := w.timeToFail(t, fmt.Sprint("job", i)); waited > maxBackoff+5*time.Second {
						t.Errorf("pod of another namespace Failed after %v, want sooner", waited)
					}
				}
				if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 10*20*(maxInFlight+1) {
					t.Errorf("%d requests in ten minutes, want fewer", asked)
				}
				w.set(func() { w.latency, w.fault = nil, nil })
				time.Sleep(6 * time.Minute)
				if got := inspect(w, func() int { return len(w.failed) }); got != pods+10 {
					t.Errorf("%d pods set to Failed, want all", got)
				}
			})
			if n := strings.Count(log, "level=ERROR") + strings.Count(log, "level=WARN"); n > 2*20 {
				t.Errorf("%d warnings and errors in the log, want at most 40", n)
			}
		})
	}
}

// While the API server does not respond, the bridge makes requests for one pod only, until its
// backoff has passed.
func TestHangingServerGetsOneRequest(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.latency, w.requestNames = latencyOf("", time.Hour), nil })
		for _, name := range []string{"a", "b", "c"} {
			w.addPod(name)
		}
		for _, name := range []string{"a", "b", "c"} {
			w.addEviction(w.pods[name])
		}
		time.Sleep(11*time.Second + minBackoff/4) // one write waits for a second, one read for ten
		if got := inspect(w, func() []string { return slices.Clone(w.requestNames) }); !slices.Equal(got, []string{"patch a", "get node"}) {
			t.Errorf("requests %q, want patch a and get node", got)
		}
		w.set(func() { w.latency = nil })
	})
}

// The connection of one pod's write is reset each time, for example by a proxy: other pods and
// events are delivered, and the server is not reported as unreachable.
func TestConnectionResetForOnePod(t *testing.T) {
	log := during(t, func(w *world) {
		w.set(func() { w.fault = faultOf("patch bad", errors.New("connection reset by peer")) })
		w.addEviction(w.addPod("bad"))
		for i := range 5 {
			if waited := w.timeToFail(t, fmt.Sprint("good", i)); waited > maxBackoff {
				t.Errorf("other pod Failed after %v, want within the longest backoff", waited)
			}
			time.Sleep(5 * time.Minute)
		}
		if got := inspect(w, func() int { return len(w.events) }); got != 12 {
			t.Errorf("%d events sent, want 12", got)
		}
		if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 25*2*5 {
			t.Errorf("%d requests sent, want fewer", asked)
		}
		w.set(func() { w.fault = nil })
	})
	if strings.Contains(log, "API server unreachable") || strings.Count(log, "pod status write rejected") != 1 {
		t.Errorf("want one log line for the rejection and none for an outage:\n%s", log)
	}
}

// The connection of each read of one pod is reset, or of all its requests, while the watch lacks the
// pods: other pods and events are delivered, and the server is not reported as unreachable.
func TestConnectionResetForReadsOfOnePod(t *testing.T) {
	for name, prefixes := range map[string][]string{"reads": {"get bad"}, "all requests": {"get bad", "patch bad"}} {
		t.Run(name, func(t *testing.T) {
			log := during(t, func(w *world) {
				w.set(func() {
					w.watchedPods = map[string]*v1.Pod{}
					w.fault = func(what string) error {
						if slices.Contains(prefixes, what) {
							return errors.New("connection reset by peer")
						}
						return nil
					}
				})
				w.addEviction(w.addPod("bad"))
				for i := range 5 {
					if waited := w.timeToFail(t, fmt.Sprint("good", i)); waited > time.Second {
						t.Errorf("other pod Failed after %v, want within a second", waited)
					}
					time.Sleep(5 * time.Minute)
				}
				if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 25*2*5 {
					t.Errorf("%d requests sent, want fewer", asked)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(time.Minute)
				if w.phase("bad") != v1.PodFailed {
					t.Errorf("pod bad is %s after the resets, want Failed", w.phase("bad"))
				}
			})
			if strings.Contains(log, "API server unreachable") || strings.Count(log, "pod status request failed,") != 1 {
				t.Errorf("want one log line for the failed read and none for an outage:\n%s", log)
			}
		})
	}
}

// A write conflicts, or its result is unknown, and each read of the pod is reset: other pods do not
// wait.
func TestReadAfterAWriteIsReset(t *testing.T) {
	for name, slow := range map[string]time.Duration{"fast": 0, "slow": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			log := during(t, func(w *world) {
				bad := w.addPod("bad")
				w.set(func() {
					next := bad.DeepCopy()
					w.storePod(next)
					w.watchedPods = map[string]*v1.Pod{"bad": bad}
					w.latency, w.fault = latencyOf("patch bad", slow), faultOf("get bad", errors.New("connection reset by peer"))
				})
				w.addEviction(bad)
				for i := range 5 {
					if waited := w.timeToFail(t, fmt.Sprint("good", i)); waited > slow+time.Second {
						t.Errorf("other pod Failed after %v, want within a second", waited)
					}
					time.Sleep(5 * time.Minute)
				}
				w.set(func() { w.fault, w.latency, w.watchedPods = nil, nil, nil })
			})
			if strings.Contains(log, "API server unreachable") {
				t.Errorf("want no log line for an outage:\n%s", log)
			}
		})
	}
}

// Writes of many pods are slow, and one of another pod once was: it gets its turn among them.
func TestPodThatWasSlowOnce(t *testing.T) {
	during(t, func(w *world) {
		spike := latencyOf("patch good", 1500*time.Millisecond)
		w.set(func() {
			w.latency = func(what string) time.Duration { return max(latencyOf("patch bad", 31*time.Second)(what), spike(what)) }
			w.fault = faultOf("patch bad", status(http.StatusInternalServerError))
		})
		const bad = 40
		for i := range bad {
			w.addEviction(w.addPod(fmt.Sprint("bad", i)))
		}
		time.Sleep(bad * writeWait)
		began := time.Now()
		w.addEviction(w.addPod("good"))
		time.Sleep(5 * time.Second)
		w.set(func() { w.latency = latencyOf("patch bad", 31*time.Second) })
		for w.phase("good") != v1.PodFailed && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > (bad+2*maxInFlight)*31*time.Second/maxInFlight {
			t.Errorf("pod good Failed after %v, want sooner", took)
		}
		w.set(func() { w.latency, w.fault = nil, nil })
	})
}

// The cause of a failing write is logged when it begins and when it changes.
func TestFailureCauseIsLoggedOnce(t *testing.T) {
	log := during(t, func(w *world) {
		for range 2 {
			for _, code := range []int32{http.StatusInternalServerError, http.StatusForbidden} {
				w.set(func() { w.fault = faultOf("patch", status(code)) })
				if len(w.records) == 0 {
					w.addEviction(w.addPod("a"))
				}
				time.Sleep(20 * time.Minute)
			}
		}
		w.set(func() { w.fault = nil })
	})
	for _, what := range []string{"pod status request failed", "pod status request denied"} {
		if n := strings.Count(log, what); n != 2 {
			t.Errorf("%q is logged %d times, want twice", what, n)
		}
	}
}

// A slow write is in flight when the network begins to drop packets for half an hour: it is done
// soon afterwards.
func TestSlowPodAfterPacketLoss(t *testing.T) {
	for i := range 10 {
		during(t, func(w *world) {
			time.Sleep(time.Second)
			w.set(func() { w.latency = latencyOf("patch", time.Hour) })
			w.addEviction(w.addPod("a"))
			time.Sleep(2 * time.Second)
			w.set(func() { w.latency = latencyOf("", time.Hour) })
			time.Sleep(30*time.Minute + time.Duration(i)*17*time.Second)
			w.set(func() { w.latency = nil })
			for range 60 {
				time.Sleep(time.Second)
				w.changed()
			}
			if w.phase("a") != v1.PodFailed {
				t.Errorf("pod a is %s, want Failed", w.phase("a"))
			}
		})
	}
}

// The Retry-After of a webhook is respected although the agent changes the record.
func TestRetryAfterOfOnePod(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = faultOf("patch", apierrors.NewTooManyRequests("later", 300)) })
		r := w.addOngoing(w.addPod("a"))
		time.Sleep(verdict.MarkDelay + time.Second)
		w.set(func() { w.requestNames = nil })
		r = emptied(r)
		dead := r
		w.updateRecord(&dead)
		time.Sleep(time.Second)
		r = finished(r)
		w.updateRecord(&r)
		time.Sleep(290 * time.Second)
		if asked := inspect(w, func() []string { return slices.Clone(w.requestNames) }); slices.Contains(asked, "patch a") {
			t.Errorf("requests %q before Retry-After, want no patch a", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// Many pods wait for the Retry-After of a webhook: a later pod gets its turn, because each pass
// tries only a few.
func TestPodBehindManyRejectedOnes(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = faultOf("patch bad", apierrors.NewTooManyRequests("later", 300)) })
		const bad = 40
		for i := range bad {
			w.addEviction(w.addPod(fmt.Sprint("bad", i)))
		}
		if waited := w.timeToFail(t, "good"); waited > bad/maxRejected*maxBackoff {
			t.Errorf("pod good Failed after %v, want sooner", waited)
		}
		w.set(func() { w.fault = nil })
	})
}

// The server rejects all writes, and one of many pods ends by itself: the bridge tries one pod each
// second.
func TestManyPodsWhileOneEndsByItself(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = faultOf("patch", status(http.StatusServiceUnavailable)) })
		for i := range 30 {
			w.addEviction(w.addPod(fmt.Sprint("a", i)))
		}
		job := w.addPod("job")
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		w.addEviction(job)
		time.Sleep(5 * time.Minute)
		w.set(func() { w.requestTimes = nil })
		time.Sleep(10 * time.Minute)
		if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 2*600*2 { // a read and a write after half a second or more
			t.Errorf("%d requests in ten minutes, want fewer", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// The cause of a failing write is logged again after a successful write.
func TestFailureCauseIsLoggedAgain(t *testing.T) {
	log := during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = faultOf("patch", status(http.StatusInternalServerError)) })
		r := w.addOngoing(w.addPod("a"))
		time.Sleep(time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(time.Minute)
		w.set(func() {
			p := w.pods["a"].DeepCopy()
			p.Status.Conditions = nil // as kube-controller-manager removes the mark
			w.storePod(p)
			w.fault = faultOf("patch", status(http.StatusInternalServerError))
		})
		time.Sleep(time.Minute)
		w.set(func() { w.fault = nil })
		r = finished(emptied(r))
		w.updateRecord(&r)
	})
	if n := strings.Count(log, "pod status request failed"); n != 2 {
		t.Errorf("the failure is logged %d times, want twice:\n%s", n, log)
	}
}

// After a successful write, a pod with rejected or slow writes is treated as any other.
func TestPodAcceptedInTheEnd(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() {
			w.latency, w.fault = latencyOf("patch slow", 2*time.Second), faultOf("patch rejected", status(http.StatusServiceUnavailable))
		})
		slow := w.addOngoing(w.addPod("slow"))
		time.Sleep(5 * time.Second) // so that its ID differs
		rejected := w.addOngoing(w.addPod("rejected"))
		time.Sleep(10 * time.Second)
		w.set(func() { w.latency, w.fault = nil, nil })
		time.Sleep(time.Minute) // both are marked
		w.set(func() { w.latency = latencyOf("patch hung", time.Hour) })
		for i := range maxInFlight {
			w.addEviction(w.addPod(fmt.Sprint("hung", i)))
		}
		time.Sleep(10 * time.Second)
		slow = finished(emptied(slow))
		w.updateRecord(&slow)
		time.Sleep(10 * time.Millisecond)
		if w.phase("slow") != v1.PodFailed {
			t.Errorf("pod slow is %s, want Failed before slow writes of others end", w.phase("slow"))
		}
		w.set(func() { w.latency = nil })
		time.Sleep(10 * time.Minute)
		w.set(func() { w.failed, w.fault = nil, func(string) error { return errors.New("connection refused") } })
		rejected = finished(emptied(rejected))
		w.updateRecord(&rejected)
		w.addEviction(w.addPod("after"))
		time.Sleep(time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(time.Minute)
		if got := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"rejected", "after"}) {
			t.Errorf("pods set to Failed in the order %v, want rejected, after", got)
		}
	})
}
