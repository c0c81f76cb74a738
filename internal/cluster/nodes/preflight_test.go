package nodes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/cluster/config"
	"jettison/internal/cluster/report"
)

// unset is the configuration of a replica without a mode.
func unset(c *config.Cluster) {
	*c = *config.Default()
	c.Address = ""
}

// replacing is the configuration of a replica in mode replace that must read --controllers.
func replacing(c *config.Cluster) { c.OthersDisabled = false }

// putManager adds a pod of kube-controller-manager on a node, with the value of --controllers. The
// lock must be held.
func (a *api) putManager(node, controllers string) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-controller-manager-" + node, UID: "u-kcm",
		Labels: map[string]string{"component": "kube-controller-manager", "tier": "control-plane"}}}
	p.Spec.NodeName = node
	p.Spec.Containers = []v1.Container{{Name: "kube-controller-manager", Command: []string{"kube-controller-manager", "--controllers=" + controllers}}}
	p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	p.Status.Phase = v1.PodRunning
	a.putPod(p)
}

// makeControlPlane labels a node as a control plane node. The lock must be held.
func (a *api) makeControlPlane(node string) {
	n := a.nodes[node].DeepCopy()
	n.Labels["node-role.kubernetes.io/control-plane"] = ""
	a.putNode(n)
}

// expectRefusal checks that a replica ends within a minute with an error, and has written nothing.
func (a *api) expectRefusal(r *replica, want ...string) {
	a.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		a.t.Errorf("replica runs, want an error with %q", want)
		return
	}
	for _, w := range want {
		if r.err == nil || !strings.Contains(r.err.Error(), w) {
			a.t.Errorf("error of the replica = %v, want %q", r.err, w)
		}
	}
}

const othersOff = "*,-node-lifecycle-controller,-taint-eviction-controller"

// Without a mode, a replica in a new cluster observes.
func TestNoModeObserves(t *testing.T) {
	inCluster(t, 3, -1, func(t *testing.T, a *api, k *kubelets) {
		a.start("a", unset)
		k.setAlive("n1", false)
		time.Sleep(5 * time.Minute)
		if w := a.writes(); len(w) > 0 || a.count("POST leases") > 0 {
			t.Errorf("%d writes and %d Leases without a mode, want none", len(w), a.count("POST leases"))
		}
	})
}

// An upgrade that leaves out the mode does not leave the cluster without a controller unnoticed: a
// replica ends if this program has acted in the cluster.
func TestNoModeRefusesAfterEarlierRun(t *testing.T) {
	set := []string{"mode is not set", "mode: replace", "mode: observe"}
	for what, c := range map[string]struct {
		earlier func(*api)
		fault   func(client string, r *http.Request) int
		want    string
	}{
		"Lease": {earlier: func(a *api) {
			a.putLease(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "jettison-cluster-nodes"}})
		}, want: "Lease kube-system/jettison-cluster-nodes exists"},
		"taints": {earlier: func(a *api) {
			n := a.nodes["n2"].DeepCopy()
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}}
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "jettison-cluster", Operation: "Update",
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
			a.putNode(n)
		}, want: "node n2 has its taints"},
		"not permitted": {fault: func(_ string, r *http.Request) int {
			if strings.Contains(r.URL.Path, "/namespaces/kube-system/leases/") {
				return http.StatusForbidden
			}
			return 0
		}, want: "cannot be ruled out"},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, 3, -1, func(t *testing.T, a *api, _ *kubelets) {
				a.change(func() {
					if a.fault = c.fault; c.earlier != nil {
						c.earlier(a)
					}
				})
				a.expectRefusal(a.startAny("a", unset), append(set, c.want)...)
			})
		})
	}
}

// A mode that is not set is checked when the API server answers, and the replica is not ready before.
func TestNoModeWaitsForAPIServer(t *testing.T) {
	inCluster(t, 3, -1, func(t *testing.T, a *api, _ *kubelets) {
		a.change(func() {
			a.putLease(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "jettison-cluster-nodes"}})
			a.fault = func(_ string, r *http.Request) int {
				if strings.Contains(r.URL.Path, "/namespaces/kube-system/leases/") {
					return http.StatusInternalServerError
				}
				return 0
			}
		})
		r := a.startAny("a", unset)
		time.Sleep(5 * time.Minute)
		if code := query(t, r, "/readyz", nil); code != http.StatusServiceUnavailable {
			t.Errorf("status code of /readyz before the check = %d, want 503", code)
		}
		a.change(func() { a.fault = nil })
		a.expectRefusal(r, "mode is not set")
	})
}

