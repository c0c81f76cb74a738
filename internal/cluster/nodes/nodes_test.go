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

// lines are what is logged, for a test that fails.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// replica is one jettison-cluster nodes.
type replica struct {
	parts *parts
	stop  func() // cleanly
	cut   func() // from the API, for good
}

// start starts one. change changes its configuration.
func (a *api) start(name string, change func(*config.Cluster)) *replica {
	a.t.Helper()
	c := config.Default()
	c.Address = ""
	if change != nil {
		change(c)
	}
	where, cut := a.serve(name)
	o := Options{Config: c, API: where, Version: "test", Log: slog.New(slog.NewTextHandler(lines{a.t}, nil)).With("replica", name)}
	p, err := newParts(&o)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.run(ctx, &o); err != nil {
			a.t.Error(err)
		}
	}()
	return &replica{parts: p, cut: cut, stop: func() {
		cancel()
		<-done
	}}
}

// end ends replicas and whoever serves them.
func end(replicas ...*replica) {
	for _, r := range replicas {
		r.stop()
		r.cut()
	}
	time.Sleep(readGap) // until then an end of a connection may be unread
	synctest.Wait()
}

// kubelets renew the leases of nodes while they live.
type kubelets struct {
	a     *api
	alive map[string]bool // under a.mu
	stop  chan struct{}
	done  chan struct{}
}

// cluster makes nodes n0, n1, ... with pods n0-p0, ... that tolerate every taint for so many seconds; below 0: none.
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
		now := metav1.NewTime(time.Now().Add(k.a.clock).Truncate(time.Second))
		micro := metav1.NowMicro()
		for name, alive := range k.alive {
			if !alive {
				continue
			}
			l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: name,
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &now}}}, Spec: coordination.LeaseSpec{RenewTime: &micro}}
			k.a.putLease(l)
			if n := k.a.nodes[name].DeepCopy(); n.Status.Conditions[ready(n)].Status != v1.ConditionTrue {
				n.Status.Conditions[ready(n)] = v1.NodeCondition{
					Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
				}
				k.a.putNode(n)
			}
		}
	})
}

func ready(n *v1.Node) int {
	return slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady })
}

// live has a kubelet die, or come back.
func (k *kubelets) live(name string, alive bool) {
	k.a.change(func() { k.alive[name] = alive })
}

func (k *kubelets) end() {
	close(k.stop)
	<-k.done
}

// hasTaint is under the lock.
func (a *api) hasTaint(node, key string, effect v1.TaintEffect) bool {
	return slices.ContainsFunc(a.nodes[node].Spec.Taints, func(t v1.Taint) bool { return t.Key == key && t.Effect == effect })
}

// A kubelet that dies: its node is Unknown when its time is up, gets its taints, and its pods go when they have tolerated that for as long as
// they do: not before, and each once, with DisruptionTarget. Nothing is listed after the start.
func TestANodeThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1, 30)
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.live("n1", false)
		dies := a.began.Add(20 * time.Second) // it renewed last then
		a.await("tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		if late := time.Since(dies.Add(50 * time.Second)); late < 0 || late > 200*time.Millisecond {
			t.Errorf("the taint comes %v after the grace period", late)
		}
		time.Sleep(time.Minute)
		tainted := a.writes("taints")[0].is.Spec.Taints[0].TimeAdded.Time
		var got []string
		for _, w := range a.writes("delete") {
			got = append(got, fmt.Sprint(w.what, " ", w.at.Sub(tainted).Truncate(time.Second), " ", w.disrupts, " ", w.uid == w.pod.UID))
		}
		if want := []string{"delete d/n1-p0 0s true true", "delete d/n1-p1 30s true true"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
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
				t.Errorf("no event %s: %v", want, reasons)
			}
		}
		k.live("n1", true)
		a.await("back", func() bool { return len(a.nodes["n1"].Spec.Taints) == 0 })
		for _, kind := range []string{"nodes", "leases", "pods"} {
			if n := a.count("LIST " + kind); n != 1 {
				t.Errorf("%s are listed %d times", kind, n)
			}
		}
		k.end()
		end(r)
	})
}

