package nodes

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/cluster/mirror"
)

// isPatch reports whether a request patches the taints of a node.
func isPatch(r *http.Request, node string) bool {
	return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/"+node)
}

// mirrors reports whether the mirror of a replica has the node.
func mirrors(r *replica, node string) (found bool) {
	r.ctrl.deps.Mirror.View(func(v *mirror.View) { found = v.Nodes[node] != nil })
	return found
}

// A cloud controller deletes a silent node between the patch of its status and that of its taints.
// The answer of the first patch does not put the node back into the mirror, whether the watch
// reports the deletion before or long after that answer, and a node that dies later is tainted.
func TestDeletedNodeStaysDeleted(t *testing.T) {
	for name, lag := range map[string]time.Duration{"watch first": 0, "answer first": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 5, -1, func(t *testing.T, a *api, k *kubelets) {
				patches := 0
				a.fault = func(_ string, q *http.Request) int {
					if !isPatch(q, "n1") {
						return 0
					}
					a.change(func() {
						if patches++; patches == 1 {
							a.watchLag = map[string]time.Duration{"nodes": lag}
							a.removeNode("n1")
						}
					})
					if patches == 1 {
						time.Sleep(500 * time.Millisecond) // the watch is faster than the answer
					}
					return 0
				}
				r := a.start("a", nil)
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false)
				a.await("node n1 patched", func() bool { return patches > 0 })
				time.Sleep(20 * time.Second)
				if patches != 1 {
					t.Errorf("%d taint patches of the deleted node, want 1", patches)
				}
				if mirrors(r, "n1") {
					t.Error("the deleted node is in the mirror")
				}
				time.Sleep(lag)
				a.change(func() { a.watchLag = nil })
				k.setAlive("n2", false)
				time.Sleep(90 * time.Second)
				a.change(func() {
					if !a.hasTaint("n2", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) {
						t.Error("node n2 has no NoExecute taint 90s after its death")
					}
				})
			})
		})
	}
}

// A cloud controller deletes 300 dead nodes as soon as they are Unknown, while writes take some
// time. No node comes back into the mirror, and a node that dies afterwards is tainted in time.
func TestDeadNodesAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		const all, dead = 620, 300
		k := a.cluster(all)
		random := rand.New(rand.NewPCG(1, 38))
		a.fault = func(_ string, q *http.Request) int {
			if q.Method == http.MethodPatch {
				var wait time.Duration
				a.change(func() { wait = time.Duration(random.IntN(100)) * time.Millisecond })
				time.Sleep(wait)
			}
			return 0
		}
		r := a.start("a", nil)
		time.Sleep(15 * time.Second)
		for i := range dead {
			k.setAlive(fmt.Sprint("n", i), false)
		}
		for range 900 { // 90 seconds
			time.Sleep(100 * time.Millisecond)
			a.change(func() {
				for i := range dead {
					name := fmt.Sprint("n", i)
					if n := a.nodes[name]; n != nil && n.Status.Conditions[readyIndex(n)].Status == v1.ConditionUnknown {
						a.removeNode(name)
					}
				}
			})
		}
		ghosts := 0
		for i := range dead {
			if mirrors(r, fmt.Sprint("n", i)) {
				ghosts++
			}
		}
		if left := len(a.nodes); ghosts > 0 || left != all-dead {
			t.Errorf("%d deleted nodes are in the mirror, %d nodes left, want 0 and %d", ghosts, left, all-dead)
		}
		k.setAlive("n600", false)
		time.Sleep(75 * time.Second)
		a.change(func() {
			if !a.hasTaint("n600", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) {
				t.Error("node n600 has no NoExecute taint 75s after its death")
			}
		})
		k.end()
		stopAll(r)
	})
}

// A pod that is deleted between the read of its node and its own writes is not deleted repeatedly
// while the watch lags.
func TestDeletedPodStaysDeleted(t *testing.T) {
	inCluster(t, 4, -1, func(t *testing.T, a *api, k *kubelets) {
		removed, later := false, 0
		a.fault = func(_ string, q *http.Request) int {
			if strings.Contains(q.URL.Path, "/pods/") {
				a.change(func() {
					if removed {
						later++
					} else if q.Method == http.MethodDelete {
						removed, a.watchLag = true, map[string]time.Duration{"pods": 30 * time.Second}
						a.removePod("d/n1-p0")
					}
				})
			}
			return 0
		}
		a.start("a", nil)
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		a.await("pod removed", func() bool { return removed })
		for range 100 { // changes that make the loop decide again
			time.Sleep(100 * time.Millisecond)
			a.change(func() {
				n := a.nodes["n2"].DeepCopy()
				n.Spec.Unschedulable = !n.Spec.Unschedulable
				a.putNode(n)
			})
		}
		if later > 0 {
			t.Errorf("%d requests for the deleted pod, want none", later)
		}
	})
}

