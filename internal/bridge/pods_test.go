package bridge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The agent's pods are the API's: all of them at the start, then each that comes, changes or goes, and nothing else of them than it uses.
func TestTheAgentKnowsThePods(t *testing.T) {
	for name, old := range map[string]bool{"list as a watch": false, "list": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := newCluster(t), newAgent(t)
			c.noStream = old
			first := running("a", "u1")
			first.Spec.Priority = new(int32(1000))
			first.Spec.Containers[0].Env = []v1.EnvVar{{Name: "SECRET", Value: "x"}}
			c.put(first)
			elsewhere := running("b", "u2")
			elsewhere.Spec.NodeName = "n2"
			c.put(elsewhere)
			mirror := running("static-n1", "u3")
			mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
			c.put(mirror)
			start(t, c, a, nil)
			a.await("it has been told", func() bool { return len(a.puts) > 0 })
			if !slices.Equal(a.puts[:1], []string{"replace u1"}) {
				t.Errorf("%v", a.puts)
			}
			p := a.pods["u1"]
			if *p.Spec.Priority != 1000 || p.ResourceVersion != "" || len(p.Spec.Containers[0].Env) > 0 || len(p.Status.ContainerStatuses) > 0 {
				t.Errorf("%+v", p)
			}
			c.put(running("c", "u4"))
			a.await("it knows one that came", func() bool { return a.pods["u4"] != nil })
			c.remove("shop", "a")
			a.await("it knows that one has gone", func() bool { return a.pods["u1"] == nil && len(a.pods) == 1 })
			c.put(running("c", "u5"))
			a.await("it knows that one is another", func() bool { return a.pods["u4"] == nil && a.pods["u5"] != nil })
		})
	}
}

// Neither an API that is away nor the end of the bridge takes a pod from the agent.
func TestNothingIsTakenAwayByAbsence(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	c.put(running("a", "u1"))
	stop := start(t, c, a, nil)
	a.await("it has been told", func() bool { return len(a.pods) == 1 })
	stop()
	tried := make(chan struct{}, 100)
	c.change(func() {
		c.fault = func(*http.Request) int { tried <- struct{}{}; return http.StatusInternalServerError }
	})
	stop = start(t, c, a, nil)
	<-tried
	<-tried
	stop()
	if len(a.pods) != 1 || len(a.puts) != 1 {
		t.Errorf("%v, %v", a.pods, a.puts)
	}
}

// A watch that the server ends, and whose place it does not know any more, begins anew: what has gone meanwhile is gone.
func TestAWatchThatBreaksOff(t *testing.T) {
	for name, then := range map[string]struct {
		inStream bool
		fault    int // of the next two times that pods are asked for; 0: none
	}{
		"breaks off": {}, "is told so": {inStream: true}, "and the server fails": {fault: 500}, "and it is overloaded": {fault: 429},
		"and it is not ready": {fault: 503}, "and it knows no roles yet": {fault: 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := newCluster(t), newAgent(t)
			c.noStream, c.inStream = true, then.inStream
			c.put(running("a", "u1"))
			c.put(running("b", "u2"))
			start(t, c, a, nil)
			a.await("it has been told", func() bool { return len(a.pods) == 2 })
			var tried atomic.Int32
			c.change(func() {
				delete(c.pods, "shop/a") // which no watch tells
				c.version += 10
				c.expired = c.version
				c.fault = func(r *http.Request) int {
					if r.URL.Path == "/api/v1/pods" && tried.Add(1) <= 2 {
						return then.fault
					}
					return 0
				}
			})
			a.await("it knows that one has gone", func() bool { return a.pods["u1"] == nil && a.pods["u2"] != nil })
		})
	}
}

// An agent that was restarted knows nothing: it is told everything as soon as that shows.
func TestAnAgentThatWasRestarted(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	c.put(running("a", "u1"))
	start(t, c, a, nil)
	a.await("it has been told", func() bool { return len(a.pods) == 1 })
	c.put(running("b", "u2"))
	a.await("it has been told of the second", func() bool { return len(a.pods) == 2 })
	a.restart()
	c.put(running("c", "u3"))
	a.await("it knows all", func() bool { return len(a.pods) == 3 })
	if all := fmt.Sprint(a.puts); strings.Count(all, "replace") < 2 {
		t.Error(all)
	}
}
