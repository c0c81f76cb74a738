package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/cluster/config"
	"jettison/internal/cluster/report"
)

// testLog writes the log of a replica to the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// replica is a running jettison-cluster nodes.
type replica struct {
	ctrl       *controller
	stop       func() // orderly
	ended      chan struct{}
	err        error  // of the run, after ended is closed
	disconnect func() // from the API server, permanently
}

// start starts a replica in mode replace, which runs until the test stops it. change modifies its
// configuration.
func (a *api) start(name string, change func(*config.Cluster)) *replica {
	a.t.Helper()
	r := a.startAny(name, change)
	stop := r.stop
	r.stop = func() {
		if stop(); r.err != nil {
			a.t.Errorf("run of replica %s ended with error %v, want none", name, r.err)
		}
	}
	return r
}

// startAny starts such a replica, which may end with an error.
func (a *api) startAny(name string, change func(*config.Cluster)) *replica {
	a.t.Helper()
	c := config.Default()
	c.Mode, c.ModeSet, c.OthersDisabled, c.Address = config.Replace, true, true, ""
	if change != nil {
		change(c)
	}
	where, cut := a.serve(name)
	o := Options{Config: c, API: where, Version: "test", Log: slog.New(slog.NewTextHandler(testLog{a.t}, nil)).With("replica", name)}
	p, err := newController(&o)
	if err != nil {
		a.t.Fatal(err)
	}
	p.serverClock.WallClock = a.wallClock
	if a.checkDead != nil {
		p.deps.CheckDead = a.checkDead
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	r := &replica{ctrl: p, disconnect: sync.OnceFunc(cut), ended: make(chan struct{})}
	r.stop = func() {
		cancel()
		<-r.ended
	}
	go func() {
		defer close(r.ended)
		r.err = p.run(ctx, &o)
	}()
	a.replicas = append(a.replicas, r)
	return r
}

// inCluster runs a scenario in virtual time, on a cluster of nodes with one pod each that tolerates
// every taint for that many seconds; below 0: not at all. At the end it stops all replicas.
func inCluster(t *testing.T, nodes int, seconds int64, scenario func(t *testing.T, a *api, k *kubelets)) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(nodes, seconds)
		scenario(t, a, k)
		k.end()
		stopAll(a.replicas...)
	})
}

// stopAll stops replicas and their servers.
func stopAll(replicas ...*replica) {
	for _, r := range replicas {
		r.stop()
		r.disconnect()
	}
	// the end of a connection may be unread for readInterval, and an answer is delayed by 40 s at most
	time.Sleep(max(readInterval, time.Minute))
	synctest.Wait()
}

// kubelets renews the Leases of live nodes.
type kubelets struct {
	a     *api
	alive map[string]bool // guarded by a.mu
	stop  chan struct{}
	done  chan struct{}
}

// cluster creates nodes n0, n1, ... with pods n0-p0, ... that tolerate every taint for that many
// seconds; below 0: not at all.
func (a *api) cluster(nodes int, seconds ...int64) *kubelets {
	k := &kubelets{a: a, alive: map[string]bool{}, stop: make(chan struct{}), done: make(chan struct{})}
	a.change(func() {
		for i := range nodes {
			name := fmt.Sprint("n", i)
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name), Labels: map[string]string{"x": "y"}}}
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
			a.putNode(n)
			k.alive[name] = true
			for j, s := range seconds {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("%s-p%d", name, j), UID: types.UID(fmt.Sprintf("u-%s-p%d", name, j))}}
				p.Spec.NodeName = name
				p.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
				if s >= 0 {
					p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &s}}
				}
				a.putPod(p)
			}
		}
	})
	k.renew()
	go func() {
		defer close(k.done)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				k.renew()
			case <-k.stop:
				return
			}
		}
	}()
	return k
}

