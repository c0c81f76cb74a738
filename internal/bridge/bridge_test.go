package bridge

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// start runs a bridge between a cluster and an agent until the test or stop ends it.
func start(t testing.TB, c *cluster, a *agent, change func(*Options)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	config := c.config()
	config.Timeout = 500 * time.Millisecond
	o := Options{
		Node: "n1", Socket: a.socket, Version: "test", EvictedStatus: true, LeaseNamespace: "jettison-system", TransitionPeriod: 5 * time.Minute,
		API: config, Log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	var done atomic.Bool
	stop = func() {
		if cancel(); !done.Swap(true) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

type testLog struct{ t testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func running(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": name}},
		Spec:       v1.PodSpec{NodeName: "n1", Priority: new(int32), Containers: []v1.Container{{Name: "c", Image: "i"}}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.ContainersReady, Status: v1.ConditionTrue},
			},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{
				Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))},
			}}},
		},
	}
}

const message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 98Mi. "

// evicted returns the record of a pod's eviction for memory some seconds ago.
func evicted(p *v1.Pod, n int, outcome api.Outcome) api.Record {
	at := time.Now().Add(-10 * time.Second).Add(time.Duration(n) * time.Millisecond)
	r := api.Record{
		Version: 1, ID: fmt.Sprintf("%s-%04x", at.UTC().Format("20060102T150405.000000Z"), n), Outcome: outcome, Message: message,
		Pod:    api.Victim{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name},
		Signal: "memory.available", Threshold: "memory.available<100Mi", Disruption: true,
		Annotations: map[string]string{"starved_resource": "memory"}, StatusReason: "Evicted", Began: api.Stamp{Time: at}, Killed: api.Stamp{Time: at},
	}
	if outcome == api.OutcomeBack {
		r = ended(r)
	}
	return r
}

// ended returns a record with a known outcome.
func ended(r api.Record) api.Record {
	gone := api.Stamp{Time: r.Began.Time.Add(20 * time.Millisecond)}
	r.Outcome, r.Emptied, r.Cleaned, r.Complete = api.OutcomeBack, gone, gone, true
	return r
}

func is(p *v1.Pod, kind v1.PodConditionType, status v1.ConditionStatus, reason string) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == kind && c.Status == status && c.Reason == reason && !c.LastTransitionTime.IsZero()
	})
}

func failed(p *v1.Pod, record string) bool {
	return p != nil && p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted" && p.Status.Message == message &&
		strings.HasPrefix(p.Annotations[verdict.Annotation], record) && is(p, v1.PodReady, v1.ConditionFalse, "PodFailed") &&
		is(p, v1.ContainersReady, v1.ConditionFalse, "PodFailed") && is(p, v1.DisruptionTarget, v1.ConditionTrue, "EvictionByJettison")
}

// A proxy resets each connection with a request for one pod: another eviction is written.
func TestConnectionsOfOnePodAreReset(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	c.change(func() {
		c.fault = func(r *http.Request) int {
			if strings.Contains(r.URL.Path, "/pods/bad") {
				return -2
			}
			return 0
		}
	})
	bad, web := running("bad", "u1"), running("web", "u2")
	c.put(bad)
	c.put(web)
	a.setRecord(evicted(bad, 1, api.OutcomeBack))
	r := evicted(web, 2, api.OutcomeBack)
	a.setRecord(r)
	start(t, c, a, nil)
	c.await("the other pod is Failed", func() bool { return failed(c.pods["shop/web"], r.ID) })
	c.change(func() { c.fault = nil })
	c.await("the pod is Failed after the resets", func() bool { return c.pods["shop/bad"].Status.Phase == v1.PodFailed })
}

