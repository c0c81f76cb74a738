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

	"jettison/api"
)

func status(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }

// faults returns ways in which the API server is unreachable. hangs is the error of kube.Client for
// a server that does not respond.
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

// The API server is unreachable for ten minutes, or for a bit more than an hour, while three pods
// are evicted and a fourth afterwards. After it recovers all are set to Failed, in order if none
// was tried alone, and all events less than an hour old are sent. The bridge backs off meanwhile.
func TestLongOutage(t *testing.T) {
	for name, fault := range faults() {
		for _, c := range []struct {
			away  time.Duration
			first int // events of the first three
		}{{10 * time.Minute, 6}, {61 * time.Minute, 0}} {
			t.Run(name+" for "+c.away.String(), func(t *testing.T) {
				during(t, func(w *world) {
					w.set(func() { w.fault = func(string) error { return fault() } })
					for _, name := range []string{"a", "b", "c"} {
						w.addEviction(w.addPod(name))
					}
					time.Sleep(c.away)
					if n := inspect(w, func() int { return len(w.requestTimes) }); n < 3 || n > 3*int(c.away/(10*time.Second)) {
						t.Errorf("%d requests during the outage, want fewer", n)
					}
					w.set(func() { w.fault = nil })
					w.addEviction(w.addPod("d"))
					time.Sleep(6 * time.Minute) // the longest backoff after a denied request is five minutes
					failed, events := inspect(w, func() []string { return slices.Clone(w.failed) }), inspect(w, w.reasons)
					if !strings.HasPrefix(name, "has") && !strings.HasPrefix(name, "knows") && !slices.Equal(failed, []string{"a", "b", "c", "d"}) {
						t.Errorf("pods set to Failed in the order %v, want a b c d", failed)
					}
					if slices.Sort(failed); !slices.Equal(failed, []string{"a", "b", "c", "d"}) || len(events) != c.first+2 {
						t.Errorf("pods set to Failed: %v, events: %v", failed, events)
					}
				})
			})
		}
	}
}

// A Retry-After of the server is respected, except for one immediate read that checks whether the
// server is unreachable.
func TestRetryAfterOfTheServer(t *testing.T) {
	during(t, func(w *world) {
		inspect(w, func() bool { return true }) // wait for the version request
		w.set(func() {
			w.requestTimes, w.fault = nil, func(string) error { return apierrors.NewTooManyRequests("later", 90) }
		})
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		asked := inspect(w, func() []time.Time { return slices.Clone(w.requestTimes) })
		for i, at := range asked {
			if i > 1 && at.Sub(asked[i-1]) < 90*time.Second {
				t.Errorf("next request after %v, want at least 90s", at.Sub(asked[i-1]))
			}
		}
		w.set(func() { w.fault = nil })
	})
}

// The clock was set back and the agent restarted: its new records have lower IDs than earlier ones,
// and are delivered.
func TestClockSetBack(t *testing.T) {
	during(t, func(w *world) {
		p := w.addPod("a")
		w.set(func() {
			r := *record(p, time.Now().Add(time.Hour))
			w.records = append(w.records, &r)
		})
		time.Sleep(time.Second)
		w.set(func() { w.agentGone = true })
		w.addEviction(w.addPod("b"))
		time.Sleep(time.Minute)
		w.set(func() { w.agentGone = false })
		time.Sleep(maxBackoff)
		if got := inspect(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"a", "b"}) || w.created != 4 {
			t.Errorf("pods set to Failed: %v, with %d events, want a and b with 4", got, w.created)
		}
	})
}

// The bridge reads the API server's version before the first eviction, which then does not wait for
// it.
func TestVersionIsReadBeforeTheFirstEviction(t *testing.T) {
	during(t, func(w *world) {
		var asked []string
		w.set(func() { w.fault = func(what string) error { asked = append(asked, what); return nil } })
		a := w.addPod("a")
		if before := inspect(w, func() []string { return slices.Clone(asked) }); !slices.Equal(before, []string{"version"}) {
			t.Errorf("requests before the eviction: %q, want version only", before)
		}
		w.addEviction(a)
		if all := inspect(w, func() []string { return slices.Clone(asked) }); len(all) < 2 || all[1] != "patch a" {
			t.Errorf("requests after the eviction: %q, want patch a next", all)
		}
	})
}

