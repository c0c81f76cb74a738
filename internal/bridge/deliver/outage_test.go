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

// faults are ways in which an API is away; hangs is what kube.Client makes of a server that does not answer.
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

// The API is away for ten minutes, or for a bit more than an hour, while three pods are evicted and a fourth after it: each is failed once it
// is back, in their order where nothing of theirs was tried alone, and each event is there that is not an hour old; it was not asked all
// the time.
func TestTheAPIIsAwayForLong(t *testing.T) {
	for name, fault := range faults() {
		for _, c := range []struct {
			away  time.Duration
			first int // events of the first three
		}{{10 * time.Minute, 6}, {61 * time.Minute, 0}} {
			t.Run(name+" for "+c.away.String(), func(t *testing.T) {
				during(t, func(w *world) {
					w.set(func() { w.fault = func(string) error { return fault() } })
					for _, name := range []string{"a", "b", "c"} {
						w.evicted(w.runs(name))
					}
					time.Sleep(c.away)
					if n := is(w, func() int { return len(w.asked) }); n < 3 || n > 3*int(c.away/(10*time.Second)) {
						t.Errorf("it is asked %d times", n)
					}
					w.set(func() { w.fault = nil })
					w.evicted(w.runs("d"))
					time.Sleep(6 * time.Minute) // the longest pause after a refusal is five
					failed, events := is(w, func() []string { return slices.Clone(w.failed) }), is(w, w.reasons)
					if !strings.HasPrefix(name, "has") && !strings.HasPrefix(name, "knows") && !slices.Equal(failed, []string{"a", "b", "c", "d"}) {
						t.Errorf("failed in the order %v", failed)
					}
					if slices.Sort(failed); !slices.Equal(failed, []string{"a", "b", "c", "d"}) || len(events) != c.first+2 {
						t.Errorf("failed %v, events %v", failed, events)
					}
				})
			})
		}
	}
}

// An API that says when it wants to be asked again is not asked before, but for a read at once that says whether it was the API.
func TestAnAPIThatAsksForTime(t *testing.T) {
	during(t, func(w *world) {
		is(w, func() bool { return true }) // what it asks at its start is asked
		w.set(func() {
			w.asked, w.fault = nil, func(string) error { return apierrors.NewTooManyRequests("later", 90) }
		})
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		asked := is(w, func() []time.Time { return slices.Clone(w.asked) })
		for i, at := range asked {
			if i > 1 && at.Sub(asked[i-1]) < 90*time.Second {
				t.Errorf("asked again after %v", at.Sub(asked[i-1]))
			}
		}
		w.set(func() { w.fault = nil })
	})
}

// The clock was set back, and the agent went and came: what it has evicted since has a lower ID than what it told before, and is told.
func TestAClockThatWasSetBack(t *testing.T) {
	during(t, func(w *world) {
		p := w.runs("a")
		w.set(func() {
			r := *record(p, time.Now().Add(time.Hour))
			w.records = append(w.records, &r)
		})
		time.Sleep(time.Second)
		w.set(func() { w.away = true })
		w.evicted(w.runs("b"))
		time.Sleep(time.Minute)
		w.set(func() { w.away = false })
		time.Sleep(maxBackoff)
		if got := is(w, func() []string { return slices.Clone(w.failed) }); !slices.Equal(got, []string{"a", "b"}) || w.created != 4 {
			t.Errorf("failed %v, %d events", got, w.created)
		}
	})
}

// What is to be known of the API server before a status may be written is known before the first eviction, which would wait for it.
func TestAServerIsKnownBeforeTheFirstEviction(t *testing.T) {
	during(t, func(w *world) {
		var asked []string
		w.set(func() { w.fault = func(what string) error { asked = append(asked, what); return nil } })
		a := w.runs("a")
		if before := is(w, func() []string { return slices.Clone(asked) }); !slices.Equal(before, []string{"version"}) {
			t.Errorf("before the eviction the API was asked for %q", before)
		}
		w.evicted(a)
		if all := is(w, func() []string { return slices.Clone(asked) }); len(all) < 2 || all[1] != "patch a" {
			t.Errorf("in the end for %q", all)
		}
	})
}