func (k *kubelets) renew() {
	k.a.change(func() {
		now := metav1.NewTime(time.Now().Add(k.a.skew).Truncate(time.Second))
		micro := metav1.NowMicro()
		for name, alive := range k.alive {
			if !alive {
				continue
			}
			l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: name,
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &now}}}, Spec: coordination.LeaseSpec{RenewTime: &micro}}
			k.a.putLease(l)
			if n := k.a.nodes[name].DeepCopy(); n.Status.Conditions[readyIndex(n)].Status != v1.ConditionTrue {
				n.Status.Conditions[readyIndex(n)] = v1.NodeCondition{
					Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
				}
				k.a.putNode(n)
			}
		}
	})
}

func readyIndex(n *v1.Node) int {
	return slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady })
}

// setAlive kills or revives a kubelet.
func (k *kubelets) setAlive(name string, alive bool) {
	k.a.change(func() { k.alive[name] = alive })
}

func (k *kubelets) end() {
	close(k.stop)
	<-k.done
}

// hasTaint reports whether a node has a taint. The lock must be held.
func (a *api) hasTaint(node, key string, effect v1.TaintEffect) bool {
	return slices.ContainsFunc(a.nodes[node].Spec.Taints, func(t v1.Taint) bool { return t.Key == key && t.Effect == effect })
}

// A node with a dead kubelet becomes Unknown at the end of its grace period and gets its taints.
// Its pods are deleted at their deadlines, once each, with DisruptionTarget. Nothing is listed
// after the start.
func TestDeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1, 30)
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.setAlive("n1", false)
		dies := a.startedAt.Add(20 * time.Second) // its last renewal
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		if late := time.Since(dies.Add(50 * time.Second)); late < 0 || late > 200*time.Millisecond {
			t.Errorf("taint %v after the grace period, want 0 to 200ms", late)
		}
		time.Sleep(time.Minute)
		tainted := a.writes("taints")[0].written.Spec.Taints[0].TimeAdded.Time
		var got []string
		for _, w := range a.writes("delete") {
			got = append(got, fmt.Sprint(w.what, " ", w.at.Sub(tainted).Truncate(time.Second), " ", w.disrupts, " ", w.uid == w.pod.UID))
		}
		if want := []string{"delete d/n1-p0 0s true true", "delete d/n1-p1 30s true true"}; !slices.Equal(got, want) {
			t.Errorf("deletions = %q, want %q", got, want)
		}
		reasons := map[string]int{}
		a.change(func() {
			for _, e := range a.events {
				reasons[e.Source.Component+" "+e.InvolvedObject.Kind+" "+e.Reason]++
			}
		})
		for _, want := range []string{"node-controller Node RegisteredNode", "node-controller Node NodeNotReady", "node-controller Pod NodeNotReady",
			"taint-eviction-controller Pod TaintManagerEviction"} {
			if reasons[want] == 0 {
				t.Errorf("event %q is missing, got events %v", want, reasons)
			}
		}
		k.setAlive("n1", true)
		a.await("node n1 without taints", func() bool { return len(a.nodes["n1"].Spec.Taints) == 0 })
		for _, kind := range []string{"nodes", "leases", "pods"} {
			if n := a.count("LIST " + kind); n != 1 {
				t.Errorf("%s are listed %d times, want once", kind, n)
			}
		}
		k.end()
		stopAll(r)
	})
}