// An eviction is marked when the victim is chosen and set to Failed when it is gone, with its
// events. Each is written once, also by later bridges.
func TestEvictionIsWritten(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	pod := running("web", "u1")
	c.put(pod)
	r := evicted(pod, 1, api.OutcomeRunning)
	a.setRecord(r)
	stop := start(t, c, a, nil)
	c.await("the pod is marked", func() bool {
		return is(c.pods["shop/web"], v1.DisruptionTarget, v1.ConditionTrue, "EvictionByJettison")
	})
	if c.pod("shop/web").Status.Phase != v1.PodRunning {
		t.Error("the pod is Failed before its processes are gone")
	}
	a.setRecord(ended(r))
	c.await("the pod is Failed", func() bool { return failed(c.pods["shop/web"], r.ID) })
	c.await("two events exist", func() bool { return len(c.events) == 2 })
	id := strings.ToLower(r.ID)
	if got, want := c.reasons(), []string{"default/n1." + id + " EvictionThresholdMet", "shop/web." + id + " Evicted"}; !slices.Equal(got, want) {
		t.Errorf("events are %v, want %v", got, want)
	}
	e := c.events["shop/web."+id]
	if e.Message != message || e.Annotations["starved_resource"] != "memory" || e.InvolvedObject.UID != "u1" || e.Source.Host != "n1" {
		t.Errorf("event is %+v, want the record's message and annotations", e)
	}
	stop()
	before, patches := c.created, c.counted["PATCH namespaces status"]
	stop = start(t, c, a, nil)
	c.await("another bridge has sent the events", func() bool { return len(c.created) == 2 && c.counted["POST namespaces events"] == 4 })
	stop()
	if patches != 2 || c.counted["PATCH namespaces status"] != patches || !slices.Equal(c.created, before) {
		t.Errorf("%d patches, then %d, events %v, want no repetition", patches, c.counted["PATCH namespaces status"], c.created)
	}
}

// If a bridge ends between the kill and the patch, the next one writes it.
func TestBridgeEndsBetweenKillAndPatch(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	pod := running("web", "u1")
	c.put(pod)
	r := evicted(pod, 1, api.OutcomeBack)
	reached := make(chan struct{}, 100)
	c.fault = func(r *http.Request) int {
		if r.Method == "PATCH" && strings.HasSuffix(r.URL.Path, "web/status") {
			reached <- struct{}{}
			return -1
		}
		return 0
	}
	stop := start(t, c, a, nil)
	a.setRecord(r)
	<-reached
	stop()
	if p := c.pod("shop/web"); p.Status.Phase != v1.PodRunning {
		t.Fatalf("pod status is %+v, want no write", p.Status)
	}
	c.change(func() { c.fault = nil })
	start(t, c, a, nil)
	c.await("the next bridge has set the pod to Failed", func() bool { return failed(c.pods["shop/web"], r.ID) && len(c.events) == 2 })
}

// Three pods are evicted during an outage: afterwards all are written in order, once.
func TestEvictionsDuringAnOutage(t *testing.T) {
	for name, fault := range map[string]int{"unavailable": 503, "hangs": -1, "too many requests": 429, "internal error": 500, "knows no roles yet": 403} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := newCluster(t), newAgent(t)
			var pods []*v1.Pod
			for i := range 3 {
				pods = append(pods, running(fmt.Sprint("p", i), fmt.Sprint("u", i)))
				c.put(pods[i])
			}
			start(t, c, a, nil)
			a.await("the agent knows the pods", func() bool { return len(a.pods) == 3 })
			tried := make(chan struct{}, 1000)
			var order []string
			c.change(func() {
				c.fault = func(r *http.Request) int {
					if r.URL.Query().Get("watch") != "" {
						return 0
					}
					tried <- struct{}{}
					return fault
				}
				c.patched = func(_, is *v1.Pod, p podPatch) {
					if p.Status.Phase != "" {
						order = append(order, is.Name)
					}
				}
			})
			for i, p := range pods {
				a.setRecord(evicted(p, i, api.OutcomeBack))
			}
			<-tried
			<-tried
			c.change(func() { c.fault = nil })
			c.await("all are written", func() bool { return len(c.events) == 6 && len(order) == 3 })
			if fault != 500 && fault != 403 && !slices.Equal(order, []string{"p0", "p1", "p2"}) {
				t.Errorf("order of writes is %v, want that of the evictions", order)
			}
			if slices.Sort(c.created); len(slices.Compact(c.created)) != 6 {
				t.Errorf("created events are %v, want each once", c.created)
			}
		})
	}
}

// Pods that are no longer the victim's are not written, and events are sent anyway.
func TestPodsThatAreNotWritten(t *testing.T) {
	later := metav1.NewTime(time.Now())
	for name, change := range map[string]func(*v1.Pod){
		"another UID":      func(p *v1.Pod) { p.UID = "another" },
		"failed by itself": func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "" },
		"succeeded":        func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
		"a mirror":         func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} },
		"being deleted":    func(p *v1.Pod) { p.DeletionTimestamp = &later },
		"started since":    func(p *v1.Pod) { p.Status.ContainerStatuses[0].State.Running.StartedAt = later },
		"had started since": func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{StartedAt: later}
		},
		"gone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := newCluster(t), newAgent(t)
			pod := running("web", "u1")
			r := evicted(pod, 1, api.OutcomeBack)
			if change != nil {
				change(pod)
				c.put(pod)
			}
			a.setRecord(r)
			start(t, c, a, nil)
			c.await("two events exist", func() bool { return len(c.events) >= 2 })
			if strings.Contains(name, "started since") {
				c.await("a third event exists", func() bool { return len(c.events) == 3 })
				if !strings.Contains(fmt.Sprint(c.reasons()), "EvictionOutlived") {
					t.Errorf("events %v, want an outlived eviction", c.reasons())
				}
			}
			if n := c.counted["PATCH namespaces status"]; n != 0 {
				t.Errorf("%d patches sent, want none", n)
			}
		})
	}
}

