package nodes

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods with thousands of tolerations take little memory, and leave at their deadlines. The replica
// reads them only while a taint concerns them.
func TestPodsWithManyTolerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		k := a.cluster(4, 30, -1)
		a.change(func() {
			for _, name := range []string{"d/n1-p0", "d/n2-p0", "d/n1-p1"} {
				p := a.pods[name].DeepCopy()
				last := p.Spec.Tolerations
				p.Spec.Tolerations = nil
				for i := range 3000 {
					p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: fmt.Sprint("k", i), Effect: v1.TaintEffectNoExecute})
				}
				p.Spec.Tolerations = append(p.Spec.Tolerations, last...)
				a.putPod(p)
			}
		})
		r := a.start("a", nil)
		time.Sleep(15 * time.Second)
		for _, uid := range []string{"u-n1-p0", "u-n1-p1", "u-n2-p0"} {
			if kept := len(r.ctrl.deps.Mirror.Pod(types.UID(uid)).Spec.Tolerations); kept > 100 {
				t.Errorf("%d tolerations of pod %s are kept, want at most 100", kept, uid)
			}
		}
		k.setAlive("n1", false)
		a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
		tainted := time.Now()
		time.Sleep(2 * time.Minute)
		left := map[string]time.Duration{}
		for _, w := range a.writes("delete") {
			left[w.what] = w.at.Sub(tainted).Round(time.Second)
		}
		if got := fmt.Sprint(left); got != "map[delete d/n1-p0:30s delete d/n1-p1:0s]" {
			t.Errorf("deletions = %v, want n1-p0 after 30s and n1-p1 after 0s", got)
		}
		if n := a.count("GET pods"); n < 2 || n > 6 {
			t.Errorf("%d reads of pods, want 2 to 6", n)
		}
		k.end()
		stopAll(r)
	})
}
