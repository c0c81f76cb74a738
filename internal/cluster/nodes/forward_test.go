package nodes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

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
