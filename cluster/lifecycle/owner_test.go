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
// deleted node as owner. That Lease does not keep a new node of the name alive
// (kubernetes#116485).
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
		for at := time.Duration(0); at <= 2*time.Minute; at += 10 * time.Second {
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
		heard := core.Report(start.Add(2*time.Minute), s)[0].Heard
		if unknown == c.alive || heard.After(start.Add(time.Minute)) != c.alive {
			t.Errorf("%s: node Unknown %v after 2m, heard at %v, want alive %v", c.name, unknown, heard.Sub(start), c.alive)
		}
	}
}