// A pod that its kubelet says by itself to have failed is told of before that, where the API comes back after however long; other pods are
// asked for less and less often.
func TestAPodThatEndsByItselfIsToldOfAtOnce(t *testing.T) {
	for policy, most := range map[v1.RestartPolicy]time.Duration{v1.RestartPolicyNever: raceBackoff, v1.RestartPolicyAlways: maxBackoff} {
		during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			p := w.runs("a")
			p.Spec.RestartPolicy = policy
			w.evicted(p)
			time.Sleep(20*time.Minute + 321*time.Millisecond)
			w.mu.Lock() // of which nobody hears
			w.fault = nil
			w.mu.Unlock()
			back := time.Now()
			for len(is(w, func() []string { return w.failed })) == 0 && time.Since(back) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(back); took > most {
				t.Errorf("%s: told after %v, want %v", policy, took, most)
			}
			n := 0
			for _, at := range is(w, func() []time.Time { return w.asked }) {
				if at.After(back.Add(-10*time.Minute)) && at.Before(back) {
					n++
				}
			}
			if n > int(10*time.Minute/(most/2))+1 {
				t.Errorf("%s: asked %d times in ten minutes", policy, n)
			}
		})
	}
}

// A watch that has something to say shows that the API is there: it is asked then, unless it has asked for time itself.
func TestAWatchThatIsBackFirst(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		w.runs("b")
		w.changed()
		time.Sleep(minBackoff)
		if got := is(w, func() []string { return slices.Clone(w.failed) }); len(got) != 1 {
			t.Errorf("%v are failed", got)
		}
	})
}

// A watch that speaks all the time while writes are refused time, as by a token that was taken away, or a server that sheds load: it is asked
// no more often for that.
func TestAWatchThatSpeaksWhileNothingIsTaken(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return status(http.StatusServiceUnavailable) } })
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.asked = nil })
		for range 6000 {
			time.Sleep(100 * time.Millisecond)
			w.changed()
		}
		if asked := is(w, func() int { return len(w.asked) }); asked > 45 {
			t.Errorf("it is asked %d times in ten minutes", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// Statuses that are not waited for, of an API that is away then: it is no more there for that, asked less and less often, and that is said once.
func TestAnAPIThatIsAwayWhileSomeAreSlow(t *testing.T) {
	for _, pods := range []int{1, 8} {
		log := during(t, func(w *world) {
			w.set(func() {
				w.takes = func(what string) time.Duration {
					if strings.HasPrefix(what, "patch") {
						return time.Minute
					}
					return 0
				}
			})
			for i := range pods {
				w.evicted(w.runs(fmt.Sprint("a", i)))
			}
			time.Sleep(3 * time.Minute)
			w.set(func() {
				w.takes, w.fault = nil, func(string) error { return status(http.StatusServiceUnavailable) }
			})
			time.Sleep(15 * time.Minute)
			w.set(func() { w.asked = nil })
			time.Sleep(10 * time.Minute)
			if asked := is(w, func() int { return len(w.asked) }); asked > 45*(maxInFlight+1) { // which are not waited for, and one read
				t.Errorf("%d slow: asked %d times in ten minutes", pods, asked)
			}
			w.set(func() { w.fault = nil })
		})
		for _, want := range []string{"API server unreachable", "API server reachable again"} {
			if n := strings.Count(log, want); n != 1 {
				t.Errorf("%d slow: %q is said %d times", pods, want, n)
			}
		}
	}
}

// While the API is away the only pod that waited for it is replaced, so that nothing of a status is asked any more: that it is there again is
// known by the events.
func TestAnAPIThatIsBackForEventsAlone(t *testing.T) {
	log := during(t, func(w *world) {
		a := w.runs("a")
		time.Sleep(time.Second) // in which it is asked for its version
		w.set(func() { w.fault = func(string) error { return status(http.StatusServiceUnavailable) } })
		w.evicted(a)
		time.Sleep(5 * time.Minute)
		w.set(func() {
			other := a.DeepCopy()
			other.UID = "another"
			w.store(other)
			w.fault = nil
		})
	})
	if n := strings.Count(log, "API server reachable again"); n != 1 {
		t.Errorf("said %d times: %s", n, log)
	}
}

// While the API is away, and is asked seldom, a pod is evicted that ends by itself: it is asked for within the second.
func TestAPodThatEndsByItselfWithinAPause(t *testing.T) {
	for i := range 20 {
		during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			job := w.runs("job")
			job.Spec.RestartPolicy = v1.RestartPolicyNever
			w.evicted(w.runs("a"))
			time.Sleep(10*time.Minute + time.Duration(i)*1700*time.Millisecond)
			r := record(job, time.Now())
			w.mu.Lock() // the watch says nothing
			w.fault = nil
			w.records = append(w.records, r)
			close(w.news)
			w.news = make(chan struct{})
			w.mu.Unlock()
			time.Sleep(raceBackoff)
			if w.phase("job") != v1.PodFailed {
				t.Errorf("it is %s", w.phase("job"))
			}
		})
	}
}

