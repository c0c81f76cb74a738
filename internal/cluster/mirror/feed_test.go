package mirror

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Watch events older than the stored object are ignored. A list is stored whatever its versions:
// after a restore of etcd from a backup, all versions are older, and stay so.
func TestListReplacesNewerVersions(t *testing.T) {
	m := New(Options{})
	at := func(version string, seconds int64) (*v1.Node, *coordination.Lease, *v1.Pod) {
		meta := metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: version}
		n := &v1.Node{ObjectMeta: meta, Spec: v1.NodeSpec{ProviderID: version}}
		l := &coordination.Lease{ObjectMeta: meta}
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(seconds, 0)}
		p := &v1.Pod{ObjectMeta: meta, Spec: v1.PodSpec{NodeName: version}}
		return n, l, p
	}
	versions := func() [3]string {
		return [3]string{m.nodes["n"].ResourceVersion, m.leases["n"].ResourceVersion, m.pods["n"].ResourceVersion}
	}
	event := func(version string, seconds int64) {
		n, l, p := at(version, seconds)
		for _, err := range []error{m.nodeFeed().Update(n), m.leaseFeed().Update(l), m.podFeed().Update(p)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func(version string, seconds int64) {
		n, l, p := at(version, seconds)
		for _, err := range []error{
			m.nodeFeed().Replace([]any{n}, version), m.leaseFeed().Replace([]any{l}, version),
			m.podFeed().Replace([]any{p}, version),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	list("100", 10)
	event("90", 9)
	if got := versions(); got != [3]string{"100", "100", "100"} {
		t.Errorf("versions after an older event = %v, want 100", got)
	}
	m.renewedAt["n"] = time.Time{}
	list("50", 20)
	if got := versions(); got != [3]string{"50", "50", "50"} || m.renewedAt["n"].IsZero() {
		t.Errorf("versions after an older list = %v, renewed %v, want 50", got, m.renewedAt["n"])
	}
	if len(m.podsByNode["50"]) != 1 || len(m.podsByNode["100"]) != 0 {
		t.Errorf("pods by node = %v, want one on node 50", m.podsByNode)
	}
	event("60", 30)
	if got := versions(); got != [3]string{"60", "60", "60"} {
		t.Errorf("versions after a newer event = %v, want 60", got)
	}
}