// A watch that tells of other nodes and is behind with one: what it has not told of is asked before anything follows from it.
func TestAWatchThatIsBehind(t *testing.T) {
	t.Run("a lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			k := a.cluster(3, -1)
			r := a.start("a", nil)
			time.Sleep(25 * time.Second)
			a.change(func() { a.behind = "n1" })
			time.Sleep(5 * time.Minute)
			for _, w := range a.writes() {
				t.Errorf("%v: %s, of a cluster that lives", w.at.Sub(a.began), w.what)
			}
			a.change(func() {
				for _, e := range a.events {
					if e.Reason == "NodeNotReady" {
						t.Errorf("%s %s: %s, of a cluster that lives", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
					}
				}
			})
			if a.count("FIND leases") == 0 {
				t.Error("the lease of n1 was not asked for")
			}
			k.live("n1", false)
			a.await("tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
			k.end()
			end(r)
		})
	})
	t.Run("a taint", func(t *testing.T) {
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
				a.behind = "n1"
				taint()
			})
			time.Sleep(time.Minute)
			for _, w := range a.writes("delete", "condition") {
				t.Errorf("%v: %s, whose node has no taint any more", w.at.Sub(added.Time), w.what)
			}
			k.end()
			end(r)
		})
	})
}

// A pod that waits for its deletion stays where its node has lost the taint meanwhile, and has got it anew: its time begins again. So it does
// where a watch has told neither.
func TestATaintThatIsSetAnewWhileAPodWaits(t *testing.T) {
	for name, behind := range map[string]string{"as the watch tells": "", "behind the watch": "n1"} {
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
							return -1 // they keep all who write
						}
						return 0
					}
				})
				time.Sleep(3 * time.Second)
				a.change(func() {
					a.behind = behind
					set("n1")
				})
				time.Sleep(2 * time.Second)
				anew := time.Now()
				a.change(func() { set("n1", now()) })
				time.Sleep(11 * time.Second)
				a.change(func() { a.fault = nil })
				time.Sleep(time.Minute)
				goes := false
				for _, w := range a.writes("delete") {
					if w.what != "delete d/n1-p0" {
						continue
					}
					if goes = true; w.at.Sub(anew) < 29*time.Second {
						t.Errorf("%s %v after its node got the taint, which it tolerates for 30 s", w.what, w.at.Sub(anew))
					}
				}
				if !goes {
					t.Error("it stays")
				}
				k.end()
				end(r)
			})
		})
	}
}

// The clock of a replica is a minute before the API server's: no node that lives is Unknown for it, and one that dies is when its time is up.
func TestAClockThatIsWrong(t *testing.T) {
	for _, wrong := range []time.Duration{-70 * time.Second, 70 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			a.clock = wrong
			k := a.cluster(3, -1)
			r := a.start("a", nil)
			time.Sleep(25 * time.Second)
			for _, w := range a.writes() {
				t.Errorf("the API server's clock is at %v: %v: %s, of a cluster that lives", wrong, w.at.Sub(a.began), w.what)
			}
			k.live("n1", false)
			time.Sleep(time.Second)
			r.stop()
			r.cut()
			r = a.start("b", nil)
			a.await("silent", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoSchedule) })
			if after := time.Since(a.began.Add(20 * time.Second)); after < 49*time.Second || after > 55*time.Second {
				t.Errorf("the API server's clock is at %v: silent %v after it renewed last", wrong, after)
			}
			k.end()
			end(r)
		})
	}
}

// Between the look at a Lease and the write that its node is silent it is waited for nothing: the API server may say "later".
func TestANodeThatComesBackWhileTheAPIIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3)
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.live("n1", false)
		a.change(func() {
			a.busy = func(r *http.Request) bool { return r.Method == "PATCH" && strings.HasSuffix(r.URL.Path, "/n1/status") }
		})
		time.Sleep(50 * time.Second) // it was silent at 70 s, and is not at 75
		k.live("n1", true)
		k.renew()
		time.Sleep(500 * time.Millisecond)
		a.change(func() { a.busy = nil })
		time.Sleep(time.Minute)
		for _, w := range a.writes("status") {
			t.Errorf("%v: %s, which renewed %v ago", w.at.Sub(a.began), w.what, w.at.Sub(w.leased))
		}
		k.end()
		end(r)
	})
}