// Mode replace refuses while kube-controller-manager runs one of the two controllers, also with
// othersDisabled, and where no pod of it is visible unless othersDisabled is true.
func TestReplaceReadsControllers(t *testing.T) {
	for what, c := range map[string]struct {
		pods           map[string]string // --controllers by node; n0 and n1 are control plane nodes
		othersDisabled bool
		want           string // of the error; empty: it runs
	}{
		"off":                       {pods: map[string]string{"n0": othersOff, "n1": othersOff}},
		"on":                        {pods: map[string]string{"n0": "*"}, want: "pod kube-system/kube-controller-manager-n0 runs node-lifecycle-controller and taint-eviction-controller: start kube-controller-manager with --controllers="},
		"one of two is on":          {pods: map[string]string{"n0": othersOff, "n1": "*"}, want: "kube-controller-manager-n1 runs"},
		"one controller is on":      {pods: map[string]string{"n0": "*,-nodelifecycle"}, want: "runs taint-eviction-controller:"},
		"on, but said to be off":    {pods: map[string]string{"n0": "*"}, othersDisabled: true, want: "kube-controller-manager-n0 runs"},
		"not visible":               {want: "no pod of kube-controller-manager was found on a control plane node: set othersDisabled: true"},
		"not visible, said to be":   {othersDisabled: true},
		"not readable":              {pods: map[string]string{"n0": "$(LIST)"}, want: "pod kube-system/kube-controller-manager-n0 cannot be read: set othersDisabled: true"},
		"not readable, said to be":  {pods: map[string]string{"n0": "$(LIST)"}, othersDisabled: true},
		"one of two not readable":   {pods: map[string]string{"n0": "$(LIST)", "n1": othersOff}, want: "n0 cannot be read"},
		"mirror pod of a worker":    {pods: map[string]string{"n0": othersOff, "n2": "*"}},
		"only a worker's mirror":    {pods: map[string]string{"n2": othersOff}, want: "no pod of kube-controller-manager"},
		"mirror pod without a node": {pods: map[string]string{"gone": othersOff}, want: "no pod of kube-controller-manager"},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, 4, -1, func(t *testing.T, a *api, k *kubelets) {
				a.change(func() {
					a.makeControlPlane("n0")
					a.makeControlPlane("n1")
					for node, controllers := range c.pods {
						a.putManager(node, controllers)
					}
				})
				configure := func(o *config.Cluster) { o.OthersDisabled = c.othersDisabled }
				if c.want != "" {
					a.expectRefusal(a.startAny("a", configure), c.want)
					if n := a.count("POST leases"); n > 0 {
						t.Errorf("%d Leases created, want none", n)
					}
					return
				}
				a.start("a", configure)
				k.setAlive("n3", false)
				a.await("n3 tainted", func() bool { return a.hasTaint("n3", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
			})
		})
	}
}

// A kubelet can create mirror pods like those of kube-controller-manager, too many to keep in memory.
// Those of a worker are not read.
func TestMirrorPodsOfWorkersAreNotRead(t *testing.T) {
	inCluster(t, 3, -1, func(t *testing.T, a *api, _ *kubelets) {
		a.change(func() {
			a.makeControlPlane("n0")
			a.putManager("n0", othersOff)
			a.putManager("n2", "*")
		})
		a.start("a", replacing)
		a.await("a leads", func() bool { return a.counted["POST leases"] > 0 })
		for node, read := range map[string]bool{"n0": true, "n2": false} {
			if n := a.count("selected pods of " + node); (n > 0) != read {
				t.Errorf("pods of node %s read %d times, want read: %v", node, n, read)
			}
		}
	})
}

// A replica that may not list the pods needs othersDisabled.
func TestReplaceWithoutPermissionToReadPods(t *testing.T) {
	inCluster(t, 3, -1, func(t *testing.T, a *api, _ *kubelets) {
		a.change(func() {
			a.makeControlPlane("n0")
			a.putManager("n0", othersOff)
			a.fault = func(_ string, r *http.Request) int {
				if r.URL.Query().Get("labelSelector") != "" {
					return http.StatusForbidden
				}
				return 0
			}
		})
		a.expectRefusal(a.startAny("a", replacing), "cannot be read", "othersDisabled: true")
		a.start("b", nil)
		a.await("b leads", func() bool { return a.counted["POST leases"] > 0 })
	})
}