// The pods of a node that reports NotReady are marked when it falls silent, but not if it renews
// its Lease and only the watch lags.
func TestMarksOfNotReadyNode(t *testing.T) {
	for _, how := range []string{"silent", "watch lags"} {
		t.Run(how, func(t *testing.T) {
			inCluster(t, 4, 3600, func(t *testing.T, a *api, k *kubelets) {
				a.start("a", nil)
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false)
				a.change(func() {
					n := a.nodes["n1"].DeepCopy()
					n.Status.Conditions[0].Status = v1.ConditionFalse
					a.putNode(n)
				})
				time.Sleep(time.Second)
				if how == "watch lags" {
					a.change(func() { a.hidden = "n1" })
				}
				for range 12 {
					if how == "watch lags" {
						a.change(func() {
							l := a.leases[v1.NamespaceNodeLease+"/n1"].DeepCopy()
							l.Spec.RenewTime.Time, l.ManagedFields[0].Time.Time = time.Now(), time.Now()
							a.putLease(l)
						})
					}
					time.Sleep(10 * time.Second)
				}
				marks := a.writes("condition")
				if want := map[string]int{"silent": 1}[how]; len(marks) != want {
					t.Errorf("%d marks, want %d", len(marks), want)
				}
				if how == "watch lags" {
					for _, e := range a.events {
						if e.Reason == "NodeNotReady" {
							t.Errorf("event of %s: %s, although its kubelet is alive", e.InvolvedObject.Name, e.Reason)
						}
					}
				}
			})
		})
	}
}

// The write of the condition Unknown succeeds, but its answer is lost, and the watch reports it
// before the next try. The pods of the node are marked.
func TestMarksAfterLostAnswer(t *testing.T) {
	inCluster(t, 4, 3600, func(t *testing.T, a *api, k *kubelets) {
		lost := false
		a.fault = func(_ string, q *http.Request) int {
			if lost || !isPatch(q, "n1/status") {
				return 0
			}
			a.change(func() {
				lost, a.watchLag = true, map[string]time.Duration{"nodes": 100 * time.Millisecond}
				a.setUnknown("n1")
			})
			return http.StatusInternalServerError
		}
		a.start("a", nil)
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false)
		time.Sleep(10 * time.Minute)
		if marks := a.writes("condition"); !lost || len(marks) != 1 {
			t.Errorf("answer lost: %v, %d marks after 10m, want 1", lost, len(marks))
		}
	})
}

// The kubelet of a deleted node renews the Lease of its name. A new node of that name, whose kubelet
// is dead, is tainted, also while the watch of Leases lags. It is not fenced: a machine is alive.
func TestNewNodeWithOldLease(t *testing.T) {
	for _, how := range []string{"current", "watch lags"} {
		t.Run(how, func(t *testing.T) {
			inCluster(t, 12, 3600, func(t *testing.T, a *api, k *kubelets) {
				a.startFencing(func(string) bool { return true })
				time.Sleep(15 * time.Second)
				k.setAlive("n1", false)
				renew := func() {
					a.change(func() {
						l := a.leases[v1.NamespaceNodeLease+"/n1"].DeepCopy()
						l.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "u-n1"}}
						l.Spec.RenewTime.Time, l.ManagedFields[0].Time.Time = time.Now(), time.Now()
						a.putLease(l)
					})
				}
				renew()
				a.change(func() {
					n := a.nodes["n1"].DeepCopy()
					a.removeNode("n1")
					n.UID, n.CreationTimestamp = "u-new", metav1.Now()
					a.putNode(n)
				})
				time.Sleep(time.Second)
				if how == "watch lags" {
					a.change(func() { a.hidden = "n1" })
				}
				for range 48 {
					renew()
					time.Sleep(10 * time.Second)
				}
				a.change(func() {
					if !a.hasTaint("n1", v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) {
						t.Error("the new node has no NoExecute taint after 8m")
					}
				})
				if n := len(a.fenced()); n > 0 {
					t.Errorf("%d nodes fenced, want none: a kubelet renews the Lease", n)
				}
			})
		})
	}
}

// A living kubelet whose node was registered again renews the Lease of the old node. While it posts
// the status, the node stays Ready, also if the watch of Leases lags.
func TestReregisteredNodeStaysReady(t *testing.T) {
	inCluster(t, 12, 3600, func(t *testing.T, a *api, k *kubelets) {
		a.start("a", nil)
		time.Sleep(15 * time.Second)
		k.setAlive("n1", false) // the kubelet of the test would remove the owner
		a.change(func() {
			n := a.nodes["n1"].DeepCopy()
			a.removeNode("n1")
			n.UID, n.CreationTimestamp = "u-new", metav1.Now()
			a.putNode(n)
		})
		for i := range 30 {
			a.change(func() {
				l := a.leases[v1.NamespaceNodeLease+"/n1"].DeepCopy()
				l.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "u-n1"}}
				l.Spec.RenewTime.Time, l.ManagedFields[0].Time.Time = time.Now(), time.Now()
				a.putLease(l)
			})
			time.Sleep(10 * time.Second)
			a.change(func() {
				if i == 3 {
					a.hidden = "n1"
				}
			})
		}
		for _, w := range a.writes("status", "taints") {
			t.Errorf("%v: write %s, although the kubelet is alive", w.at.Sub(a.startedAt), w.what)
		}
	})
}