// If a watch omits one object, the object is read again before a decision depends on it.
func TestLaggingWatch(t *testing.T) {
	t.Run("lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			k := a.cluster(3, -1)
			r := a.start("a", nil)
			time.Sleep(25 * time.Second)
			a.change(func() { a.hidden = "n1" })
			time.Sleep(5 * time.Minute)
			for _, w := range a.writes() {
				t.Errorf("%v: write %s although all nodes are alive", w.at.Sub(a.startedAt), w.what)
			}
			a.change(func() {
				for _, e := range a.events {
					if e.Reason == "NodeNotReady" {
						t.Errorf("event of %s %s: %s, although all nodes are alive", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
					}
				}
			})
			if a.count("FIND leases") == 0 {
				t.Error("the Lease of n1 was not read again")
			}
			k.setAlive("n1", false)
			a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
			k.end()
			stopAll(r)
		})
	})
	t.Run("taint", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			k := a.cluster(3, 30)
			r := a.start("a", nil)
			taint := func(all ...v1.Taint) {
				n := a.nodes["n1"].DeepCopy()
				n.Spec.Taints = all
				a.putNode(n)
			}
			time.Sleep(25 * time.Second)
			added := metav1.Now()
			a.change(func() { taint(v1.Taint{Key: "k", Effect: v1.TaintEffectNoExecute, TimeAdded: &added}) })
			time.Sleep(20 * time.Second)
			a.change(func() {
				a.hidden = "n1"
				taint()
			})
			time.Sleep(time.Minute)
			for _, w := range a.writes("delete", "condition") {
				t.Errorf("%v: write %s although the node has no taint any more", w.at.Sub(added.Time), w.what)
			}
			k.end()
			stopAll(r)
		})
	})
}

// A pending eviction is dropped if the node lost the taint and got it again: the toleration period
// starts again. The same is true if the watch shows neither change.
func TestTaintIsReplacedWhileEvictionIsPending(t *testing.T) {
	for name, behind := range map[string]string{"watch current": "", "watch lagging": "n1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				k := a.cluster(2, 30)
				a.change(func() {
					for i := range 40 {
						p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprint("crowd", i), UID: types.UID(fmt.Sprint("crowd", i))}}
						p.Spec.NodeName, p.Status.Phase = "n0", v1.PodRunning
						a.putPod(p)
					}
				})
				r := a.start("a", nil)
				set := func(node string, all ...v1.Taint) {
					n := a.nodes[node].DeepCopy()
					n.Spec.Taints = all
					a.putNode(n)
				}
				now := func() v1.Taint {
					added := metav1.Now()
					return v1.Taint{Key: "k", Effect: v1.TaintEffectNoExecute, TimeAdded: &added}
				}
				time.Sleep(15 * time.Second)
				a.change(func() { set("n1", now()) })
				time.Sleep(29 * time.Second)
				a.change(func() {
					set("n0", now())
					a.fault = func(_ string, r *http.Request) int {
						if strings.Contains(r.URL.Path, "/crowd") {
							return -1 // these requests block all workers for pods
						}
						return 0
					}
				})
				time.Sleep(3 * time.Second)
				a.change(func() {
					a.hidden = behind
					set("n1")
				})
				time.Sleep(2 * time.Second)
				setAgain := time.Now()
				a.change(func() { set("n1", now()) })
				time.Sleep(11 * time.Second)
				a.change(func() { a.fault = nil })
				time.Sleep(time.Minute)
				goes := false
				for _, w := range a.writes("delete") {
					if w.what != "delete d/n1-p0" {
						continue
					}
					if goes = true; w.at.Sub(setAgain) < 29*time.Second {
						t.Errorf("%s %v after its node got the taint again, want at least 29s", w.what, w.at.Sub(setAgain))
					}
				}
				if !goes {
					t.Error("pod d/n1-p0 is not deleted")
				}
				k.end()
				stopAll(r)
			})
		})
	}
}

// With a clock difference of more than a minute no live node becomes Unknown, and a dead one does
// at the end of its grace period.
func TestClockSkew(t *testing.T) {
	for _, wrong := range []time.Duration{-70 * time.Second, 70 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			a.skew = wrong
			k := a.cluster(3, -1)
			r := a.start("a", nil)
			time.Sleep(25 * time.Second)
			for _, w := range a.writes() {
				t.Errorf("skew %v: %v: write %s although all nodes are alive", wrong, w.at.Sub(a.startedAt), w.what)
			}
			k.setAlive("n1", false)
			time.Sleep(time.Second)
			r.stop()
			r.disconnect()
			r = a.start("b", nil)
			a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoSchedule) })
			if after := time.Since(a.startedAt.Add(20 * time.Second)); after < 49*time.Second || after > 55*time.Second {
				t.Errorf("skew %v: silent %v after the last renewal, want 49s to 55s", wrong, after)
			}
			k.end()
			stopAll(r)
		})
	}
}

