package nodes

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/cluster/config"
)

// The machine of a replica starts an hour behind, and its clock is set later. All taints have the right
// time.
func TestWallClockBehind(t *testing.T) {
	for name, election := range map[string]bool{"elected": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				a.wallAhead = -time.Hour
				k := a.cluster(6, 60)
				r := a.start("a", func(c *config.Cluster) { c.LeaderElect = election })
				time.Sleep(25 * time.Second)
				k.setAlive("n1", false)
				a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				a.change(func() { a.wallAhead = 0 })
				k.setAlive("n2", false)
				a.await("node n2 tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				at := time.Now()
				for _, w := range a.writes("taints") {
					for _, taint := range w.written.Spec.Taints {
						if late := w.at.Sub(taint.TimeAdded.Time); late < -time.Second || late > 15*time.Second {
							t.Errorf("%s: %s has a time %v before the write, want 0 to 15s", w.what, taint.Key, late)
						}
					}
				}
				time.Sleep(3 * time.Minute)
				for _, w := range a.writes("delete") {
					if after := w.at.Sub(at); w.what == "delete d/n2-p0" && (after < 58*time.Second || after > 62*time.Second) {
						t.Errorf("%s %v after the taint, want 1m", w.what, after)
					}
				}
				for _, w := range a.writes("status") {
					if silent := w.at.Sub(w.renewedAt); silent < 49*time.Second {
						t.Errorf("%s %v after the last renewal, want at least 49s", w.what, silent)
					}
				}
				if n := len(a.writes("delete")); n != 2 {
					t.Errorf("%d pods deleted, want 2", n)
				}
				k.end()
				stopAll(r)
			})
		})
	}
}

// A clock that is ahead neither ends the time in which disruption budgets are respected, nor
// makes old data current.
func TestClockAhead(t *testing.T) {
	for _, when := range []string{"from the start", "set later", "the API server's"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				if a.budget = true; when == "from the start" {
					a.wallAhead = 10 * time.Minute
				}
				k := a.cluster(4, -1)
				r := a.start("a", func(c *config.Cluster) { c.RespectPDB = true })
				time.Sleep(15 * time.Second)
				if when != "the API server's" {
					a.change(func() { a.wallAhead = 10 * time.Minute })
				}
				k.setAlive("n1", false)
				a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				if when == "the API server's" {
					time.Sleep(time.Second) // the taint arrives
					a.change(func() {
						a.skew = 10 * time.Minute
						a.watchEnds++
					})
				}
				time.Sleep(4 * time.Minute)
				if n, blocked := len(a.writes("delete")), a.count("blocked eviction"); n > 0 || blocked == 0 {
					t.Errorf("%d pods deleted and %d evictions blocked within 4m, want none and some", n, blocked)
				}
				time.Sleep(2 * time.Minute)
				if n := len(a.writes("delete")); n != 1 {
					t.Errorf("%d pods deleted after 6m, want 1", n)
				}
				k.end()
				stopAll(r)
			})
		})
	}
}

// keepsTolerationPeriod reports an error if pods of a node that becomes silent are not deleted once,
// 5 minutes after its taint or later. meanwhile is called after the taint.
func (a *api) keepsTolerationPeriod(k *kubelets, meanwhile func()) {
	a.t.Helper()
	time.Sleep(15 * time.Second)
	k.setAlive("n1", false)
	a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
	tainted := time.Now()
	meanwhile()
	time.Sleep(15 * time.Minute)
	for _, w := range a.writes("delete") {
		if after := w.at.Sub(tainted); after < 299*time.Second {
			a.t.Errorf("%s %v after the taint, want 5m or later", w.what, after.Round(time.Second))
		}
	}
	if n := len(a.writes("delete")); n != 1 {
		a.t.Errorf("%d pods deleted, want 1", n)
	}
}

// A wall clock that is set forward, rightly or not, ends no toleration period early.
func TestClockSetForwardEndsNoTolerationPeriod(t *testing.T) {
	inCluster(t, 4, 300, func(t *testing.T, a *api, k *kubelets) {
		a.start("a", nil)
		a.keepsTolerationPeriod(k, func() {
			time.Sleep(30 * time.Second)
			a.change(func() { a.wallAhead = 10 * time.Minute })
		})
	})
}

// A leader whose wall clock is ahead ends no toleration period early that began before its term.
func TestLeaderWithClockAheadEndsNoTolerationPeriod(t *testing.T) {
	inCluster(t, 4, 300, func(t *testing.T, a *api, k *kubelets) {
		r := a.start("a", nil)
		a.keepsTolerationPeriod(k, func() {
			time.Sleep(30 * time.Second)
			r.stop()
			r.disconnect()
			a.change(func() { a.wallAhead = 10 * time.Minute })
			a.start("b", nil)
		})
	})
}

