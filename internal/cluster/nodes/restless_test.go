package nodes

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/cluster/config"
)

// A pod that its owner changes all the time is marked and evicted in time like any other: the writes
// expect the version that was just read.
func TestRestlessPodsAreEvicted(t *testing.T) {
	for what, c := range map[string]struct {
		budgets     bool
		tolerations int // that match no taint
	}{"deletion": {}, "eviction": {budgets: true}, "many tolerations": {tolerations: 100}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				k := a.cluster(4, 30)
				a.watchLag = map[string]time.Duration{"pods": 50 * time.Millisecond}
				a.change(func() {
					p := a.pods["d/n1-p0"].DeepCopy()
					last := p.Spec.Tolerations
					p.Spec.Tolerations = nil
					for i := range c.tolerations {
						p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: fmt.Sprint("k", i), Effect: v1.TaintEffectNoExecute})
					}
					p.Spec.Tolerations = append(p.Spec.Tolerations, last...)
					a.putPod(p)
				})
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for i := 0; ; i++ {
						select {
						case <-time.After(30 * time.Millisecond):
						case <-stop:
							return
						}
						a.change(func() {
							p := a.pods["d/n1-p0"].DeepCopy()
							p.Annotations = map[string]string{"count": fmt.Sprint(i)}
							a.putPod(p)
						})
					}
				}()
				r := a.start("a", func(o *config.Cluster) { o.RespectPDB = c.budgets })
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false)
				a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				tainted := time.Now()
				time.Sleep(90 * time.Second)
				left, marked := time.Duration(-1), time.Duration(-1)
				for _, w := range a.writes() {
					switch w.what {
					case "delete d/n1-p0", "evict d/n1-p0":
						left = w.at.Sub(tainted).Round(time.Second)
					case "condition d/n1-p0":
						if marked < 0 {
							marked = w.at.Sub(tainted).Round(time.Second)
						}
					}
				}
				if left != 30*time.Second || marked < 0 || marked > 5*time.Second {
					t.Errorf("pod left %v and was marked %v after the taint, want 30s and at most 5s", left, marked)
				}
				close(stop)
				<-done
				k.end()
				stopAll(r)
			})
		})
	}
}

// A pod with many tolerations that changes all the time is not read after each change.
func TestRestlessPodIsReadOnce(t *testing.T) {
	inCluster(t, 4, -1, func(t *testing.T, a *api, k *kubelets) {
		change := func(i int) {
			a.change(func() {
				p := a.pods["d/n1-p0"].DeepCopy()
				if p.Annotations = map[string]string{"count": fmt.Sprint(i)}; len(p.Spec.Tolerations) == 0 {
					for i := range 3000 {
						p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: fmt.Sprint("k", i), Effect: v1.TaintEffectNoExecute})
					}
					p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists})
				}
				a.putPod(p)
			})
		}
		change(0)
		a.start("a", nil)
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		for i := range 200 {
			time.Sleep(100 * time.Millisecond)
			change(i + 1)
		}
		if n := a.count("GET pods"); n > 10 {
			t.Errorf("%d reads of pods in 20 s, want at most 10", n)
		}
	})
}