// The mark of a victim that was not killed is removed, and an event reports it.
func TestAbandonedEviction(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	pod := running("web", "u1")
	c.put(pod)
	r := evicted(pod, 1, api.OutcomeRunning)
	a.setRecord(r)
	start(t, c, a, nil)
	c.await("the pod is marked", func() bool { return c.counted["PATCH namespaces status"] == 1 })
	r.Outcome, r.Complete = api.OutcomeUndying, true
	a.setRecord(r)
	c.await("the mark is removed", func() bool {
		return is(c.pods["shop/web"], v1.DisruptionTarget, v1.ConditionFalse, "EvictionByJettison") && len(c.events) == 1
	})
	if !strings.HasSuffix(c.reasons()[0], "EvictionAbandoned") || c.pod("shop/web").Status.Phase != v1.PodRunning {
		t.Errorf("events %v, pod status %v, want the mark removed", c.reasons(), c.pod("shop/web").Status)
	}
}

// A status that a kubelet overwrites with a late report is restored, whatever it removes.
func TestRevertedStatusIsRestored(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"the phase":  func(p *v1.Pod) { p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodRunning, "", "" },
		"the reason": func(p *v1.Pod) { p.Status.Reason, p.Status.Message = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := newCluster(t), newAgent(t)
			pod := running("web", "u1")
			c.put(pod)
			r := evicted(pod, 1, api.OutcomeBack)
			r.Killed.Time = time.Now().Add(-verdict.KubeletGrace) // until then the kubelet may revert it
			a.setRecord(r)
			for n := 1; n <= 3; n++ { // a new bridge does not know when the pod was set to Failed
				stop := start(t, c, a, nil)
				c.await("the pod is Failed", func() bool { return failed(c.pods["shop/web"], r.ID) && c.counted["PATCH namespaces status"] == n })
				stop()
				back := c.pod("shop/web").DeepCopy()
				change(back)
				c.put(back)
			}
		})
	}
}

// The pod is changed, deleted or replaced while its patch is in flight.
func TestPodChangesDuringThePatch(t *testing.T) {
	for name, change := range map[string]func(c *cluster, p *v1.Pod){
		"changes": func(c *cluster, p *v1.Pod) {
			p.Labels["now"] = "another"
			c.store("shop/web", "MODIFIED", p)
		},
		"is deleted": func(c *cluster, _ *v1.Pod) { delete(c.pods, "shop/web") },
		"is replaced": func(c *cluster, p *v1.Pod) {
			p.UID = "another"
			c.store("shop/web", "ADDED", p)
		},
		"ends": func(c *cluster, p *v1.Pod) {
			p.Status.Phase = v1.PodSucceeded
			c.store("shop/web", "MODIFIED", p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := newCluster(t), newAgent(t)
			pod := running("web", "u1")
			c.put(pod)
			start(t, c, a, nil)
			a.await("the agent knows the pod", func() bool { return len(a.pods) == 1 })
			c.change(func() {
				c.refuse = func(is *v1.Pod, _ podPatch) int {
					c.refuse = nil
					change(c, is.DeepCopy())
					return http.StatusConflict
				}
			})
			r := evicted(pod, 1, api.OutcomeBack)
			a.setRecord(r)
			c.await("two events exist", func() bool { return len(c.events) == 2 })
			if p := c.pod("shop/web"); (name == "changes") != failed(p, r.ID) {
				t.Errorf("pod is %+v, want it written only if it is the victim", p)
			}
		})
	}
}

// With evictedStatus false only events are written.
func TestEventsOnly(t *testing.T) {
	for name, set := range map[string]func(c *cluster, o *Options){
		"by choice":               func(_ *cluster, o *Options) { o.EvictedStatus = false },
		"where the server is old": func(c *cluster, _ *Options) { c.minor = "29+" },
	} {
		c, a := newCluster(t), newAgent(t)
		pod := running("web", "u1")
		c.put(pod)
		r := evicted(pod, 1, api.OutcomeBack)
		r.HoldOffUntil = time.Now().Add(time.Minute)
		a.setRecord(r)
		stop := start(t, c, a, func(o *Options) { set(c, o) })
		c.await("two events exist", func() bool { return len(c.events) == 3 })
		stop()
		if n := c.counted["PATCH namespaces status"]; n != 0 || !strings.Contains(fmt.Sprint(c.reasons()), "EvictionHoldOff") {
			t.Errorf("%s: %d patches, events %v, want events only", name, n, c.reasons())
		}
	}
}