// The write of a silent node's status directly follows the read of its Lease, without a retry that
// the API server asks for.
func TestNodeRecoversWhileServerIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3)
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.setAlive("n1", false)
		a.change(func() {
			a.busy = func(r *http.Request) bool { return r.Method == "PATCH" && strings.HasSuffix(r.URL.Path, "/n1/status") }
		})
		time.Sleep(50 * time.Second) // silent at 70 s, renewed at 75 s
		k.setAlive("n1", true)
		k.renew()
		time.Sleep(500 * time.Millisecond)
		a.change(func() { a.busy = nil })
		time.Sleep(time.Minute)
		for _, w := range a.writes("status") {
			t.Errorf("%v: write %s, %v after the node's renewal", w.at.Sub(a.startedAt), w.what, w.at.Sub(w.renewedAt))
		}
		k.end()
		stopAll(r)
	})
}

// A taint that another client changes between the decision and the write is kept, also when labels
// are written.
func TestForeignTaintIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3)
		r := a.start("a", nil)
		time.Sleep(15 * time.Second)
		set := false
		a.change(func() {
			n := a.nodes["n1"].DeepCopy()
			n.Labels[v1.LabelOSStable], n.Spec.Unschedulable = "linux", true
			a.putNode(n)
			a.fault = func(_ string, r *http.Request) int {
				if r.Method == "PATCH" && strings.HasSuffix(r.URL.Path, "/n1") && !set {
					set = true
					a.change(func() {
						n := a.nodes["n1"].DeepCopy()
						n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "theirs", Effect: v1.TaintEffectNoSchedule})
						a.putNode(n)
					})
				}
				return 0
			}
		})
		time.Sleep(time.Minute)
		a.change(func() {
			if !a.hasTaint("n1", "theirs", v1.TaintEffectNoSchedule) || !a.hasTaint("n1", v1.TaintNodeUnschedulable, v1.TaintEffectNoSchedule) ||
				a.nodes["n1"].Labels["beta.kubernetes.io/os"] != "linux" {
				t.Errorf("node n1 has spec %+v and labels %v, want both taints and the label", a.nodes["n1"].Spec, a.nodes["n1"].Labels)
			}
		})
		k.end()
		stopAll(r)
	})
}

// If the last live node's Lease is missing in the watch, all nodes look dead. The dead nodes keep
// their taints and their pods are deleted at their deadlines, because the Lease is read again
// first.
func TestLastLiveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, 300)
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.setAlive("n0", false)
		k.setAlive("n2", false)
		a.await("nodes n0 and n2 tainted", func() bool {
			return a.hasTaint("n0", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) && a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute)
		})
		time.Sleep(15 * time.Second)
		a.change(func() { a.hidden = "n1" })
		at := time.Now()
		time.Sleep(10 * time.Minute)
		for _, w := range a.writes("taints", "status") {
			if w.at.After(at) {
				t.Errorf("%v: write %s with taints %+v, want none", w.at.Sub(at), w.what, w.written.Spec.Taints)
			}
		}
		if got := len(a.writes("delete")); got != 2 {
			t.Errorf("%d pods are deleted, want 2", got)
		}
		a.change(func() { a.hidden = "" })
		time.Sleep(time.Minute)
		k.setAlive("n1", false)
		a.await("full disruption", func() bool { return len(a.nodes["n0"].Spec.Taints) == 1 && len(a.nodes["n2"].Spec.Taints) == 1 })
		k.end()
		stopAll(r)
	})
}