// A taint that somebody sets, or takes away, between what is decided and what is written is not written over, also where labels are written.
func TestATaintOfOthersIsKept(t *testing.T) {
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
				t.Errorf("%+v %v", a.nodes["n1"].Spec, a.nodes["n1"].Labels)
			}
		})
		k.end()
		end(r)
	})
}

// Where one node lives of all, and the watch of Leases is behind, it looks as if all were dead: those that are keep their taints, and their pods
// go when their time is up, since the Lease of the one is read again before anything follows of that.
func TestTheLastNodeThatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, 300)
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.live("n0", false)
		k.live("n2", false)
		a.await("tainted", func() bool {
			return a.hasTaint("n0", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) && a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute)
		})
		time.Sleep(15 * time.Second)
		a.change(func() { a.behind = "n1" })
		at := time.Now()
		time.Sleep(10 * time.Minute)
		for _, w := range a.writes("taints", "status") {
			if w.at.After(at) {
				t.Errorf("%v: %s: %+v", w.at.Sub(at), w.what, w.is.Spec.Taints)
			}
		}
		if got := len(a.writes("delete")); got != 2 {
			t.Errorf("%d pods are deleted, want 2", got)
		}
		a.change(func() { a.behind = "" })
		time.Sleep(time.Minute)
		k.live("n1", false)
		a.await("disorder", func() bool { return len(a.nodes["n0"].Spec.Taints) == 1 && len(a.nodes["n2"].Spec.Taints) == 1 })
		k.end()
		end(r)
	})
}

// That a node is not ready is told when it is written, and not before: whoever fails to write it may find the node alive at the next try.
func TestAnEventFollowsItsWrite(t *testing.T) {
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
		told := func() (count int) {
			for _, e := range a.events {
				if e.InvolvedObject.Kind == "Node" && e.Reason == "NodeNotReady" {
					count++
				}
			}
			return count
		}
		r := a.start("a", nil)
		time.Sleep(25 * time.Second)
		k.live("n1", false)
		time.Sleep(2 * time.Minute)
		a.change(func() {
			if a.counted["PATCH nodes"] > 0 || told() > 0 {
				t.Errorf("%d writes were let through, %d events are told of one that was not", a.counted["PATCH nodes"], told())
			}
			fails = false
		})
		time.Sleep(time.Minute)
		a.change(func() {
			if told() != 1 {
				t.Errorf("%d events are told of it", told())
			}
		})
		k.end()
		end(r)
	})
}

// What a kubelet says of its node is acted on at once, not at a next pass.
func TestAConditionIsActedOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3)
		r := a.start("a", nil)
		time.Sleep(21 * time.Second)
		said := time.Now()
		a.change(func() {
			n := a.nodes["n1"].DeepCopy()
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
			a.putNode(n)
		})
		a.await("tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule) })
		if took := time.Since(said); took > 100*time.Millisecond {
			t.Errorf("after %v", took)
		}
		k.end()
		end(r)
	})
}

// A replica that is stopped, or cut off, between taint and delete leaves the rest to the other: each pod goes once, at its time.
func TestAnotherReplicaGoesOn(t *testing.T) {
	for _, how := range []string{"stopped", "cut off"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			k := a.cluster(3, 30, 60)
			one := a.start("one", nil)
			a.await("led", func() bool { return a.counted["POST leases"] > 0 })
			other := a.start("other", nil)
			time.Sleep(5 * time.Second)
			k.live("n2", false)
			a.await("tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
			tainted := time.Now()
			time.Sleep(5 * time.Second)
			gone := time.Now()
			if how == "stopped" {
				one.stop()
			} else {
				one.cut()
			}
			a.await("taken over", func() bool { return other.parts.leader.Holds() })
			if took := time.Since(gone); how == "stopped" && took > 2*time.Second || took > 17*time.Second {
				t.Errorf("%s: taken over after %v", how, took)
			}
			time.Sleep(2 * time.Minute)
			var got []string
			for _, w := range a.writes("delete") {
				got = append(got, fmt.Sprint(w.client, " ", w.what))
				if after := w.at.Sub(tainted); after < 29*time.Second || after > 62*time.Second {
					t.Errorf("%s: %s after %v", how, w.what, after)
				}
			}
			if want := []string{"other delete d/n2-p0", "other delete d/n2-p1"}; !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", how, got, want)
			}
			if n := len(a.writes("taints")); n != 1 {
				t.Errorf("%s: taints are written %d times", how, n)
			}
			k.end()
			if how == "stopped" {
				one.cut()
				end(other)
				return
			}
			one.stop()
			end(other)
		})
	}
}