// A pod that its kubelet may report as failed is written soon after the API server recovers,
// however long it was unreachable. For other pods the backoff grows.
func TestPodThatEndsByItselfIsWrittenFirst(t *testing.T) {
	for policy, most := range map[v1.RestartPolicy]time.Duration{v1.RestartPolicyNever: raceBackoff, v1.RestartPolicyAlways: maxBackoff} {
		during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			p := w.addPod("a")
			p.Spec.RestartPolicy = policy
			w.addEviction(p)
			time.Sleep(20*time.Minute + 321*time.Millisecond)
			w.mu.Lock() // without a notification
			w.fault = nil
			w.mu.Unlock()
			back := time.Now()
			for len(inspect(w, func() []string { return w.failed })) == 0 && time.Since(back) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(back); took > most {
				t.Errorf("restart policy %s: Failed after %v, want %v", policy, took, most)
			}
			n := 0
			for _, at := range inspect(w, func() []time.Time { return w.requestTimes }) {
				if at.After(back.Add(-10*time.Minute)) && at.Before(back) {
					n++
				}
			}
			if n > int(10*time.Minute/(most/2))+1 {
				t.Errorf("restart policy %s: %d requests in ten minutes, want fewer", policy, n)
			}
		})
	}
}

// Activity of the watch shows that the API server is reachable: the bridge retries then, except
// before a Retry-After.
func TestWatchActivityProbesTheServer(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		w.addPod("b")
		w.changed()
		time.Sleep(minBackoff)
		if got := inspect(w, func() []string { return slices.Clone(w.failed) }); len(got) != 1 {
			t.Errorf("pods set to Failed: %v, want one", got)
		}
	})
}

// Frequent watch activity while the server rejects requests, for example with a revoked token or
// under load, does not increase the rate of requests.
func TestWatchActivityDoesNotIncreaseRequests(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return status(http.StatusServiceUnavailable) } })
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.requestTimes = nil })
		for range 6000 {
			time.Sleep(100 * time.Millisecond)
			w.changed()
		}
		if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 45 {
			t.Errorf("%d requests in ten minutes, want at most 45", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// Slow writes in flight when the server becomes unreachable do not change the backoff, and one log
// line reports it.
func TestOutageWithSlowWrites(t *testing.T) {
	for _, pods := range []int{1, 8} {
		log := during(t, func(w *world) {
			w.set(func() {
				w.latency = func(what string) time.Duration {
					if strings.HasPrefix(what, "patch") {
						return time.Minute
					}
					return 0
				}
			})
			for i := range pods {
				w.addEviction(w.addPod(fmt.Sprint("a", i)))
			}
			time.Sleep(3 * time.Minute)
			w.set(func() {
				w.latency, w.fault = nil, func(string) error { return status(http.StatusServiceUnavailable) }
			})
			time.Sleep(15 * time.Minute)
			w.set(func() { w.requestTimes = nil })
			time.Sleep(10 * time.Minute)
			if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 45*(maxInFlight+1) { // slow writes in the background, and one read
				t.Errorf("%d slow pods: %d requests in ten minutes, want fewer", pods, asked)
			}
			w.set(func() { w.fault = nil })
		})
		for _, want := range []string{"API server unreachable", "API server reachable again"} {
			if n := strings.Count(log, want); n != 1 {
				t.Errorf("%d slow pods: %q is logged %d times, want once", pods, want, n)
			}
		}
	}
}

// The only pending pod is replaced while the server is unreachable, so no status is written any
// more. The events show that the server recovered.
func TestRecoveryShownByEvents(t *testing.T) {
	log := during(t, func(w *world) {
		a := w.addPod("a")
		time.Sleep(time.Second) // wait for the version request
		w.set(func() { w.fault = func(string) error { return status(http.StatusServiceUnavailable) } })
		w.addEviction(a)
		time.Sleep(5 * time.Minute)
		w.set(func() {
			other := a.DeepCopy()
			other.UID = "another"
			w.storePod(other)
			w.fault = nil
		})
	})
	if n := strings.Count(log, "API server reachable again"); n != 1 {
		t.Errorf("recovery is logged %d times, want once:\n%s", n, log)
	}
}

// A pod that ends by itself and is evicted during a long backoff is written within a second.
func TestPodThatEndsByItselfDuringBackoff(t *testing.T) {
	for i := range 20 {
		during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			job := w.addPod("job")
			job.Spec.RestartPolicy = v1.RestartPolicyNever
			w.addEviction(w.addPod("a"))
			time.Sleep(10*time.Minute + time.Duration(i)*1700*time.Millisecond)
			r := record(job, time.Now())
			w.mu.Lock() // without a notification of the watch
			w.fault = nil
			w.records = append(w.records, r)
			close(w.updated)
			w.updated = make(chan struct{})
			w.mu.Unlock()
			time.Sleep(raceBackoff)
			if w.phase("job") != v1.PodFailed {
				t.Errorf("pod job is %s, want Failed", w.phase("job"))
			}
		})
	}
}

