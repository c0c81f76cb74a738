package lifecycle

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The kubelet of a machine whose node was deleted still renews its Lease, which names the
// deleted node as owner. That Lease does not keep a new node of the name alive whose status is not
// posted any more (kubernetes#116485).
func TestLeaseOfAnotherMachine(t *testing.T) {
	for _, c := range []struct {
		name   string
		owners []metav1.OwnerReference
		alive  bool
	}{
		{"no owner", nil, true},
		{"this node", []metav1.OwnerReference{{Kind: "Node", UID: "u0"}}, true},
		{"another node", []metav1.OwnerReference{{Kind: "Node", UID: "old"}}, false},
		{"another kind", []metav1.OwnerReference{{Kind: "Machine", UID: "m"}}, true},
		{"both", []metav1.OwnerReference{{Kind: "Node", UID: "old"}, {Kind: "Node", UID: "u0"}}, true},
	} {
		core, all := New(defaults()), nodes(3, 0)
		s := seen(all)
		for at := time.Duration(0); at <= 8*time.Minute; at += 10 * time.Second {
			now := start.Add(at)
			for name, n := range all {
				l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("l-" + name)}}
				if name == "n000" {
					l.OwnerReferences = c.owners
				}
				l.Spec.RenewTime = &metav1.MicroTime{Time: now}
				s.Leases[n.Name] = l
			}
			for _, w := range core.Step(now, s).Status {
				all[w.Node].Status.Conditions = w.Conditions
			}
		}
		unknown := condition(all["n000"], v1.NodeReady).Status == v1.ConditionUnknown
		heard := core.Report(start.Add(8*time.Minute), s)[0].Heard
		if unknown == c.alive || heard.After(start.Add(7*time.Minute)) != c.alive {
			t.Errorf("%s: node Unknown %v after 8m, heard at %v, want alive %v", c.name, unknown, heard.Sub(start), c.alive)
		}
	}
}

// A living kubelet whose node was deleted and registered again keeps the Lease of the old node
// until the garbage collector removes it, which may take hours. It posts the status only every five
// minutes, and within 10s of a change by others.
func TestReregisteredNodeStaysReady(t *testing.T) {
	core, all := New(defaults()), nodes(3, 0)
	s, written, posted := seen(all), 0, start
	for at := time.Duration(0); at <= 15*time.Minute; at += 10 * time.Second {
		now := start.Add(at)
		for name, n := range all {
			l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("l-" + name)}}
			if name == "n000" {
				l.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: "old"}}
			}
			l.Spec.RenewTime = &metav1.MicroTime{Time: now}
			s.Leases[n.Name] = l
		}
		if ready := condition(all["n000"], v1.NodeReady); ready.Status != v1.ConditionTrue || now.Sub(posted) >= 5*time.Minute {
			all["n000"].Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Time{Time: now}}}
			posted = now
		}
		for _, w := range core.Step(now, s).Status {
			core.End(now, w.Node, w.UID, WriteStatus, true)
			all[w.Node].Status.Conditions = w.Conditions
			written++
		}
	}
	if written > 0 {
		t.Errorf("a living node became Unknown %d times in 15m, want never", written)
	}
}