// Mode observe writes nothing at all, not even a lease.
func TestObserveWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1, 30)
		r := a.start("a", func(c *config.Cluster) { c.Mode = config.Observe })
		k.live("n1", false)
		time.Sleep(3 * time.Minute)
		a.change(func() {
			for what, n := range a.counted {
				if verb, _, _ := strings.Cut(what, " "); verb != "WATCH" && verb != "LIST" && verb != "PROBE" {
					t.Errorf("%s: %d", what, n)
				}
			}
		})
		var s report.Status
		ask(t, r, report.StatusPath, &s)
		if len(s.Nodes) != 3 || s.Nodes[1].Health != "Unknown" || s.Nodes[1].Place != 1 {
			t.Errorf("%+v", s)
		}
		k.end()
		end(r)
	})
}

// ask asks as from the same host.
func ask(t *testing.T, r *replica, path string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	q.RemoteAddr = "127.0.0.1:1"
	r.parts.handler().ServeHTTP(w, q)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w.Code
}

// Mode replace does not begin while another controller writes the same taints, and begins when it does not any more.
func TestReplaceWaitsForTheOther(t *testing.T) {
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
		k.live("n1", false)
		time.Sleep(4 * time.Minute)
		var s report.Status
		if ask(t, r, report.StatusPath, &s); !strings.Contains(s.Held, "kube-controller-manager, node n0") {
			t.Errorf("%+v", s)
		}
		if len(s.Nodes) != 3 || s.Nodes[0].Health != "Ready" || s.Nodes[0].Heard == nil {
			t.Errorf("while it does not act nodes are %+v", s.Nodes)
		}
		var e report.Explanation
		if ask(t, r, report.ExplainPath+"?object=n0", &e); e.Node.Health != "Ready" {
			t.Errorf("while it does not act node n0 is %+v", e.Node)
		}
		if n := len(a.writes()); n != 0 {
			t.Errorf("%d writes", n)
		}
		a.await("begun", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		if at := time.Since(a.began); at > 6*time.Minute {
			t.Errorf("begun after %v", at)
		}
		k.end()
		end(r)
	})
}

// A follower names the leader; the leader explains.
func TestStatusAndExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1, 300)
		one := a.start("one", nil)
		a.await("led", func() bool { return a.counted["POST leases"] > 0 })
		other := a.start("other", nil)
		time.Sleep(10 * time.Second)
		var why report.Error
		if code := ask(t, other, report.StatusPath, &why); code != 503 || why.Leader != one.parts.leader.Identity() {
			t.Errorf("%d %+v", code, why)
		}
		k.live("n1", false)
		a.await("gone", func() bool { return len(a.wrote) > 0 && a.wrote[len(a.wrote)-1].what == "delete d/n1-p0" })
		time.Sleep(time.Second)
		var e report.Explanation
		if code := ask(t, one, report.ExplainPath+"?object=n1", &e); code != 200 || len(e.Pods) != 2 || e.Node.Health != "Unknown" {
			t.Fatalf("%d %+v", code, e)
		}
		if p := e.Pods[0]; !strings.Contains(p.Stays, "it is going already") {
			t.Errorf("%+v", p)
		}
		p := e.Pods[1]
		if len(p.Taints) != 1 || p.Taints[0].Taint != "node.kubernetes.io/unreachable:NoExecute" || p.Taints[0].Toleration != "any:NoExecute for 300 s" ||
			p.Deadline == nil || !p.Deadline.Equal(p.Taints[0].Since.Add(300*time.Second)) {
			t.Errorf("%+v", p)
		}
		if code := ask(t, one, report.ExplainPath+"?object=d/n1-p1", &e); code != 200 || len(e.Pods) != 1 {
			t.Errorf("%d %+v", code, e)
		}
		if code := ask(t, one, report.ExplainPath+"?object=none", &why); code != 404 || !strings.Contains(why.Error, "default/none") {
			t.Errorf("%d %+v", code, why)
		}
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/else": 404} {
			if code := ask(t, one, path, nil); code != want {
				t.Errorf("%s: %d", path, code)
			}
		}
		k.end()
		end(one, other)
	})
}