// A Retry-After of five minutes is respected, whatever the result of a slow write in flight and
// whatever the watch receives.
func TestRetryAfterWithASlowWrite(t *testing.T) {
	for name, late := range map[string]error{"not ready": status(http.StatusServiceUnavailable), "done": nil} {
		t.Run(name, func(t *testing.T) {
			log := during(t, func(w *world) {
				w.set(func() { w.latency, w.fault = latencyOf("patch slow", 20*time.Second), faultOf("patch slow", late) })
				w.addEviction(w.addPod("slow"))
				time.Sleep(5 * time.Second)
				w.set(func() {
					w.latency, w.fault = nil, func(what string) error {
						if what == "patch slow" {
							return late
						}
						return apierrors.NewTooManyRequests("later", 300)
					}
				})
				w.addEviction(w.addPod("b"))
				time.Sleep(time.Second)
				w.set(func() { w.requestNames = nil })
				for range 280 {
					time.Sleep(time.Second)
					w.changed()
				}
				if asked := inspect(w, func() []string { return w.requestNames }); slices.ContainsFunc(asked, func(what string) bool { return what != "get node" }) || len(asked) > 1 {
					t.Errorf("requests before Retry-After: %q, want at most one read", asked)
				}
				w.set(func() { w.fault = nil })
			})
			if strings.Count(log, "API server unreachable") != 1 {
				t.Errorf("want one log line for the outage:\n%s", log)
			}
		})
	}
}

// Watch activity during one outage does not delay the early probe in the next.
func TestWatchActivityInASecondOutage(t *testing.T) {
	during(t, func(w *world) {
		for _, name := range []string{"a", "b"} {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			w.addEviction(w.addPod(name))
			for range 600 {
				time.Sleep(time.Second)
				if name == "a" {
					w.changed()
				}
			}
			w.set(func() { w.fault = nil })
			time.Sleep(minBackoff)
			if name == "b" && w.phase("b") != v1.PodFailed {
				t.Errorf("pod b is %s, want Failed", w.phase("b"))
			}
			time.Sleep(time.Minute)
		}
	})
}

// A recovered API server gets one read and then one request for each pending write.
func TestRequestsAfterAnOutage(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		r := w.addEviction(w.addPod("a"))
		time.Sleep(time.Minute)
		w.set(func() { w.fault, w.requestNames = nil, nil })
		time.Sleep(5 * time.Minute)
		id := strings.ToLower(r.ID)
		want := []string{"get node", "patch a", "event a." + id, "event n1." + id}
		if got := inspect(w, func() []string { return slices.Clone(w.requestNames) }); !slices.Equal(got, want) {
			t.Errorf("requests %q, want %q", got, want)
		}
	})
}

