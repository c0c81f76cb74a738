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
				time.Sleep(40 * time.Minute)
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

// Deletions of pods in more namespaces than there are places take long, because of a webhook, or are
// many. The pods of another node that falls silent meanwhile are marked soon: until then Services send
// requests to them.
func TestEvictionsDelayNoMarks(t *testing.T) {
	const namespaces, count = 20, 60 // namespaces, and pods of each on the first node
	for takes, later := range map[time.Duration]time.Duration{30 * time.Second: 6 * time.Minute, time.Second: 10 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			inCluster(t, 6, -1, func(t *testing.T, a *api, k *kubelets) {
				a.change(func() {
					for i := range namespaces {
						for j := range count + 3 {
							node := "n1"
							if j >= count {
								node = "n2"
							}
							p := a.pods["d/"+node+"-p0"].DeepCopy()
							p.Namespace, p.Name = fmt.Sprint("slow-", i), fmt.Sprint("p", j)
							p.UID = types.UID(p.Namespace + p.Name)
							a.putPod(p)
						}
					}
					a.fault = func(_ string, r *http.Request) int {
						if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/namespaces/slow-") {
							time.Sleep(takes)
						}
						return 0
					}
				})
				a.start("a", nil)
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false)
				time.Sleep(later)
				k.setAlive("n2", false)
				a.await("node n2 silent", func() bool { return hasReady(a.nodes["n2"], v1.ConditionUnknown) })
				silent := time.Now()
				if n := len(a.writes("delete")); n == 0 || n >= namespaces*count {
					t.Errorf("%d pods deleted when node n2 fell silent, want some of %d", n, namespaces*count)
				}
				time.Sleep(2 * time.Minute)
				isMarked := func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionFalse }
				marked, last := map[types.UID]bool{}, time.Duration(0)
				for _, w := range a.writes("condition") {
					if w.pod.Spec.NodeName == "n2" && !marked[w.pod.UID] && slices.ContainsFunc(w.pod.Status.Conditions, isMarked) {
						marked[w.pod.UID], last = true, w.at.Sub(silent)
					}
				}
				if want := 3*namespaces + 1; len(marked) != want || last > 10*time.Second {
					t.Errorf("%d of %d pods of node n2 marked, the last %v after it fell silent, want all within 10s", len(marked), want, last)
				}
			})
		})
	}
}
