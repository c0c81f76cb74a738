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
				r := stats.ExactRange(rapid.Uint64Range(0, 10).Draw(t, "request") << 20)
				r.Max += rapid.SampledFrom([]uint64{0, 0, 5, 200, 1024}).Draw(t, "doubt") << 20
				p.MemoryRequest = stats.Some(r)
			}
			most := rapid.SampledFrom([]uint64{20, 20, 400}).Draw(t, "most")
			tr := truth{current: rapid.Uint64Range(0, most).Draw(t, "current") << 20}
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
			if terse {
				m.Rehearse(epoch, in) // changes no decision
			}
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

// A pod that is over its request only by the upper bound of its usage may come first by its possible
// excess: it is read although a pod that is over its request by more comes before it.
func TestPodThatMayOutweighIsRead(t *testing.T) {
	const mi = 1 << 20
	for _, c := range []struct {
		max   uint64 // of the hog's request
		usage uint64 // of the hog, in full
		want  string
	}{
		{400 * mi, 400 * mi, "hog"},
		{400 * mi, 100 * mi, "neighbour"},
	} {
		m, in := benchManager(false), fullNode(2)
		in.Summary.Node.Memory.KernelAvailableBytes = stats.Some(uint64(50 << 20))
		in.MemoryOnly = true
		set := func(p *stats.PodStats, uid string, r stats.Range, usage uint64, quick bool) {
			p.PodRef.UID, p.QOSClass, p.MemoryRequest = uid, stats.Burstable, stats.Some(r)
			p.Memory.WorkingSetBytes, p.Memory.Quick = stats.Some(usage), quick
		}
		hog := &in.Summary.Pods[0]
		set(hog, "hog", stats.Range{Min: 10 * mi, Max: c.max}, 405*mi, true)
		set(&in.Summary.Pods[1], "neighbour", stats.ExactRange(10*mi), 20*mi, false)
		m.Observe(epoch, &in.Summary.Node, Situation{})
		if i := m.PodToRead(epoch, in); i != 0 {
			t.Fatalf("PodToRead = %d, want the hog", i)
		}
		set(hog, "hog", stats.Range{Min: 10 * mi, Max: c.max}, c.usage, false)
		if d := m.Step(epoch, in); len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != c.want {
			t.Errorf("usage %d: evicts %+v, want %s", c.usage, d.Evictions, c.want)
		}
	}
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
