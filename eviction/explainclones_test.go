package eviction

import (
	"testing"
	"time"
)

// A tenant inflates its usage while the disk is quiet, by clones of one file that count whole, and
// fills the disk later. It is not spared for holding no more than before.
func TestClonesOnQuietDiskShieldNoPod(t *testing.T) {
	for _, c := range []struct {
		name   string
		then   map[string]uint64
		victim string
	}{
		{"it held more than is used", map[string]uint64{"tenant": 500 * gib, "b": 3 * gib}, "tenant"},
		{"with the other one it held more than is used", map[string]uint64{"tenant": 58 * gib, "b": 3 * gib}, "tenant"},
		{"they held what is used", map[string]uint64{"tenant": 57 * gib, "b": 3 * gib}, ""},
	} {
		m := explainer(t)
		quietAt(m, epoch, 40*gib, c.then)
		if uid, _ := firstEviction(m, epoch.Add(time.Minute), suspectDelay, 5*gib, map[string]uint64{"tenant": 36 * gib, "b": 3 * gib}, ""); uid != c.victim {
			t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
		}
	}
}

// Usage of a pod beyond everything that is used explains nothing.
func TestNoPodHoldsMoreThanIsUsed(t *testing.T) {
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"a": gib})
	in := disks(epoch.Add(time.Minute), 4*gib, map[string]uint64{"a": 900 * gib})
	m.watch.evaluate(epoch.Add(time.Minute), in.Summary)
	if held := m.watch.disks.heldByPod(in, &m.watch.all[0])["a"]; held != 96*gib {
		t.Errorf("usage of the pod = %d GiB, want the 96 GiB that are used", held/gib)
	}
}
