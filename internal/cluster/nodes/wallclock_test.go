package nodes

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/cluster/config"
)

// The machine of a replica starts an hour behind, and its clock is set later. The taints that follow
// have the right time.
func TestTermEndsWhenWallClockIsSet(t *testing.T) {
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
				a.change(func() {
					for _, taint := range a.nodes["n2"].Spec.Taints {
						if late := at.Sub(taint.TimeAdded.Time); late < 0 || late > 15*time.Second {
							t.Errorf("taint %s of node n2 has a time %v before its last write, want 0 to 15s", taint.Key, late)
						}
					}
				})
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

// A wall clock that is ahead neither ends the time in which disruption budgets are respected, nor
// makes old data current.
func TestWallClockAhead(t *testing.T) {
	for _, when := range []string{"from the start", "set later"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				if a.budget = true; when == "from the start" {
					a.wallAhead = 10 * time.Minute
				}
				k := a.cluster(4, -1)
				r := a.start("a", func(c *config.Cluster) { c.RespectPDB = true })
				time.Sleep(15 * time.Second)
				a.change(func() { a.wallAhead = 10 * time.Minute })
				k.setAlive("n1", false)
				a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
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

// A wall clock that is set forward, rightly or not, ends no toleration period early.
func TestClockSetForwardEndsNoTolerationPeriod(t *testing.T) {
	inCluster(t, 4, 300, func(t *testing.T, a *api, k *kubelets) {
		a.start("a", nil)
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		tainted := time.Now()
		time.Sleep(30 * time.Second)
		a.change(func() { a.wallAhead = 10 * time.Minute })
		time.Sleep(15 * time.Minute)
		for _, w := range a.writes("delete") {
			if after := w.at.Sub(tainted); after < 299*time.Second || after > 16*time.Minute {
				t.Errorf("%s %v after the taint, want 5m or later", w.what, after.Round(time.Second))
			}
		}
		if n := len(a.writes("delete")); n != 1 {
			t.Errorf("%d pods deleted, want 1", n)
		}
	})
}

// A leader whose wall clock is ahead ends no toleration period early that began before its term.
func TestLeaderWithClockAheadEndsNoTolerationPeriod(t *testing.T) {
	inCluster(t, 4, 300, func(t *testing.T, a *api, k *kubelets) {
		r := a.start("a", nil)
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		tainted := time.Now()
		time.Sleep(30 * time.Second)
		r.stop()
		r.disconnect()
		a.change(func() { a.wallAhead = 10 * time.Minute })
		a.start("b", nil)
		time.Sleep(15 * time.Minute)
		for _, w := range a.writes("delete") {
			if after := w.at.Sub(tainted); after < 299*time.Second {
				t.Errorf("%s %v after the taint, want 5m or later", w.what, after.Round(time.Second))
			}
		}
		if n := len(a.writes("delete")); n != 1 {
			t.Errorf("%d pods deleted, want 1", n)
		}
	})
}