// A patch that a policy denies does not delay others.
func TestDeniedPatch(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	first, second := running("a", "u1"), running("b", "u2")
	c.put(first)
	c.put(second)
	c.refuse = func(p *v1.Pod, _ podPatch) int {
		if p.Name == "a" {
			return http.StatusForbidden
		}
		return 0
	}
	a.setRecord(evicted(first, 1, api.OutcomeBack))
	r := evicted(second, 2, api.OutcomeBack)
	a.setRecord(r)
	start(t, c, a, nil)
	c.await("the other pod is Failed, and both have events", func() bool { return failed(c.pods["shop/b"], r.ID) && len(c.events) == 4 })
}

// A record with an invalid pod name does not delay others.
func TestRecordWithAnInvalidPodName(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	good, nowhere := running("good", "u3"), running("b", "u2")
	nowhere.Namespace = ""
	c.put(good)
	start(t, c, a, nil)
	a.setRecord(evicted(running("a/b", "u1"), 1, api.OutcomeBack))
	a.setRecord(evicted(nowhere, 2, api.OutcomeBack))
	r := evicted(good, 3, api.OutcomeBack)
	a.setRecord(r)
	c.await("the other pod is Failed", func() bool { return failed(c.pods["shop/good"], r.ID) })
	c.await("its event exists", func() bool { return c.events["shop/good."+strings.ToLower(r.ID)] != nil })
}

// An eviction older than an hour has no events, but its pod is set to Failed.
func TestOldEviction(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	pod := running("web", "u1")
	pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now().Add(-5 * time.Hour))
	c.put(pod)
	r := evicted(pod, 1, api.OutcomeBack)
	r.Began.Time, r.Killed.Time, r.Emptied.Time = time.Now().Add(-2*time.Hour), time.Now().Add(-2*time.Hour), time.Now().Add(-2*time.Hour)
	a.setRecord(r)
	stop := start(t, c, a, nil)
	c.await("the pod is Failed", func() bool { return failed(c.pods["shop/web"], r.ID) })
	stop()
	if len(c.events) != 0 {
		t.Errorf("events of an old eviction: %v, want none", c.reasons())
	}
}

// Agents with an older or newer minor version send fewer or more fields: evictions are written
// anyway.
func TestAgentsOfOtherVersions(t *testing.T) {
	for name, c := range map[string]struct {
		minor, later string
		change       func(*api.Record)
	}{
		"older": {"", "", func(r *api.Record) {
			r.Complete, r.Cleaned, r.StatusReason, r.Disruption, r.Annotations = false, api.Stamp{}, "", false, nil
			r.Began.Time, r.Killed.Time = r.Began.Time.Add(-2*verdict.SandboxTimeout), r.Killed.Time.Add(-2*verdict.SandboxTimeout)
			r.Emptied.Time = r.Killed.Time
		}},
		"newer": {strconv.Itoa(api.Minor + 1), `{"later": {"a": 1}}` + "\n", func(*api.Record) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, a := newCluster(t), newAgent(t)
			a.minor, a.later, a.state = c.minor, c.later, &api.State{Time: time.Now(), Kubelet: true}
			pod := running("web", "u1")
			server.put(pod)
			r := evicted(pod, 1, api.OutcomeBack)
			c.change(&r)
			a.setRecord(r)
			start(t, server, a, nil)
			server.await("the pod is Failed", func() bool {
				p := server.pods["shop/web"]
				return p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted" && p.Annotations[verdict.Annotation] == r.ID
			})
			server.await("events and node conditions exist", func() bool {
				return len(server.events) == 2 && len(server.node.Status.Conditions) == 3
			})
		})
	}
}

func TestRunRejectsInvalidOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"node name unknown: set NODE_NAME":       {},
		`node name "A_B"`:                        {Node: "A_B"},
		"transition period -1ns: want 0 or more": {Node: "n1", TransitionPeriod: -1},
		`node name "n2": the token is bound to node "n1"`: {Node: "n2", API: &rest.Config{BearerToken: "h." +
			base64.RawURLEncoding.EncodeToString([]byte(`{"kubernetes.io": {"node": {"name": "n1"}}}`)) + ".s"}},
	} {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}