// The event NodeNotReady is sent only after the status is written: if the write fails, the node may
// be alive at the retry.
func TestEventFollowsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3)
		fails := true
		a.fault = func(_ string, r *http.Request) int {
			a.mu.Lock()
			defer a.mu.Unlock()
			if fails && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/n1/status") {
				return http.StatusInternalServerError
			}
			return 0
		}
		notReadyEvents := func() (count int) {
			for _, e := range a.events {
				if e.InvolvedObject.Kind == "Node" && e.Reason == "NodeNotReady" {
					count++
				}
			}
			return count
		}
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.setAlive("n1", false)
		time.Sleep(2 * time.Minute)
		a.change(func() {
			if a.counted["PATCH nodes"] > 0 || notReadyEvents() > 0 {
				t.Errorf("%d writes and %d events while writes fail, want none", a.counted["PATCH nodes"], notReadyEvents())
			}
			fails = false
		})
		time.Sleep(time.Minute)
		a.change(func() {
			if notReadyEvents() != 1 {
				t.Errorf("%d events after the write, want 1", notReadyEvents())
			}
		})
		k.end()
		stopAll(r)
	})
}

// A condition that a kubelet posts is acted on immediately, not at the next pass.
func TestConditionIsActedOnImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3)
		r := a.start("a", nil)
		time.Sleep(21 * time.Second)
		posted := time.Now()
		a.change(func() {
			n := a.nodes["n1"].DeepCopy()
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
			a.putNode(n)
		})
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule) })
		if took := time.Since(posted); took > 100*time.Millisecond {
			t.Errorf("taint %v after the condition, want within 100ms", took)
		}
		k.end()
		stopAll(r)
	})
}

// If a replica stops or loses its connection between taint and deletion, another one takes over:
// each pod is deleted once, at its deadline.
func TestReplicaTakesOver(t *testing.T) {
	for _, how := range []string{"stopped", "cut off"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			k := a.cluster(3, 30, 60)
			one := a.start("one", nil)
			a.await("one leads", func() bool { return a.counted["POST leases"] > 0 })
			other := a.start("other", nil)
			time.Sleep(5 * time.Second)
			k.setAlive("n2", false)
			a.await("node n2 tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
			tainted := time.Now()
			time.Sleep(5 * time.Second)
			gone := time.Now()
			if how == "stopped" {
				one.stop()
			} else {
				one.disconnect()
			}
			a.await("other leads", func() bool { return other.ctrl.leader.Holds() })
			if took := time.Since(gone); how == "stopped" && took > 2*time.Second || took > 17*time.Second {
				t.Errorf("%s: takeover after %v, want within 2s when stopped and 17s else", how, took)
			}
			time.Sleep(2 * time.Minute)
			var got []string
			for _, w := range a.writes("delete") {
				got = append(got, fmt.Sprint(w.client, " ", w.what))
				if after := w.at.Sub(tainted); after < 29*time.Second || after > 62*time.Second {
					t.Errorf("%s: %s %v after the taint, want 29s to 62s", how, w.what, after)
				}
			}
			if want := []string{"other delete d/n2-p0", "other delete d/n2-p1"}; !slices.Equal(got, want) {
				t.Errorf("%s: deletions = %q, want %q", how, got, want)
			}
			if n := len(a.writes("taints")); n != 1 {
				t.Errorf("%s: taints are written %d times, want once", how, n)
			}
			k.end()
			if how == "stopped" {
				one.disconnect()
				stopAll(other)
				return
			}
			one.stop()
			stopAll(other)
		})
	}
}

// Mode observe writes nothing at all, not even a Lease.
func TestObserveWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1, 30)
		r := a.start("a", func(c *config.Cluster) { c.Mode = config.Observe })
		k.setAlive("n1", false)
		time.Sleep(3 * time.Minute)
		a.change(func() {
			for what, n := range a.counted {
				if verb, _, _ := strings.Cut(what, " "); verb != "WATCH" && verb != "LIST" && verb != "PROBE" {
					t.Errorf("%d requests %s in mode observe, want none", n, what)
				}
			}
		})
		var s report.Status
		query(t, r, report.StatusPath, &s)
		if len(s.Nodes) != 3 || s.Nodes[1].Health != "Unknown" || s.Nodes[1].Place != 1 {
			t.Errorf("status of nodes = %+v, want n1 Unknown in place 1 of three nodes", s.Nodes)
		}
		k.end()
		stopAll(r)
	})
}

