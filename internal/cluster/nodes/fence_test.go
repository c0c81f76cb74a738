package nodes

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/cluster/config"
)

// startFencing starts a replica with a check.
func (a *api) startFencing(check func(node string) bool) *replica {
	a.checkDead = func(_ context.Context, n *v1.Node) (dead bool, err error) {
		a.change(func() { dead = check(n.Name) })
		return dead, nil
	}
	return a.start("a", func(c *config.Cluster) { c.FenceURL = "http://unused/" })
}

// fenced returns when nodes were taken out of service, in order.
func (a *api) fenced() (at []time.Time) {
	for _, w := range a.writes("taints") {
		if isFenced(w.written) && !isFenced(w.node) {
			at = append(at, w.at)
		}
	}
	return at
}

func isFenced(n *v1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == v1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

// setUnknown sets the condition Ready of a node, as another controller does.
func (a *api) setUnknown(name string) {
	n := a.nodes[name].DeepCopy()
	c := &n.Status.Conditions[readyIndex(n)]
	c.Status, c.Reason = v1.ConditionUnknown, "NodeStatusUnknown"
	c.LastTransitionTime.Time = time.Now()
	a.putNode(n)
}

// A node whose kubelet renews its Lease is not fenced, whatever the check answers: the watch lags,
// or the kubelet cannot write its status.
func TestNodeThatRenewsIsNotFenced(t *testing.T) {
	for _, how := range []string{"watch lags", "status not written"} {
		t.Run(how, func(t *testing.T) {
			inCluster(t, 12, 3600, func(t *testing.T, a *api, k *kubelets) {
				a.startFencing(func(string) bool { return true })
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false) // the kubelet of the test would repair the condition
				a.change(func() { a.setUnknown("n1") })
				time.Sleep(time.Second)
				if how == "watch lags" {
					a.change(func() { a.hidden = "n1" })
				}
				for range 30 {
					a.change(func() {
						l := a.leases[v1.NamespaceNodeLease+"/n1"].DeepCopy()
						l.Spec.RenewTime.Time = time.Now()
						l.ManagedFields[0].Time.Time = time.Now()
						a.putLease(l)
					})
					time.Sleep(10 * time.Second)
				}
				if n := len(a.fenced()); n > 0 {
					t.Errorf("%d nodes fenced, want none: node n1 renews its Lease", n)
				}
			})
		})
	}
}

// A failed read of the Lease is no proof of death.
func TestFenceNeedsLease(t *testing.T) {
	inCluster(t, 12, 3600, func(t *testing.T, a *api, k *kubelets) {
		a.startFencing(func(string) bool { return true })
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		a.change(func() {
			a.fault = func(_ string, q *http.Request) int {
				if strings.Contains(q.URL.RawQuery, "metadata.name") {
					return http.StatusInternalServerError
				}
				return 0
			}
		})
		time.Sleep(10 * time.Minute)
		if n := len(a.fenced()); n > 0 {
			t.Errorf("%d nodes fenced without a read of the Lease, want none", n)
		}
		a.change(func() { a.fault = nil })
		time.Sleep(2 * time.Minute)
		if n := len(a.fenced()); n != 1 {
			t.Errorf("%d nodes fenced after the reads work again, want 1", n)
		}
	})
}

// An answer counts for one try. The node may be powered on between the answer and the next try.
func TestCheckIsAskedBeforeEachTry(t *testing.T) {
	inCluster(t, 12, 3600, func(t *testing.T, a *api, k *kubelets) {
		var asked, failed atomic.Int32
		a.startFencing(func(string) bool { return asked.Add(1) == 1 })
		a.change(func() {
			a.fault = func(_ string, q *http.Request) int {
				if asked.Load() > 0 && isPatch(q, "n1") && failed.CompareAndSwap(0, 1) {
					return http.StatusInternalServerError
				}
				return 0
			}
		})
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		time.Sleep(10 * time.Minute)
		if n := len(a.fenced()); failed.Load() != 1 || n > 0 || asked.Load() < 2 {
			t.Errorf("%d failed tries, %d nodes fenced, %d checks, want 1, none and at least 2", failed.Load(), n, asked.Load())
		}
	})
}

// Whole zones that fall silent are more likely cut off than dead: no node of them is fenced.
func TestSilentZonesAreNotFenced(t *testing.T) {
	inCluster(t, 80, 7200, func(t *testing.T, a *api, k *kubelets) {
		a.change(func() {
			for i := range 80 {
				n := a.nodes[fmt.Sprint("n", i)].DeepCopy()
				n.Labels[v1.LabelTopologyZone] = fmt.Sprint("z", i/20)
				a.putNode(n)
			}
		})
		a.startFencing(func(string) bool { return true })
		time.Sleep(15 * time.Second)
		for i := range 60 {
			k.setAlive(fmt.Sprint("n", i), false)
		}
		time.Sleep(45 * time.Minute)
		if n := len(a.fenced()); n > 0 {
			t.Errorf("%d of 60 nodes of three silent zones fenced, want none", n)
		}
	})
}

// A zone without a ready node is suspended also if all its nodes are excluded from the state of
// zones, as those of the control plane may be.
func TestSilentExcludedZoneIsNotFenced(t *testing.T) {
	inCluster(t, 12, 3600, func(t *testing.T, a *api, k *kubelets) {
		a.change(func() {
			for i := range 3 {
				n := a.nodes[fmt.Sprint("n", i)].DeepCopy()
				n.Labels[v1.LabelTopologyZone] = "control"
				n.Labels["node.kubernetes.io/exclude-disruption"] = ""
				a.putNode(n)
			}
		})
		a.startFencing(func(string) bool { return true })
		time.Sleep(15 * time.Second)
		for i := range 3 {
			k.setAlive(fmt.Sprint("n", i), false)
		}
		time.Sleep(20 * time.Minute)
		if n := len(a.fenced()); n > 0 {
			t.Errorf("%d of 3 nodes of a silent zone fenced, want none", n)
		}
		k.setAlive("n0", true)
		time.Sleep(20 * time.Minute)
		if n := len(a.fenced()); n != 1 {
			t.Errorf("%d nodes fenced 20m after one of the zone is ready, want 1", n)
		}
	})
}

// One node is fenced a minute, and at most a tenth of a zone in an hour, also after a takeover.
func TestFencingRate(t *testing.T) {
	inCluster(t, 30, 10*3600, func(t *testing.T, a *api, k *kubelets) {
		r := a.startFencing(func(string) bool { return true })
		time.Sleep(15 * time.Second)
		for i := range 10 {
			k.setAlive(fmt.Sprint("n", i), false)
		}
		a.await("a node fenced", func() bool {
			for _, n := range a.nodes {
				if isFenced(n) {
					return true
				}
			}
			return false
		})
		r.stop()
		r.disconnect()
		a.startFencing(func(string) bool { return true })
		time.Sleep(110 * time.Minute)
		at := a.fenced()
		for i := range at {
			if i > 0 && at[i].Sub(at[i-1]) < 59*time.Second {
				t.Errorf("node %d fenced %v after the one before, want at least 1m", i, at[i].Sub(at[i-1]))
			}
			if i >= 3 && at[i].Sub(at[i-3]) < 59*time.Minute {
				t.Errorf("four nodes fenced within %v, want at most three of 30 in an hour", at[i].Sub(at[i-3]))
			}
		}
		if len(at) != 6 {
			t.Errorf("%d nodes fenced in 110m, want 6", len(at))
		}
	})
}
