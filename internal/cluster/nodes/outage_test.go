package nodes

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/cluster/config"
)

// The API server was down for a minute. Kubelets renew their Leases within ten seconds after it is
// back. Until then no node is called silent, by a leader that lost its Lease or by a replica without
// election.
func TestNodesReturnAfterOutage(t *testing.T) {
	for name, election := range map[string]bool{"elected": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 30, 300, func(t *testing.T, a *api, k *kubelets) {
				a.start("a", func(c *config.Cluster) { c.LeaderElect = election })
				time.Sleep(25 * time.Second)
				a.outage(k)
				time.Sleep(time.Minute)
				a.change(func() { a.fault = nil })
				for i := range 29 { // n29 is dead
					k.setAlive(fmt.Sprint("n", i), true)
					k.renew()
					time.Sleep(time.Second / 3)
				}
				time.Sleep(2 * time.Minute)
				tainted := false
				for _, w := range a.writes() {
					if tainted = tainted || w.what == "taints n29"; w.node.Name != "n29" {
						t.Errorf("%v: write %s although the node is alive", w.at.Sub(a.startedAt), w.what)
					}
				}
				if !tainted {
					t.Error("no taint of the dead node n29 was written")
				}
			})
		})
	}
}

// The clock of an API server to which half of the kubelets are connected is five minutes behind. A
// replica that begins to lead, in a new process or after another one, calls no node silent.
func TestKubeletsOfServerWithClockBehind(t *testing.T) {
	for _, standby := range []bool{false, true} {
		t.Run(fmt.Sprint("standby: ", standby), func(t *testing.T) {
			inCluster(t, 10, 300, func(t *testing.T, a *api, k *kubelets) {
				for i := range 5 {
					k.setAlive(fmt.Sprint("n", i), false) // renewed below
				}
				r := a.start("a", nil)
				var b *replica
				for second := range 100 {
					switch {
					case second == 11 && standby:
						b = a.start("b", nil)
					case second == 55:
						r.stop()
						r.disconnect()
						if b == nil {
							a.start("b", nil)
						}
					case second%10 == 0:
						a.change(func() {
							for i := range 5 {
								l := a.leases[v1.NamespaceNodeLease+"/"+fmt.Sprint("n", i)].DeepCopy()
								at, renewed := metav1.NewTime(time.Now().Add(-5*time.Minute)), metav1.NowMicro()
								l.ManagedFields[0].Time, l.Spec.RenewTime = &at, &renewed
								a.putLease(l)
							}
						})
					}
					time.Sleep(time.Second)
				}
				for _, w := range a.writes() {
					t.Errorf("%v: write %s although the node is alive", w.at.Sub(a.startedAt), w.what)
				}
			})
		})
	}
}

// A node got its taint shortly before the API server was down for longer than its pods tolerate, and
// was alive again soon. It posts its recovery when it can, and keeps its pods; those of a dead node
// are deleted.
func TestNodeRecoversDuringOutage(t *testing.T) {
	for name, election := range map[string]bool{"elected": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 10, 60, func(t *testing.T, a *api, k *kubelets) {
				a.start("a", func(c *config.Cluster) { c.LeaderElect = election })
				time.Sleep(25 * time.Second)
				k.setAlive("n1", false)
				k.setAlive("n2", false)
				for _, name := range []string{"n1", "n2"} {
					a.await(name+" tainted", func() bool { return a.hasTaint(name, v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				}
				a.outage(k)
				time.Sleep(2 * time.Minute)
				a.change(func() { a.fault = nil })
				for i := range 10 {
					time.Sleep(time.Second)
					if name := fmt.Sprint("n", 9-i); name != "n2" {
						k.setAlive(name, true)
						k.renew()
					}
				}
				time.Sleep(2 * time.Minute)
				var deleted []string
				for _, w := range a.writes("delete") {
					deleted = append(deleted, w.what)
				}
				if want := []string{"delete d/n2-p0"}; !slices.Equal(deleted, want) {
					t.Errorf("deletions %q, want %q", deleted, want)
				}
			})
		})
	}
}

// outage fails all requests, also those of the kubelets.
func (a *api) outage(k *kubelets) {
	a.change(func() {
		a.watchEnds++
		a.fault = func(string, *http.Request) int { return http.StatusServiceUnavailable }
		for name := range k.alive {
			k.alive[name] = false
		}
	})
}
