package mirror

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// k3s removes the taint of a new node with its cloud controller, under the name of all its
// controllers. A rival changes taints that this program manages.
func TestRivalChangesManagedTaints(t *testing.T) {
	m := New(Options{Rivals: []string{"k3s"}, FromServer: func(at time.Time) time.Time { return at }})
	at := time.Now().Add(-time.Hour)
	put := func(taints ...v1.Taint) (manager string) {
		at = at.Add(time.Minute)
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}, Spec: v1.NodeSpec{Taints: taints}}
		if m.nodes["n"] != nil {
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "k3s", Time: &metav1.Time{Time: at},
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
		}
		if err := m.nodeFeed().Update(n); err != nil {
			t.Fatal(err)
		}
		m.View(func(v *View) { manager, _ = v.Rival("n") })
		return manager
	}
	notReady := v1.Taint{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}
	put(v1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule}, notReady)
	if manager := put(notReady); manager != "" {
		t.Errorf("rival after a change of the cloud controller's taint = %q, want none", manager)
	}
	if manager := put(notReady, v1.Taint{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute}); manager != "k3s" {
		t.Errorf("rival after it added a taint for not ready = %q, want k3s", manager)
	}
}
