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

// The agent has the pods of the API: all at the start, then each change, with the fields that it
// uses only.
func TestAgentReceivesThePods(t *testing.T) {
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
			a.await("the agent has the pods", func() bool { return len(a.puts) > 0 })
			if !slices.Equal(a.puts[:1], []string{"replace u1"}) {
				t.Errorf("requests to the agent %v, want all pods first", a.puts)
			}
			p := a.pods["u1"]
			if *p.Spec.Priority != 1000 || p.ResourceVersion != "" || len(p.Spec.Containers[0].Env) > 0 || len(p.Status.ContainerStatuses) > 0 {
				t.Errorf("pod in the agent is %+v, want only used fields", p)
			}
			c.put(running("c", "u4"))
			a.await("the agent has a new pod", func() bool { return a.pods["u4"] != nil })
			c.remove("shop", "a")
			a.await("the agent lost a deleted pod", func() bool { return a.pods["u1"] == nil && len(a.pods) == 1 })
			c.put(running("c", "u5"))
			a.await("the agent has the replaced pod", func() bool { return a.pods["u4"] == nil && a.pods["u5"] != nil })
		})
	}
}

// A proxy resets each watch a second after the headers of its response: the agent has the pods, and
// each new one.
func TestWatchesAreReset(t *testing.T) {
	t.Parallel()
	c, a := newCluster(t), newAgent(t)
	c.change(func() { c.resets = true })
	c.put(running("a", "u1"))
	start(t, c, a, nil)
	a.await("the agent has the pod", func() bool { return a.pods["u1"] != nil })
	c.put(running("b", "u2"))
	a.await("the agent has a new pod", func() bool { return a.pods["u2"] != nil })
}

// Neither an outage nor the end of the bridge deletes a pod from the agent.
func TestOutageDeletesNoPods(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	c.put(running("a", "u1"))
	stop := start(t, c, a, nil)
	a.await("the agent has the pods", func() bool { return len(a.pods) == 1 })
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
		t.Errorf("agent has pods %v after requests %v, want all kept", a.pods, a.puts)
	}
}

// A watch that the server ends with an expired version starts again with a list, and pods deleted
// meanwhile are deleted.
func TestWatchExpires(t *testing.T) {
	for name, then := range map[string]struct {
		inStream bool
		fault    int // status of the next two requests for pods; 0: none
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
			a.await("the agent has the pods", func() bool { return len(a.pods) == 2 })
			var tried atomic.Int32
			c.change(func() {
				delete(c.pods, "shop/a") // without a watch event
				c.version += 10
				c.expired = c.version
				c.fault = func(r *http.Request) int {
					if r.URL.Path == "/api/v1/pods" && tried.Add(1) <= 2 {
						return then.fault
					}
					return 0
				}
			})
			a.await("the agent lost a deleted pod", func() bool { return a.pods["u1"] == nil && a.pods["u2"] != nil })
		})
	}
}

// An agent that restarted receives all pods as soon as that is noticed.
func TestAgentRestarts(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	c.put(running("a", "u1"))
	start(t, c, a, nil)
	a.await("the agent has the pods", func() bool { return len(a.pods) == 1 })
	c.put(running("b", "u2"))
	a.await("the agent has the second pod", func() bool { return len(a.pods) == 2 })
	a.restart()
	c.put(running("c", "u3"))
	a.await("the agent has all pods", func() bool { return len(a.pods) == 3 })
	if all := fmt.Sprint(a.puts); strings.Count(all, "replace") < 2 {
		t.Errorf("requests to the agent %s, want all pods twice", all)
	}
}