// query sends a request from the same host.
func query(t *testing.T, r *replica, path string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	q.RemoteAddr = "127.0.0.1:1"
	r.ctrl.handler().ServeHTTP(w, q)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("response of %s is no JSON: %v: %s", path, err, w.Body)
		}
	}
	return w.Code
}

// Mode replace waits while another controller writes the same taints.
func TestReplaceWaitsForRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1)
		a.change(func() {
			n, now := a.nodes["n0"].DeepCopy(), metav1.Now()
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", Time: &now,
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
			a.putNode(n)
		})
		r := a.start("a", nil)
		k.setAlive("n1", false)
		time.Sleep(4 * time.Minute)
		var s report.Status
		if query(t, r, report.StatusPath, &s); !strings.Contains(s.Held, "kube-controller-manager wrote taints of node n0") {
			t.Errorf("held = %q, want the rival and node n0", s.Held)
		}
		if len(s.Nodes) != 3 || s.Nodes[0].Health != "Ready" || s.Nodes[0].Heard == nil {
			t.Errorf("nodes while waiting = %+v, want three, n0 Ready", s.Nodes)
		}
		var e report.Explanation
		if query(t, r, report.ExplainPath+"?object=n0", &e); e.Node.Health != "Ready" {
			t.Errorf("node n0 while waiting = %+v, want Ready", e.Node)
		}
		if n := len(a.writes()); n != 0 {
			t.Errorf("%d writes while waiting, want none", n)
		}
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		if at := time.Since(a.startedAt); at > 6*time.Minute {
			t.Errorf("first write after %v, want within 6m", at)
		}
		k.end()
		stopAll(r)
	})
}

// A standby names the leader. The leader explains deadlines.
func TestStatusAndExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1, 300)
		one := a.start("one", nil)
		a.await("one leads", func() bool { return a.counted["POST leases"] > 0 })
		other := a.start("other", nil)
		time.Sleep(10 * time.Second)
		var why report.Error
		if code := query(t, other, report.StatusPath, &why); code != 503 || why.Leader != one.ctrl.leader.Identity() {
			t.Errorf("status of the standby = %d %+v, want 503 and leader %s", code, why, one.ctrl.leader.Identity())
		}
		k.setAlive("n1", false)
		a.await("pod n1-p0 deleted", func() bool { return len(a.writeLog) > 0 && a.writeLog[len(a.writeLog)-1].what == "delete d/n1-p0" })
		time.Sleep(time.Second)
		var e report.Explanation
		if code := query(t, one, report.ExplainPath+"?object=n1", &e); code != 200 || len(e.Pods) != 2 || e.Node.Health != "Unknown" {
			t.Fatalf("explain n1 = %d %+v, want two pods on an Unknown node", code, e)
		}
		if p := e.Pods[0]; !strings.Contains(p.Stays, "already terminating since") {
			t.Errorf("deleted pod = %+v, want already terminating", p)
		}
		p := e.Pods[1]
		if len(p.Taints) != 1 || p.Taints[0].Taint != "node.kubernetes.io/unreachable:NoExecute" || p.Taints[0].Toleration != "any:NoExecute for 300 s" ||
			p.Deadline == nil || !p.Deadline.Equal(p.Taints[0].Since.Add(300*time.Second)) {
			t.Errorf("tolerating pod = %+v, want one taint and a deadline after 300s", p)
		}
		if code := query(t, one, report.ExplainPath+"?object=d/n1-p1", &e); code != 200 || len(e.Pods) != 1 {
			t.Errorf("explain d/n1-p1 = %d %+v, want one pod", code, e)
		}
		if code := query(t, one, report.ExplainPath+"?object=none", &why); code != 404 || !strings.Contains(why.Error, "default/none") {
			t.Errorf("explain none = %d %+v, want 404 naming default/none", code, why)
		}
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/else": 404} {
			if code := query(t, one, path, nil); code != want {
				t.Errorf("status code of %s = %d, want %d", path, code, want)
			}
		}
		k.end()
		stopAll(one, other)
	})
}