// A Retry-After is respected also if a pod that ends by itself is evicted meanwhile.
func TestPodThatEndsByItselfWaitsForRetryAfter(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		job := w.addPod("job")
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = func(string) error { return apierrors.NewTooManyRequests("later", 300) } })
		time.Sleep(maxBackoff)
		w.set(func() { w.requestTimes = nil })
		w.addEviction(job)
		time.Sleep(299*time.Second - maxBackoff)
		if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 0 {
			t.Errorf("%d requests before Retry-After, want none", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// A record without a pod name, which cannot be read, does not reset the state of an unreachable
// server.
func TestRecordWithoutAPodNameDuringAnOutage(t *testing.T) {
	during(t, func(w *world) {
		nameless := w.addPod("nameless")
		time.Sleep(time.Second)
		w.set(func() {
			w.fault = func(string) error { return status(http.StatusServiceUnavailable) }
			delete(w.pods, "nameless")
			nameless.Name = ""
		})
		r := w.addOngoing(nameless)
		w.addEviction(w.addPod("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(minBackoff)
		if w.phase("a") != v1.PodFailed {
			t.Errorf("pod a is %s, want Failed", w.phase("a"))
		}
		r = finished(emptied(r))
		w.updateRecord(&r)
	})
}

// An agent that repeats unchanged records does not increase the rate of denied requests.
func TestRepeatedRecordsDoNotResetBackoff(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = faultOf("patch", status(http.StatusForbidden)) })
		r := w.addOngoing(w.addPod("a"))
		time.Sleep(20 * time.Minute)
		w.set(func() { w.requestTimes = nil })
		for range 600 {
			time.Sleep(time.Second)
			same := r
			w.updateRecord(&same)
		}
		if asked := inspect(w, func() int { return len(w.requestTimes) }); asked > 5 {
			t.Errorf("%d requests in ten minutes, want at most 5", asked)
		}
		r = finished(emptied(r))
		w.updateRecord(&r)
		w.set(func() { w.fault = nil })
	})
}

// A bridge that starts while the API server is unreachable logs the recovery even if the server
// recovers step by step: also if nothing is left to write, and if only one pod is rejected.
func TestRecoveryIsLogged(t *testing.T) {
	for _, alone := range []bool{false, true} {
		log := during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return status(http.StatusServiceUnavailable) } })
			held := w.addPod("a")
			r := record(held, time.Now().Add(-2*listLag)) // old enough that an earlier bridge's write is in the list
			w.set(func() {
				w.records = append(w.records, r)
				p := held.DeepCopy()
				p.Annotations = map[string]string{api.AnnotationEvicted: r.ID}
				p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "Evicted", message
				p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}
				w.storePod(p)
			})
			if alone {
				w.addEviction(w.addPod("b"))
			}
			time.Sleep(20 * time.Second)
			w.set(func() { w.fault = faultOf("get", status(http.StatusServiceUnavailable)) })
			time.Sleep(15 * time.Second)
			w.set(func() { w.fault = faultOf("patch b", status(http.StatusServiceUnavailable)) })
			time.Sleep(time.Hour)
			w.set(func() { w.fault = nil })
		})
		_, before, _ := strings.Cut(log, "API server unreachable")
		before, _, _ = strings.Cut(before, "time=2000-01-01T01:") // when that pod is accepted, too
		outages := strings.Count(log, "API server unreachable")   // 0 if the bridge was faster than the fault, and nothing is due
		if outages > 1 || alone && outages == 0 || strings.Count(log, "API server reachable again") != outages || outages > 0 && !strings.Contains(before, "API server reachable again") {
			t.Errorf("alone %v: want the outage and the recovery logged once each:\n%s", alone, log)
		}
	}
}

// Requests of an eviction without failures.
func TestRequestsOfAnEviction(t *testing.T) {
	during(t, func(w *world) {
		a := w.addPod("a")
		time.Sleep(time.Second)
		r := *record(a, time.Now())
		r.Outcome, r.Complete, r.Disruption, r.Emptied, r.Cleaned = api.OutcomeRunning, false, false, api.Stamp{}, api.Stamp{}
		first := r
		w.set(func() { w.records = append(w.records, &first) })
		time.Sleep(time.Minute)
		r = finished(emptied(r))
		w.updateRecord(&r)
		time.Sleep(5 * time.Minute)
		id := strings.ToLower(r.ID)
		want := []string{"version", "patch a", "event a." + id, "event n1." + id}
		if got := inspect(w, func() []string { return slices.Clone(w.requestNames) }); !slices.Equal(got, want) {
			t.Errorf("requests %q, want %q", got, want)
		}
	})
}
