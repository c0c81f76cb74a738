package nodes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An admission webhook delays each write to the pods of some namespaces. The pods of the other
// namespaces are marked and evicted as if it did not exist, or, if more namespaces are slow than there
// are places, once their slowness is known.
func TestSlowWebhookDelaysItsNamespaceOnly(t *testing.T) {
	const count = 60 // pods of each namespace on the silent node
	for slow, within := range map[int]time.Duration{1: 2 * time.Second, 3: 2 * time.Second, 20: 2 * time.Minute} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			inCluster(t, 4, -1, func(t *testing.T, a *api, k *kubelets) {
				a.change(func() {
					namespaces := []string{"x-quick", "y-quick"}
					for i := range slow {
						namespaces = append(namespaces, fmt.Sprint("slow-", i))
					}
					for _, namespace := range namespaces {
						for i := range count {
							p := a.pods["d/n1-p0"].DeepCopy()
							p.Namespace, p.Name = namespace, fmt.Sprint("p", i)
							p.UID = types.UID(namespace + p.Name)
							a.putPod(p)
						}
					}
					a.fault = func(_ string, r *http.Request) int {
						if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/slow-") && strings.Contains(r.URL.Path, "/pods/") {
							time.Sleep(30 * time.Second)
						}
						return 0
					}
				})
				a.start("a", nil)
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false)
				a.await("node n1 silent", func() bool { return hasReady(a.nodes["n1"], v1.ConditionUnknown) })
				silent := time.Now()
				a.await("node n1 tainted", func() bool { return a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
				tainted := time.Now()
				time.Sleep(30 * time.Minute)
				isDisruption := func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }
				marked, left := map[string]time.Duration{}, map[string]time.Duration{} // the last of each namespace
				marks, deletions := map[string]int{}, map[string]int{}
				for _, w := range a.writes() {
					if w.pod == nil {
						continue
					}
					if strings.HasPrefix(w.what, "delete ") {
						left[w.pod.Namespace] = w.at.Sub(tainted)
						deletions[w.pod.Namespace]++
					} else if !slices.ContainsFunc(w.pod.Status.Conditions, isDisruption) {
						marked[w.pod.Namespace] = w.at.Sub(silent)
						marks[w.pod.Namespace]++
					}
				}
				for _, namespace := range []string{"x-quick", "y-quick"} {
					// with 20 they may be deleted before they are marked
					if slow < 20 && marks[namespace] != count || marked[namespace] > within {
						t.Errorf("pods of %s: %d of %d marked within %v of the silence, want all within %v", namespace, marks[namespace], count, marked[namespace], within)
					}
					if deletions[namespace] != count || left[namespace] > within {
						t.Errorf("pods of %s: %d of %d deleted within %v of the taint, want all within %v", namespace, deletions[namespace], count, left[namespace], within)
					}
				}
				for i := range slow % 20 { // those of 20 namespaces take hours
					if namespace := fmt.Sprint("slow-", i); deletions[namespace] != count {
						t.Errorf("pods of %s: %d of %d deleted", namespace, deletions[namespace], count)
					}
				}
			})
		})
	}
}