// In mode fence, kube-controller-manager evicts pods. explain shows when.
func TestExplainInModeFence(t *testing.T) {
	inCluster(t, 3, 300, func(t *testing.T, a *api, k *kubelets) {
		a.checkDead = func(context.Context, *v1.Node) (bool, error) { return false, nil }
		r := a.start("a", func(c *config.Cluster) { c.Mode, c.FenceURL = config.Fence, "http://unused/" })
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		added := metav1.Now().Rfc3339Copy()
		a.change(func() {
			a.setUnknown("n1")
			n := a.nodes["n1"].DeepCopy()
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute, TimeAdded: &added}}
			a.putNode(n)
		})
		time.Sleep(4 * time.Minute)
		var e report.Explanation
		if code := query(t, r, report.ExplainPath+"?object=n1", &e); code != 200 || len(e.Pods) != 1 || e.Pods[0].Deadline == nil {
			t.Fatalf("explain n1 = %d %+v, want one pod with a deadline", code, e)
		}
		if after := e.Pods[0].Deadline.Sub(added.Time); after.Round(time.Second) != 5*time.Minute {
			t.Errorf("deadline %v after the taint was added, want 5m", after)
		}
	})
}

// Other hosts can read health and metrics but no names of nodes and pods.
func TestStatusIsLocalOnly(t *testing.T) {
	p := &controller{metrics: newMetrics("test")}
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), "GET", report.StatusPath, nil)
	q.RemoteAddr = "10.0.0.7:1"
	if p.handler().ServeHTTP(w, q); w.Code != 403 {
		t.Errorf("status for another host = %d %s, want 403", w.Code, w.Body)
	}
}

// The time for which a disruption budget may delay a deletion is not extended by a restart.
func TestBudgetPeriodOutlastsRestart(t *testing.T) {
	inCluster(t, 4, -1, func(t *testing.T, a *api, k *kubelets) {
		a.change(func() { a.budget = true })
		respect := func(c *config.Cluster) { c.RespectPDB, c.PDBTimeout = true, 3*time.Minute }
		r := a.start("a", respect)
		k.setAlive("n1", false)
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		tainted := time.Now()
		time.Sleep(2 * time.Minute)
		r.stop()
		r.disconnect()
		a.start("b", respect)
		a.await("pod n1-p0 deleted", func() bool { return len(a.writeLog) > 0 && a.writeLog[len(a.writeLog)-1].what == "delete d/n1-p0" })
		if after := time.Since(tainted); after < 3*time.Minute-time.Second || after > 3*time.Minute+30*time.Second {
			t.Errorf("pod deleted %v after the taint, want 3m to 3m30s", after)
		}
	})
}

// A disruption budget delays a deletion by at most --pdb-timeout.
func TestBudgetIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.budget = true
		k := a.cluster(3, -1)
		r := a.start("a", func(c *config.Cluster) { c.RespectPDB, c.PDBTimeout = true, 3*time.Minute })
		k.setAlive("n1", false)
		a.await("pod n1-p0 deleted", func() bool { return len(a.writeLog) > 0 && a.writeLog[len(a.writeLog)-1].what == "delete d/n1-p0" })
		w := a.writes("taints", "delete")
		if after := w[1].at.Sub(w[0].at); after < 3*time.Minute-time.Second || after > 3*time.Minute+30*time.Second || a.count("blocked eviction") < 3 {
			t.Errorf("pod deleted after %v and %d blocked evictions, want 3m to 3m30s and at least 3", after, a.count("blocked eviction"))
		}
		k.end()
		stopAll(r)
	})
}