// The API asks for five minutes while a slow write is on its way: however that ends, and whatever the watch says, it is not asked before.
func TestTimeThatWasAskedForIsNotForgotten(t *testing.T) {
	for name, late := range map[string]error{"not ready": status(http.StatusServiceUnavailable), "done": nil} {
		t.Run(name, func(t *testing.T) {
			log := during(t, func(w *world) {
				w.set(func() { w.takes, w.fault = taking("patch slow", 20*time.Second), of("patch slow", late) })
				w.evicted(w.runs("slow"))
				time.Sleep(5 * time.Second)
				w.set(func() {
					w.takes, w.fault = nil, func(what string) error {
						if what == "patch slow" {
							return late
						}
						return apierrors.NewTooManyRequests("later", 300)
					}
				})
				w.evicted(w.runs("b"))
				time.Sleep(time.Second)
				w.set(func() { w.askedFor = nil })
				for range 280 {
					time.Sleep(time.Second)
					w.changed()
				}
				if asked := is(w, func() []string { return w.askedFor }); slices.ContainsFunc(asked, func(what string) bool { return what != "get slow" }) || len(asked) > 1 {
					t.Errorf("asked for %q", asked)
				}
				w.set(func() { w.fault = nil })
			})
			if strings.Count(log, "API server unreachable") != 1 {
				t.Error(log)
			}
		})
	}
}

// A watch that spoke through one outage is heard as soon in the next one.
func TestAWatchThatIsBackAgain(t *testing.T) {
	during(t, func(w *world) {
		for _, name := range []string{"a", "b"} {
			w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
			w.evicted(w.runs(name))
			for range 600 {
				time.Sleep(time.Second)
				if name == "a" {
					w.changed()
				}
			}
			w.set(func() { w.fault = nil })
			time.Sleep(minBackoff)
			if name == "b" && w.phase("b") != v1.PodFailed {
				t.Errorf("it is %s", w.phase("b"))
			}
			time.Sleep(time.Minute)
		}
	})
}

// An API that is back is asked first for a pod, and then for what is to be done, once each.
func TestWhatAnAPIIsAskedWhenItIsBack(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Second)
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		r := w.evicted(w.runs("a"))
		time.Sleep(time.Minute)
		w.set(func() { w.fault, w.askedFor = nil, nil })
		time.Sleep(5 * time.Minute)
		id := strings.ToLower(r.ID)
		want := []string{"get a", "patch a", "event a." + id, "event n1." + id}
		if got := is(w, func() []string { return slices.Clone(w.askedFor) }); !slices.Equal(got, want) {
			t.Errorf("asked for %q, want %q", got, want)
		}
	})
}

// The API asks for time, and a pod that ends by itself is evicted meanwhile: it is not asked for all the same.
func TestAPodThatEndsByItselfWhileTheAPIAsksForTime(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = func(string) error { return errors.New("connection refused") } })
		job := w.runs("job")
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = func(string) error { return apierrors.NewTooManyRequests("later", 300) } })
		time.Sleep(maxBackoff)
		w.set(func() { w.asked = nil })
		w.evicted(job)
		time.Sleep(299*time.Second - maxBackoff)
		if asked := is(w, func() int { return len(w.asked) }); asked > 0 {
			t.Errorf("asked %d times", asked)
		}
		w.set(func() { w.fault = nil })
	})
}

