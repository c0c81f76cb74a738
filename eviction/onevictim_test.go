package eviction

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"jettison/stats"
)

// shortage is a node whose memory is short by the amount that its first victim will return. A
// little more varies: what the runtime takes to tear the victim down.
type shortage struct {
	t       *rapid.T
	m       *Manager
	now     time.Time
	pods    []stats.PodStats
	victims int
}

// step looks at the node, and counts victims.
func (s *shortage) step(available uint64) Decision {
	s.now = s.now.Add(time.Duration(rapid.IntRange(1, 50).Draw(s.t, "ms")) * time.Millisecond)
	in := Input{Summary: &stats.Summary{Pods: s.pods}}
	n := &in.Summary.Node
	n.Layout = stats.Some(stats.Layout{})
	n.Memory = stats.NodeMemoryStats{Time: s.now, CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(available)}
	n.Allocatable = stats.AllocatableMemoryStats{Time: s.now, LimitBytes: stats.Some(uint64(16 << 30)), WorkingSetBytes: stats.Some(16<<30 - available)}
	d := s.m.Step(s.now, in)
	s.victims += victims(d)
	return d
}

// dip makes a look while the runtime works: a part of the victim's return is available, and at most
// an eighth of the available amount is missing for the moment.
func (s *shortage) dip(level, freed uint64) {
	s.step(level + freed - rapid.Uint64Range(0, level/dip).Draw(s.t, "dip"))
}

// If one victim is enough, there is one and no second, however slowly and unevenly its memory
// returns.
func TestOneVictimIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := append(hardLines, rapid.SampledFrom([]string{"enforce none", "enforce pods"}).Draw(t, "enforced"))
		if rapid.Bool().Draw(t, "soft") {
			lines = append(lines, softLines...)
		}
		s := &shortage{t: t, m: managerOf(t, time.Minute, lines...), now: epoch}
		s.m.config.Breaker = rapid.Bool().Draw(t, "breaker")
		s.m.config.Policy.ByRelease = rapid.Bool().Draw(t, "by release")
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			p := stats.PodStats{PodRef: stats.PodReference{UID: fmt.Sprint(i)}, Announced: true, Populated: stats.Some(true)}
			p.Memory.WorkingSetBytes = stats.Some(rapid.Uint64Range(4<<30, 6<<30).Draw(t, "usage"))
			s.pods = append(s.pods, p)
		}
		s.step(4 << 30)
		// the minimum reclaim is one GiB more, soft thresholds 3Gi
		level := rapid.Uint64Range(0, 1<<30-1).Draw(t, "available")
		d := s.step(level)
		if s.victims != 1 {
			t.Fatalf("%d victims, want one: %s", s.victims, d.Reason)
		}
		e := d.Evictions[0]
		uid, returns := e.Pod.PodRef.UID, e.Pod.Memory.WorkingSetBytes.V
		l := s.m.Begin(Stamp{Time: s.now}, e, d.Signal)
		freed := uint64(0)
		for range rapid.IntRange(0, 5).Draw(t, "looks while it dies") {
			s.dip(level, freed)
			freed = rapid.Uint64Range(freed, returns).Draw(t, "freed")
		}
		s.m.Emptied(Stamp{Time: s.now}, l)
		for i := range s.pods {
			if s.pods[i].PodRef.UID == uid {
				s.pods[i].Populated = stats.Some(false)
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "looks until the runtime is done") {
			s.dip(level, freed)
			freed = rapid.Uint64Range(freed, returns).Draw(t, "freed")
		}
		s.m.Cleaned(Stamp{Time: s.now}, l)
		for range 3 {
			s.step(level + returns)
		}
		if s.victims != 1 {
			t.Fatalf("%d victims, want one: it was enough", s.victims)
		}
	})
}

// An eviction in its grace period is no second victim either: until the hard threshold is met no
// other pod is evicted, and then the same pod is killed immediately.
func TestAGentleEvictionIsTheOneThatIsHastened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &shortage{t: t, m: managerOf(t, time.Minute, append(hardLines, softLines...)...), now: epoch}
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			p := stats.PodStats{PodRef: stats.PodReference{UID: fmt.Sprint(i)}, Announced: true}
			p.Memory.WorkingSetBytes = stats.Some(rapid.Uint64Range(1<<30, 6<<30).Draw(t, "usage"))
			s.pods = append(s.pods, p)
		}
		s.step(2 << 30)
		s.now = s.now.Add(10 * time.Second)
		d := s.step(2 << 30)
		if s.victims != 1 || d.Evictions[0].GracePeriodSeconds != 600 {
			t.Fatalf("evictions = %+v, want one with a grace period of 600 s: %s", d.Evictions, d.Reason)
		}
		soft := d.Evictions[0]
		s.m.Begin(Stamp{Time: s.now}, soft, d.Signal)
		for range rapid.IntRange(0, 5).Draw(t, "looks in the grace period") {
			if d = s.step(rapid.Uint64Range(1<<30+1<<29, 3<<30).Draw(t, "available")); victims(d) > 0 {
				t.Fatalf("second victim %s, want none", d.Evictions[0].Pod.PodRef.UID)
			}
		}
		if d = s.step(1 << 29); victims(d) != 1 || d.Evictions[0].Pod.PodRef.UID != soft.Pod.PodRef.UID || !d.Evictions[0].CutsGracePeriod || d.Evictions[0].GracePeriodSeconds != 1 {
			t.Fatalf("evictions = %+v, want %s hastened: %s", d.Evictions, soft.Pod.PodRef.UID, d.Reason)
		}
	})
}

// A pod whose second container is never created has a request that is open above. It uses 7 of 8 GB
// and is evicted, before the others, which have 3 MiB each.
func TestAHogWhoseRequestIsOpenGoesFirst(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("hog", 7000, 0, 1)
	w.pods[0].QOSClass, w.pods[0].MemoryRequest = stats.Burstable, stats.Some(stats.Range{Min: 64 << 20, Max: 8000 << 20})
	for _, uid := range []string{"i0", "i1", "i2", "i3", "i4", "i5"} {
		w.addPod(uid, 3, 0, 1)
	}
	var evicted []string
	for range 200 {
		w.setLeft(stats.SignalMemoryAvailable, 90)
		if l := w.look(100 * time.Millisecond); l != nil {
			evicted = append(evicted, l.e.Pod.PodRef.UID)
			if l.e.Pod.PodRef.UID == "hog" {
				break
			}
			w.reportDead(l)
			w.m.Cleaned(Stamp{Time: w.now}, l)
		}
	}
	if len(evicted) != 1 || evicted[0] != "hog" {
		t.Errorf("victims in order = %v, want hog alone", evicted)
	}
}