// Blocked pod writes do not delay a node's taints. The API server asks for a retry after ten
// seconds while it has not evaluated a budget
// (k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go, 1.37.2), or requests hang.
func TestPodsDoNotDelayNodes(t *testing.T) {
	for _, how := range []string{"later", "hangs"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			a.budget, a.retryAfter = true, how == "later"
			if how == "hangs" {
				a.fault = func(_ string, r *http.Request) int {
					if strings.HasSuffix(r.URL.Path, "/eviction") {
						a.change(func() { a.counted["blocked eviction"]++ })
						return -1
					}
					return 0
				}
			}
			k := a.cluster(3, slices.Repeat([]int64{-1}, 2*workers)...)
			r := a.start("a", func(c *config.Cluster) { c.RespectPDB = true })
			k.setAlive("n1", false)
			most := workers
			if how == "hangs" {
				most = maxPodWrites
			}
			a.await("evictions attempted", func() bool { return a.counted["blocked eviction"] >= most })
			posted := time.Now()
			a.change(func() {
				n := a.nodes["n2"].DeepCopy()
				n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
				a.putNode(n)
			})
			a.await("node n2 tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule) })
			if took := time.Since(posted); took > 100*time.Millisecond {
				t.Errorf("%s: taint %v after the condition, want within 100ms", how, took)
			}
			k.end()
			stopAll(r)
		})
	}
}

// Writes to silent nodes that hang, for example because of a webhook, do not delay the deletion of a
// pod of another node.
func TestNodesDoNotDelayPods(t *testing.T) {
	inCluster(t, maxNodeWrites+10, -1, func(t *testing.T, a *api, k *kubelets) {
		a.fault = func(_ string, r *http.Request) int {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/nodes/") {
				a.change(func() { a.counted["hung write"]++ })
				return -1
			}
			return 0
		}
		a.start("a", nil)
		time.Sleep(15 * time.Second)
		for i := range maxNodeWrites + 5 {
			k.setAlive(fmt.Sprint("n", i+1), false)
		}
		a.await("writes to nodes hang", func() bool { return a.counted["hung write"] >= maxNodeWrites })
		tainted := time.Now()
		a.change(func() {
			n := a.nodes["n0"].DeepCopy()
			n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: tainted}}}
			a.putNode(n)
		})
		time.Sleep(30 * time.Second)
		if w := a.writes("delete"); len(w) != 1 || w[0].at.Sub(tainted) > 5*time.Second {
			t.Errorf("deletions within 30s after the taint = %+v, want one within 5s", w)
		}
	})
}

// Mode fence adds one taint to a node that the check confirms dead, and removes it when the node is
// ready again.
func TestDeadNodeIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1)
		asked := 0
		a.checkDead = func(_ context.Context, n *v1.Node) (bool, error) {
			if asked++; n.Name != "n1" {
				t.Errorf("check of node %s, want n1 only", n.Name)
			}
			return asked == 2, nil
		}
		r := a.start("a", func(c *config.Cluster) { c.Mode, c.FenceURL = config.Fence, "http://unused/" })
		k.setAlive("n1", false)
		time.Sleep(time.Minute)
		a.change(func() { // as kube-controller-manager does
			n := a.nodes["n1"].DeepCopy()
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = v1.ConditionUnknown, metav1.Now()
			a.putNode(n)
		})
		unknown := time.Now()
		a.await("node n1 fenced", func() bool { return a.hasTaint("n1", v1.TaintNodeOutOfService, v1.TaintEffectNoExecute) })
		if after := time.Since(unknown); asked != 2 || after < 90*time.Second || after > 92*time.Second {
			t.Errorf("fenced %v after the transition and %d checks, want 90s to 92s and 2", after, asked)
		}
		k.setAlive("n1", true)
		a.await("node n1 unfenced", func() bool { return len(a.nodes["n1"].Spec.Taints) == 0 })
		if w := a.writes(); len(w) != 2 {
			t.Errorf("%d writes, want 2: the taint and its removal", len(w))
		}
		k.end()
		stopAll(r)
	})
}
