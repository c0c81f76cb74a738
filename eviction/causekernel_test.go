package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// kept sets what the kernel keeps for a pod, in MiB; -1: it does not say.
func (w *ward) kept(uid string, mib int) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.Memory.KernelBytes = stats.Opt[uint64]{V: uint64(max(0, mib)) << 20, OK: mib >= 0}
		}
	}
}

// What the kernel keeps for a pod, as in sockets and pipes, is neither anonymous nor shared, and is growth all the same: not a neighbour that
// grew by a hundredth of the node is the cause beside a hog of 3 GB, whether or not the node's loss shows it.
func TestAHogOfKernelMemoryCausesPressure(t *testing.T) {
	for _, c := range []struct {
		name              string
		calm, left        uint64 // MiB of the node, before and at last
		before, kept, own int    // MiB of the hog
		want              string
	}{
		{"as the node's loss shows", 4000, 800, 10, 3000, 10, "hog"},
		{"which the node's loss does not show", 4000, 4000, 10, 3000, 10, "hog"},
		{"beside a daemon", 4000, 100, 10, 300, 10, ""},
		{"it is what it was", 700, 500, 3000, 3000, 10, "neighbour"},
		{"its buffers became memory of its own", 700, 500, 3000, 10, 3000, "neighbour"},
		{"the kernel did not say so far", 700, 500, -1, 3000, 10, "neighbour"},
		{"the kernel does not say any more", 700, 500, 3000, -1, 10, "neighbour"},
	} {
		w := newWard(t, "hard memory.pressure.full 20%/1s")
		w.left(stats.SignalMemoryAvailable, c.calm)
		w.pod("hog", 500, 0, 1)
		w.pod("neighbour", 300, 0, 1)
		w.did("hog", 10, 0, 0)
		w.did("neighbour", 300, 0, 0)
		w.kept("hog", c.before)
		w.kept("neighbour", 10)
		w.full(time.Second, 0.1)
		w.left(stats.SignalMemoryAvailable, c.left)
		w.did("hog", uint64(c.own), 0, 0)
		w.did("neighbour", 500, 0, 0)
		w.kept("hog", c.kept)
		if got := w.full(time.Second, 0.5); got != c.want {
			t.Errorf("%s: %q goes, want %q: %s", c.name, got, c.want, w.why)
		}
	}
}

// A pod within its request is never chosen, whatever the kernel keeps for it.
func TestAPodOfKernelMemoryWithinItsRequestDoesNotGo(t *testing.T) {
	w := newWard(t, "hard memory.pressure.full 20%/1s")
	w.left(stats.SignalMemoryAvailable, 4000)
	p := w.pod("hog", 500, 0, 1)
	p.QOSClass, p.MemoryRequest = stats.Burstable, stats.Some(stats.Exactly(4000<<20))
	w.did("hog", 10, 0, 0)
	w.kept("hog", 10)
	w.full(time.Second, 0.1)
	w.left(stats.SignalMemoryAvailable, 800)
	w.did("hog", 3500, 0, 0)
	w.kept("hog", 3000)
	if got := w.full(time.Second, 0.5); got != "" {
		t.Errorf("%q goes: %s", got, w.why)
	}
}
