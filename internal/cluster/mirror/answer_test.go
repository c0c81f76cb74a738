package mirror

import (
	"testing"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An answer that arrives after the watch reported the deletion of its object puts nothing back,
// also if a new object has the name. While the watch lags, the answer replaces the object.
func TestAnswerPutsNothingBack(t *testing.T) {
	meta := func(uid, version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "n", UID: types.UID(uid), ResourceVersion: version}
	}
	node := func(uid, version string) *v1.Node { return &v1.Node{ObjectMeta: meta(uid, version)} }
	lease := func(uid, version string) *coordination.Lease {
		return &coordination.Lease{ObjectMeta: meta(uid, version)}
	}
	pod := func(uid, version string) *v1.Pod {
		return &v1.Pod{ObjectMeta: meta(uid, version), Spec: v1.PodSpec{NodeName: "n"}}
	}
	for _, c := range []struct{ name, stored, storedVersion, answer, version, want string }{
		{"deleted", "", "", "a", "2", ""},
		{"replaced", "b", "4", "a", "2", "4"},
		{"older", "a", "3", "a", "2", "3"},
		{"newer", "a", "1", "a", "2", "2"},
	} {
		m := New(Options{})
		if c.stored != "" {
			m.putNode(node(c.stored, c.storedVersion))
			m.putLease(lease(c.stored, c.storedVersion))
			m.putPod(pod(c.stored, c.storedVersion))
		}
		m.UpdateNode(node("a", ""), node(c.answer, c.version))
		m.UpdateLease(node("a", ""), lease("a", ""), lease(c.answer, c.version))
		m.UpdatePod(pod(c.answer, c.version))
		got := map[string]string{"node": "", "lease": "", "pod": ""}
		if n := m.nodes["n"]; n != nil {
			got["node"] = n.ResourceVersion
		}
		if l := m.leases["n"]; l != nil {
			got["lease"] = l.ResourceVersion
		}
		if p := m.pods[types.UID(c.stored)]; p != nil {
			got["pod"] = p.ResourceVersion
		}
		for kind, version := range got {
			if version != c.want {
				t.Errorf("%s: version of the %s after the answer = %q, want %q", c.name, kind, version, c.want)
			}
		}
		if n := len(m.pods); n > 1 || c.stored == "" && n > 0 {
			t.Errorf("%s: %d pods after the answer", c.name, n)
		}
	}
}

// The deletion of an old Lease does not remove the Lease of a new node, which an answer stored
// before.
func TestLeaseIsDroppedByUID(t *testing.T) {
	m := New(Options{})
	lease := func(uid, version string) *coordination.Lease {
		return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(uid), ResourceVersion: version}}
	}
	m.putLease(lease("b", "5"))
	if err := m.leaseFeed().Delete(lease("a", "4")); err != nil {
		t.Fatal(err)
	}
	if m.leases["n"] == nil {
		t.Error("the Lease of the new node was removed")
	}
}
