package nodes

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/cluster/config"
)

// A write that is overtaken by that of another leader or client on the way to the API server has no
// effect. The next decision uses the new object.
func TestOvertakenWriteHasNoEffect(t *testing.T) {
	tolerate := func(a *api) {
		p := a.pods["d/n1-p0"].DeepCopy()
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		a.putPod(p)
	}
	relabel := func(a *api) {
		n := a.nodes["n1"].DeepCopy()
		n.Labels[v1.LabelOSStable] = "windows"
		a.putNode(n)
	}
	for what, c := range map[string]struct {
		method, path string
		overtake     func(*api)
		writes       []string // that must not be made
	}{
		"labels":    {http.MethodPatch, "/nodes/n1", relabel, []string{"labels n1"}},
		"condition": {http.MethodPatch, "/pods/n1-p0/status", tolerate, []string{"condition d/n1-p0", "delete d/n1-p0"}},
		"deletion":  {http.MethodDelete, "/pods/n1-p0", tolerate, []string{"delete d/n1-p0"}},
		"eviction":  {http.MethodPost, "/pods/n1-p0/eviction", tolerate, []string{"evict d/n1-p0"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				k := a.cluster(4, -1)
				var overtaken atomic.Bool
				r := a.start("a", func(c *config.Cluster) { c.RespectPDB = what == "eviction" })
				time.Sleep(15 * time.Second)
				a.change(func() {
					if p := a.pods["d/n1-p0"].DeepCopy(); what != "labels" {
						p.Status.Conditions = nil // no mark precedes the eviction
						a.putPod(p)
					}
					a.fault = func(_ string, q *http.Request) int {
						a.change(func() {
							if !overtaken.Load() && q.Method == c.method && strings.HasSuffix(q.URL.Path, c.path) {
								overtaken.Store(true)
								c.overtake(a)
							}
						})
						return 0
					}
				})
				if what == "labels" {
					a.change(func() {
						n := a.nodes["n1"].DeepCopy()
						n.Labels[v1.LabelOSStable] = "linux"
						a.putNode(n)
					})
				} else {
					k.setAlive("n1", false)
				}
				time.Sleep(3 * time.Minute)
				if !overtaken.Load() {
					t.Fatal("the write was not sent")
				}
				for _, w := range a.writes() {
					if what == "labels" && w.what == "labels n1" && w.written.Labels["beta.kubernetes.io/os"] == "windows" {
						continue
					}
					for _, bad := range c.writes {
						if w.what == bad {
							t.Errorf("%v: write %s, although it was overtaken", w.at.Sub(a.startedAt), w.what)
						}
					}
				}
				a.change(func() {
					if what == "labels" && a.nodes["n1"].Labels["beta.kubernetes.io/os"] != "windows" {
						t.Errorf("labels = %v, want those of the new node", a.nodes["n1"].Labels)
					}
				})
				k.end()
				stopAll(r)
			})
		})
	}
}
