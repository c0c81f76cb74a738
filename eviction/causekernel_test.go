package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// setKernelMemory sets a pod's kernel memory, in MiB; -1: not reported.
func (w *testNode) setKernelMemory(uid string, mib int) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.Memory.KernelBytes = stats.Opt[uint64]{V: uint64(max(0, mib)) << 20, OK: mib >= 0}
		}
	}
}

// Kernel memory of a pod, as in sockets and pipes, is neither anonymous nor shared, but counts as
// growth. A neighbour that grew by a hundredth of the node is not the cause next to a hog of 3 GB,
// whether or not the node's loss shows the hog.
func TestKernelMemoryHogCausesPressure(t *testing.T) {
	for _, c := range []struct {
		name              string
		calm, left        uint64 // MiB of the node, before and at the end
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
		w := newTestNode(t, "hard memory.pressure.full 20%/1s")
		w.setLeft(stats.SignalMemoryAvailable, c.calm)
		w.addPod("hog", 500, 0, 1)
		w.addPod("neighbour", 300, 0, 1)
		w.setActivity("hog", 10, 0, 0)
		w.setActivity("neighbour", 300, 0, 0)
		w.setKernelMemory("hog", c.before)
		w.setKernelMemory("neighbour", 10)
		w.fullLook(time.Second, 0.1)
		w.setLeft(stats.SignalMemoryAvailable, c.left)
		w.setActivity("hog", uint64(c.own), 0, 0)
		w.setActivity("neighbour", 500, 0, 0)
		w.setKernelMemory("hog", c.kept)
		if got := w.fullLook(time.Second, 0.5); got != c.want {
			t.Errorf("%s: victim = %q, want %q: %s", c.name, got, c.want, w.reason)
		}
	}
}

// A pod within its request is never chosen, whatever its kernel memory.
func TestKernelMemoryWithinRequestIsProtected(t *testing.T) {
	w := newTestNode(t, "hard memory.pressure.full 20%/1s")
	w.setLeft(stats.SignalMemoryAvailable, 4000)
	p := w.addPod("hog", 500, 0, 1)
	p.QOSClass, p.MemoryRequest = stats.Burstable, stats.Some(stats.ExactRange(4000<<20))
	w.setActivity("hog", 10, 0, 0)
	w.setKernelMemory("hog", 10)
	w.fullLook(time.Second, 0.1)
	w.setLeft(stats.SignalMemoryAvailable, 800)
	w.setActivity("hog", 3500, 0, 0)
	w.setKernelMemory("hog", 3000)
	if got := w.fullLook(time.Second, 0.5); got != "" {
		t.Errorf("victim = %q, want none within its request: %s", got, w.reason)
	}
}
