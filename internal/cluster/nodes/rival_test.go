package nodes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/cluster/config"
)

// stamp writes managedFields with taints of kube-controller-manager to a node, as its kubelet may.
func (a *api) stamp(node string, at time.Time) {
	n := a.nodes[node].DeepCopy()
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update",
		Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
	a.putNode(n)
}

// Stamps that a kubelet forges on its node delay a replica that has just started once, and not a
// standby that takes over.
func TestForgedRivalStamp(t *testing.T) {
	for name, stated := range map[string]time.Duration{"in the future": 10 * 365 * 24 * time.Hour, "renewed": 0} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 8, -1, func(t *testing.T, a *api, k *kubelets) {
				forge := func(d time.Duration) {
					for range d / (10 * time.Second) {
						a.change(func() { a.stamp("n0", time.Now().Add(stated)) })
						time.Sleep(10 * time.Second)
					}
				}
				tainted := func(node string) (is bool) {
					a.change(func() { is = a.hasTaint(node, v1.TaintNodeUnreachable, v1.TaintEffectNoExecute) })
					return is
				}
				a.change(func() { a.stamp("n0", time.Now().Add(stated)) })
				r := a.start("a", nil)
				k.setAlive("n1", false)
				forge(4 * time.Minute)
				if n := len(a.writes()); n > 0 {
					t.Errorf("%d writes after 4m, want none: the stamp may be true", n)
				}
				forge(3 * time.Minute)
				if !tainted("n1") {
					t.Error("node n1 has no taint after 7m")
				}
				standby := a.start("b", nil)
				forge(6 * time.Minute)
				r.stop()
				r.disconnect()
				k.setAlive("n2", false)
				forge(2 * time.Minute)
				if !tainted("n2") {
					t.Error("node n2 has no taint 2m after the takeover by a standby")
				}
				standby.stop()
				standby.disconnect()
				a.start("c", nil)
				k.setAlive("n3", false)
				forge(4 * time.Minute)
				if tainted("n3") {
					t.Error("node n3 has a taint 4m after a start")
				}
				forge(3 * time.Minute)
				if !tainted("n3") {
					t.Error("node n3 has no taint 7m after a start")
				}
			})
		})
	}
}

// A rival that changes taints is noticed, also if other entries have later times.
func TestRivalThatChangesTaints(t *testing.T) {
	inCluster(t, 8, -1, func(t *testing.T, a *api, k *kubelets) {
		a.change(func() {
			n := a.nodes["n0"].DeepCopy()
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "k3s", Time: &metav1.Time{Time: time.Now().Add(time.Hour)}}}
			a.putNode(n)
		})
		a.start("a", func(c *config.Cluster) { c.LeaderElect = false })
		k.setAlive("n1", false)
		for i := range 20 { // a rival writes each minute
			a.change(func() {
				n := a.nodes["n0"].DeepCopy()
				now := metav1.Now()
				n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeDiskPressure, Effect: v1.TaintEffectNoSchedule}}[:i%2]
				n.ManagedFields = append(n.ManagedFields[:1:1], metav1.ManagedFieldsEntry{Manager: "k0s", Time: &now})
				a.putNode(n)
			})
			time.Sleep(time.Minute)
		}
		if n := len(a.writes()); n > 0 {
			t.Errorf("%d writes alongside a rival, want none", n)
		}
		time.Sleep(7 * time.Minute)
		if n := len(a.writes("taints")); n == 0 {
			t.Error("no taints written 7m after the last write of the rival")
		}
	})
}