// A wall clock that was an hour behind is set between two terms of the replica, as a forward step by
// more than the lease duration ends a term. The taints of the first term end no period early.
func TestClockSetBetweenTerms(t *testing.T) {
	inCluster(t, 4, 300, func(t *testing.T, a *api, k *kubelets) {
		a.wallAhead = -time.Hour
		a.start("a", nil)
		a.keepsTolerationPeriod(k, func() {
			a.change(func() { a.fault = leaseFault })
			time.Sleep(20 * time.Second)
			a.change(func() { a.wallAhead, a.fault = 0, nil })
		})
	})
}

// The API server's clock is set, within a term or between two terms, or the clocks of several API
// servers differ. Toleration periods that have begun keep their length, and later taints have the
// time of that clock.
func TestServerClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		for _, between := range []bool{false, true} {
			t.Run(fmt.Sprint(by, " between terms: ", between), func(t *testing.T) {
				inCluster(t, 6, 300, func(t *testing.T, a *api, k *kubelets) {
					a.start("a", nil)
					time.Sleep(15 * time.Second)
					k.setAlive("n1", false)
					a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
					tainted := map[string]time.Time{"delete d/n1-p0": time.Now()}
					time.Sleep(30 * time.Second)
					a.change(func() {
						a.skew = by
						if a.watchEnds++; between {
							a.fault = leaseFault
						}
					})
					time.Sleep(20 * time.Second)
					a.change(func() { a.fault = nil })
					time.Sleep(20 * time.Second)
					k.setAlive("n2", false)
					a.await("node n2 tainted", func() bool { return a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
					tainted["delete d/n2-p0"] = time.Now()
					a.change(func() {
						for _, taint := range a.nodes["n2"].Spec.Taints {
							if late := time.Since(taint.TimeAdded.Add(-by)); late < -time.Second || late > 15*time.Second {
								t.Errorf("taint %s of node n2 is %v old on the API server's clock, want 0 to 15s", taint.Key, late)
							}
						}
					})
					time.Sleep(6 * time.Minute)
					for _, w := range a.writes("delete") {
						after := w.at.Sub(tainted[w.what])
						if delete(tainted, w.what); after < 299*time.Second || after > 302*time.Second {
							t.Errorf("%s %v after the taint, want 5m", w.what, after.Round(time.Millisecond))
						}
					}
					if len(tainted) > 0 {
						t.Errorf("no %v, want each pod deleted after 5m", slices.Collect(maps.Keys(tainted)))
					}
				})
			})
		}
	}
}

// The machine of a standby was suspended for five minutes, so that its monotonic clock is behind. When
// it takes over, the taints of the leader before it keep their times, although the watches never
// ended and are never silent.
func TestStandbyWasSuspended(t *testing.T) {
	inCluster(t, 4, 300, func(t *testing.T, a *api, k *kubelets) {
		a.change(func() { a.fault = leaseFault })
		a.start("a", nil)
		var added time.Time
		for i := range 40 {
			a.change(func() {
				// as one of thousands of nodes
				l, n := a.leases[v1.NamespaceNodeLease+"/n0"].DeepCopy(), a.nodes["n0"].DeepCopy()
				l.Spec.RenewTime.Time = time.Now()
				a.putLease(l)
				n.Status.Conditions[readyIndex(n)].LastHeartbeatTime.Time = time.Now()
				a.putNode(n)
				switch i {
				case 15:
					a.skew = 5 * time.Minute
				case 30:
					added = time.Now().Add(a.skew).Truncate(time.Second)
					n := a.nodes["n1"].DeepCopy()
					n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "k", Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: added}})
					a.putNode(n)
				case 31:
					a.fault = nil
				}
			})
			time.Sleep(time.Second)
		}
		a.change(func() {
			if at := a.nodes["n1"].Spec.Taints[0].TimeAdded.Time; !at.Equal(added) {
				t.Errorf("taint has a time %v before that of its leader, want the same", added.Sub(at))
			}
		})
	})
}

// leaseFault fails the requests of the leader election.
func leaseFault(_ string, r *http.Request) int {
	if strings.Contains(r.URL.Path, "/namespaces/kube-system/leases") {
		return http.StatusInternalServerError
	}
	return 0
}

// A replica whose wall clock is ahead waits as long as others for the last write of a rival.
func TestWallClockAheadWaitsForRival(t *testing.T) {
	inCluster(t, 4, -1, func(t *testing.T, a *api, k *kubelets) {
		a.wallAhead = time.Hour
		a.change(func() {
			a.skew = -time.Hour
			a.stamp("n0", time.Now().Add(a.skew))
		})
		a.start("a", nil)
		k.setAlive("n1", false)
		time.Sleep(4 * time.Minute)
		if n := len(a.writes()); n > 0 {
			t.Errorf("%d writes 4m after a write of a rival, want none", n)
		}
		time.Sleep(3 * time.Minute)
		if n := len(a.writes("taints")); n == 0 {
			t.Error("no taints written 7m after the last write of the rival")
		}
	})
}
