package mirror

import (
	"testing"
	"testing/synctest"
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

// A gap begins when nothing arrived for longer than maxGap and ends with the next event or probe.
func TestGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		began := time.Now()
		check := func(what string, want time.Duration) {
			t.Helper()
			if got := m.WatchedSince().Sub(began); got != want {
				t.Errorf("%s: watched since %v after the start, want %v", what, got, want)
			}
		}
		m.nodeSource.setSynced()
		time.Sleep(time.Second)
		check("Leases not synced", time.Second)
		m.leaseSource.setSynced()
		time.Sleep(5 * time.Second)
		m.nodeSource.setOpen(time.Now())
		m.leaseSource.setOpen(time.Now())
		time.Sleep(4 * time.Second)
		check("quiet for nine seconds", time.Second)
		probe := func() {
			at := time.Now()
			m.nodeSource.recordProbe(at)
			m.leaseSource.recordProbe(at)
		}
		probe()
		time.Sleep(maxGap)
		m.nodeSource.setOpen(time.Time{}) // the watch restarts
		m.nodeSource.setOpen(time.Now())
		m.leaseSource.recordEvent()
		probe()
		check("no gap yet", time.Second)
		time.Sleep(maxGap + 1)
		check("gap", time.Since(began))
		m.nodeSource.recordEvent()
		check("Leases are not current", time.Since(began))
		m.leaseSource.recordEvent()
		ended := time.Since(began)
		time.Sleep(time.Second)
		check("after the gap", ended)
	})
}