// Whoever is not on the same host is told of health and metrics, and of no names.
func TestTheStatusIsForTheSameHost(t *testing.T) {
	p := &parts{metrics: newMetrics("test")}
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), "GET", report.StatusPath, nil)
	q.RemoteAddr = "10.0.0.7:1"
	if p.handler().ServeHTTP(w, q); w.Code != 403 {
		t.Error(w.Code, w.Body)
	}
}

// A disruption budget keeps a pod for as long as it is asked, no longer.
func TestABudgetIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.budget = true
		k := a.cluster(3, -1)
		r := a.start("a", func(c *config.Cluster) { c.RespectPDB, c.PDBTimeout = true, 3*time.Minute })
		k.live("n1", false)
		a.await("gone", func() bool { return len(a.wrote) > 0 && a.wrote[len(a.wrote)-1].what == "delete d/n1-p0" })
		w := a.writes("taints", "delete")
		if after := w[1].at.Sub(w[0].at); after < 3*time.Minute-time.Second || after > 3*time.Minute+30*time.Second || a.count("refused evict") < 3 {
			t.Errorf("deleted after %v, %d refusals", after, a.count("refused evict"))
		}
		k.end()
		end(r)
	})
}

// However pods keep workers waiting, a node's taints do not wait for that: where the API server says to ask in ten seconds about a budget that it
// has not looked at yet (k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go, 1.36.3), and where requests about pods hang.
func TestPodsHoldNoNodeUp(t *testing.T) {
	for _, how := range []string{"later", "hangs"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			a.budget, a.later = true, how == "later"
			if how == "hangs" {
				a.fault = func(_ string, r *http.Request) int {
					if strings.HasSuffix(r.URL.Path, "/eviction") {
						a.change(func() { a.counted["refused evict"]++ })
						return -1
					}
					return 0
				}
			}
			k := a.cluster(3, slices.Repeat([]int64{-1}, 2*workers)...)
			r := a.start("a", func(c *config.Cluster) { c.RespectPDB = true })
			k.live("n1", false)
			most := workers
			if how == "hangs" {
				most = maxPods
			}
			a.await("asked", func() bool { return a.counted["refused evict"] >= most })
			said := time.Now()
			a.change(func() {
				n := a.nodes["n2"].DeepCopy()
				n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
				a.putNode(n)
			})
			a.await("tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule) })
			if took := time.Since(said); took > 100*time.Millisecond {
				t.Errorf("%s: a node's taint comes after %v", how, took)
			}
			k.end()
			end(r)
		})
	}
}

// Mode fence writes one taint, on a node that the check confirms dead, and takes it back when the node is back.
func TestADeadNodeIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(3, -1)
		asked := 0
		r := a.start("a", func(c *config.Cluster) { c.Mode, c.FenceURL = config.Fence, "http://unused/" })
		r.parts.o.Check = func(_ context.Context, n *v1.Node) (bool, error) {
			if asked++; n.Name != "n1" {
				t.Errorf("asked about %s", n.Name)
			}
			return asked == 2, nil
		}
		k.live("n1", false)
		time.Sleep(time.Minute)
		a.change(func() { // as kube-controller-manager finds it
			n := a.nodes["n1"].DeepCopy()
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = v1.ConditionUnknown, metav1.Now()
			a.putNode(n)
		})
		unknown := time.Now()
		a.await("fenced", func() bool { return a.hasTaint("n1", v1.TaintNodeOutOfService, v1.TaintEffectNoExecute) })
		if after := time.Since(unknown); asked != 2 || after < 90*time.Second || after > 92*time.Second {
			t.Errorf("asked %d times, fenced after %v", asked, after)
		}
		k.live("n1", true)
		a.await("back", func() bool { return len(a.nodes["n1"].Spec.Taints) == 0 })
		if w := a.writes(); len(w) != 2 {
			t.Errorf("%d writes", len(w))
		}
		k.end()
		end(r)
	})
}