// startLeaderAndStandby starts replicas in mode replace. Then kube-controller-manager gets both
// controllers back.
func startLeaderAndStandby(a *api) (leader, standby *replica) {
	a.change(func() {
		a.makeControlPlane("n0")
		a.putManager("n0", othersOff)
	})
	leader = a.start("one", replacing)
	a.await("one leads", func() bool { return a.counted["POST leases"] > 0 })
	standby = a.start("two", replacing)
	time.Sleep(time.Minute)
	a.change(func() { a.putManager("n0", "*") })
	return leader, standby
}

// A standby that takes over reads --controllers again. While the two controllers are on, it is not
// ready and writes nothing; it acts soon after they are off.
func TestTakeoverReadsControllers(t *testing.T) {
	inCluster(t, 6, -1, func(t *testing.T, a *api, k *kubelets) {
		one, two := startLeaderAndStandby(a)
		k.setAlive("n1", false)
		a.await("n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		one.stop()
		one.disconnect()
		before := len(a.writes())
		k.setAlive("n2", false)
		time.Sleep(20 * time.Minute)
		if n := len(a.writes()) - before; n > 0 {
			t.Errorf("%d writes of the standby while the controllers are on, want none", n)
		}
		if code := query(t, two, "/readyz", nil); code != http.StatusServiceUnavailable {
			t.Errorf("status code of /readyz while the controllers are on = %d, want 503", code)
		}
		var why report.Error
		if code := query(t, two, report.StatusPath, &why); code != http.StatusServiceUnavailable || !strings.Contains(why.Error, "mode replace is not allowed yet") {
			t.Errorf("status while the controllers are on = %d %q, want 503 and the refused mode", code, why.Error)
		}
		off := time.Now()
		a.change(func() { a.putManager("n0", othersOff) })
		a.await("n2 tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		if took := time.Since(off); took > 30*time.Second {
			t.Errorf("node n2 tainted %v after the controllers are off, want within 30s", took)
		}
		if code := query(t, two, "/readyz", nil); code != http.StatusOK {
			t.Errorf("status code of /readyz after the takeover = %d, want 200", code)
		}
	})
}

// A replica that waits at a takeover can be stopped.
func TestStopWhileModeIsRefused(t *testing.T) {
	inCluster(t, 3, -1, func(t *testing.T, a *api, _ *kubelets) {
		one, two := startLeaderAndStandby(a)
		one.stop()
		one.disconnect()
		time.Sleep(time.Minute)
		if !two.ctrl.leader.Holds() {
			t.Error("replica two does not lead, want it to wait as leader")
		}
		two.stop()
		a.change(func() {
			if h := a.leases["kube-system/jettison-cluster-nodes"].Spec.HolderIdentity; h != nil && *h != "" {
				t.Errorf("holder of the Lease after the stop = %s, want it released", *h)
			}
		})
	})
}

// A new leader waits for the quiet period, also if the leader before it acted.
func TestTakeoverChecksQuietPeriod(t *testing.T) {
	for _, fresh := range []bool{false, true} { // the new leader started before the takeover, or after it
		t.Run(fmt.Sprint("fresh ", fresh), func(t *testing.T) {
			inCluster(t, 8, -1, func(t *testing.T, a *api, k *kubelets) {
				one := a.start("one", nil)
				k.setAlive("n1", false)
				a.await("n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				if !fresh {
					a.start("two", nil)
				}
				time.Sleep(time.Minute)
				rivalAt := time.Now()
				a.change(func() { // an operator has enabled the other controllers again
					n, now := a.nodes["n2"].DeepCopy(), metav1.Now()
					n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeDiskPressure, Effect: v1.TaintEffectNoSchedule}}
					n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", Time: &now,
						FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
					a.putNode(n)
				})
				time.Sleep(10 * time.Second)
				one.stop()
				one.disconnect()
				before := len(a.writes())
				if fresh {
					a.start("two", nil)
				}
				k.setAlive("n3", false)
				time.Sleep(time.Until(rivalAt.Add(5*time.Minute - time.Second)))
				if n := len(a.writes()) - before; n > 0 {
					t.Errorf("%d writes within 5m of a rival's write, after a takeover, want none", n)
				}
				a.await("n3 tainted", func() bool { return a.hasTaint("n3", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				if took := time.Since(rivalAt); took > 6*time.Minute {
					t.Errorf("node n3 tainted %v after the rival's write, want within 6m", took)
				}
			})
		})
	}
}

// A stop while the API server does not answer the check ends the replica.
func TestStopDuringCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(1)
		a.fault = func(string, *http.Request) int { return -1 }
		r := a.start("a", unset)
		time.Sleep(15 * time.Second)
		k.end()
		stopAll(r)
	})
}