// A record without a pod's name, of which nobody can be asked, says nothing of an API that is away.
func TestARecordWithoutANameWhileTheAPIIsAway(t *testing.T) {
	during(t, func(w *world) {
		nameless := w.runs("nameless")
		time.Sleep(time.Second)
		w.set(func() {
			w.fault = func(string) error { return status(http.StatusServiceUnavailable) }
			delete(w.pods, "nameless")
			nameless.Name = ""
		})
		r := w.begun(nameless)
		w.evicted(w.runs("a"))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(minBackoff)
		if w.phase("a") != v1.PodFailed {
			t.Errorf("it is %s", w.phase("a"))
		}
		r = over(emptied(r))
		w.tells(&r)
	})
}

// An agent that comes and goes says each time what it has said: an API that refuses is asked no more often for that.
func TestAnAgentThatSaysTheSameAgain(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.fault = of("patch", status(http.StatusForbidden)) })
		r := w.begun(w.runs("a"))
		time.Sleep(20 * time.Minute)
		w.set(func() { w.asked = nil })
		for range 600 {
			time.Sleep(time.Second)
			same := r
			w.tells(&same)
		}
		if asked := is(w, func() int { return len(w.asked) }); asked > 5 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
		r = over(emptied(r))
		w.tells(&r)
		w.set(func() { w.fault = nil })
	})
}

// A bridge that begins while the API is away, and finds one that comes back bit by bit, says that it is back: where nothing is to be written any
// more, and where one pod alone is not taken.
func TestThatTheAPIIsBackIsSaid(t *testing.T) {
	for _, alone := range []bool{false, true} {
		log := during(t, func(w *world) {
			w.set(func() { w.fault = func(string) error { return status(http.StatusServiceUnavailable) } })
			held := w.runs("a")
			r := record(held, time.Now().Add(-2*listLag)) // so that no bridge before this one has written just now
			w.set(func() {
				w.records = append(w.records, r)
				p := held.DeepCopy()
				p.Annotations = map[string]string{api.AnnotationEvicted: r.ID}
				p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "Evicted", message
				p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}
				w.store(p)
			})
			if alone {
				w.evicted(w.runs("b"))
			}
			time.Sleep(20 * time.Second)
			w.set(func() { w.fault = of("get", status(http.StatusServiceUnavailable)) })
			time.Sleep(15 * time.Second)
			w.set(func() { w.fault = of("patch b", status(http.StatusServiceUnavailable)) })
			time.Sleep(time.Hour)
			w.set(func() { w.fault = nil })
		})
		_, before, _ := strings.Cut(log, "API server unreachable")
		before, _, _ = strings.Cut(before, "time=2000-01-01T01:") // when the pod alone is taken, too
		away := strings.Count(log, "API server unreachable")      // none where the bridge was faster than the fault, and nothing is due
		if away > 1 || alone && away == 0 || strings.Count(log, "API server reachable again") != away || away > 0 && !strings.Contains(before, "API server reachable again") {
			t.Error(log)
		}
	}
}

// What an eviction costs an API where all is well.
func TestWhatAnEvictionCosts(t *testing.T) {
	during(t, func(w *world) {
		a := w.runs("a")
		time.Sleep(time.Second)
		r := *record(a, time.Now())
		r.Outcome, r.Over, r.Disruption, r.Emptied, r.Cleaned = api.OutcomeRunning, false, false, api.Stamp{}, api.Stamp{}
		first := r
		w.set(func() { w.records = append(w.records, &first) })
		time.Sleep(time.Minute)
		r = over(emptied(r))
		w.tells(&r)
		time.Sleep(5 * time.Minute)
		id := strings.ToLower(r.ID)
		want := []string{"version", "patch a", "event a." + id, "event n1." + id}
		if got := is(w, func() []string { return slices.Clone(w.askedFor) }); !slices.Equal(got, want) {
			t.Errorf("asked for %q, want %q", got, want)
		}
	})
}
