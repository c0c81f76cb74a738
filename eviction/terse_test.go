package eviction

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"jettison/stats"
)

// The victim after a quick look, in which pods are read one by one as PodToRead requests, is the
// victim of a look that read all of them.
func TestQuickLookHasSameVictim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type truth struct{ current, inactive uint64 }
		var truths []truth
		whole := stats.Summary{}
		whole.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(1 << 30)), WorkingSetBytes: stats.Some(uint64(1 << 30)), KernelAvailableBytes: stats.Some(uint64(50 << 20))}
		for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
			p := stats.PodStats{
				PodRef: stats.PodReference{UID: fmt.Sprint("u", i), Namespace: "default"}, Announced: true, Populated: stats.Some(rapid.IntRange(0, 9).Draw(t, "lives") > 0),
				QOSClass: rapid.SampledFrom([]stats.QOSClass{stats.BestEffort, stats.Burstable, stats.Guaranteed}).Draw(t, "qos"),
			}
			if rapid.Bool().Draw(t, "requests") {
				p.MemoryRequest = stats.Some(stats.ExactRange(rapid.Uint64Range(0, 10).Draw(t, "request") << 20))
			}
			tr := truth{current: rapid.Uint64Range(0, 20).Draw(t, "current") << 20}
			tr.inactive = rapid.Uint64Range(0, tr.current>>20).Draw(t, "inactive") << 20
			p.Memory.WorkingSetBytes = stats.Some(tr.current - tr.inactive)
			whole.Pods, truths = append(whole.Pods, p), append(truths, tr)
		}
		aside := rapid.IntRange(-1, len(whole.Pods)-1).Draw(t, "set aside")
		decide := func(s *stats.Summary, terse bool) Decision {
			m := NewManager(Config{MemoryAvailable: stats.MemoryAvailableLower, Thresholds: benchManager(false).config.Thresholds})
			if aside >= 0 {
				m.SetPodAside(epoch, s.Pods[aside].PodRef.UID)
			}
			m.Observe(epoch, &s.Node, Situation{})
			in := Input{Summary: s, MemoryOnly: true, Terse: terse}
			reads := 0
			for {
				i := m.PodToRead(epoch, in)
				if i < 0 {
					break
				}
				p := &s.Pods[i]
				p.Memory.Quick = false
				p.Memory.WorkingSetBytes.V = truths[i].current - truths[i].inactive
				if reads++; reads > len(s.Pods) {
					t.Fatal("Unread asks for more reads than there are pods")
				}
			}
			return m.Step(epoch.Add(time.Millisecond), in)
		}
		quick := whole
		quick.Pods = append([]stats.PodStats(nil), whole.Pods...)
		for i := range quick.Pods {
			quick.Pods[i].Memory.Quick = true
			quick.Pods[i].Memory.WorkingSetBytes.V = truths[i].current
		}
		want, got := decide(&whole, false), decide(&quick, true)
		if len(want.Evictions) != len(got.Evictions) {
			t.Fatalf("%d evictions, want %d", len(got.Evictions), len(want.Evictions))
		}
		if len(want.Evictions) == 0 {
			return
		}
		got.AddTexts()
		if w, g := &want.Evictions[0], &got.Evictions[0]; w.Pod.PodRef != g.Pod.PodRef || w.Returns != g.Returns || w.Message != g.Message || want.Reason != got.Reason || g.Pod.Memory.Quick {
			t.Fatalf("evicts %+v (%s), want %+v (%s)", g, got.Reason, w, want.Reason)
		}
	})
}

// The returns of a pod in its grace period are measured again before they are compared with the
// loss since.
func TestTerminatingVictimIsReadFirst(t *testing.T) {
	m, in := benchManager(false), fullNode(3)
	in.Summary.Node.Memory.KernelAvailableBytes = stats.Some(uint64(50 << 20))
	in.MemoryOnly = true
	d := m.Step(epoch, in)
	m.Begin(Stamp{Time: epoch}, d.Evictions[0], d.Signal)
	for i := range in.Summary.Pods {
		in.Summary.Pods[i].Memory.Quick = true
	}
	if i := m.PodToRead(epoch, in); i < 0 || in.Summary.Pods[i].PodRef.UID != d.Evictions[0].Pod.PodRef.UID {
		t.Errorf("Unread = %d, want the victim %s", i, d.Evictions[0].Pod.PodRef.UID)
	}
	before := m.evictions.lives[0].e.Returns
	in.Summary.Pods[2].Memory.WorkingSetBytes.V = 1 << 30
	m.Step(epoch.Add(time.Second), in)
	if m.evictions.lives[0].e.Returns != before {
		t.Error("expected return was set from an upper bound, want the measured value")
	}
}

// A victim's shared memory returns with the clean-up, which may take long: no other pod is evicted
// meanwhile.
func TestSharedMemoryIsAwaited(t *testing.T) {
	for _, shared := range []uint64{0, leastShared + 1} {
		m, in := benchManager(false), fullNode(3)
		in.Summary.Node.Memory.KernelAvailableBytes = stats.Some(uint64(50 << 20))
		in.MemoryOnly = true
		for i := range in.Summary.Pods {
			in.Summary.Pods[i].Memory.ShmemBytes = stats.Some(shared)
		}
		d := m.Step(epoch, in)
		m.Emptied(Stamp{Time: epoch}, m.Begin(Stamp{Time: epoch}, d.Evictions[0], d.Signal))
		if waits := len(m.Step(epoch.Add(settleLimit+time.Second), in).Evictions) == 0; waits != (shared > 0) {
			t.Errorf("%d bytes shared: waits = %v, want %v", shared, waits, shared > 0)
		}
		if shared > 0 && len(m.Step(epoch.Add(sharedLimit+time.Second), in).Evictions) != 1 {
			t.Error("no eviction after sharedLimit, want one")
		}
	}
}
