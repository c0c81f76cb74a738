package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// setStall sets the share of time in which all tasks waited for memory.
func (w *testNode) setStall(share float64) {
	last, averages := stats.StallShare{Over1s: stats.Some(share)}, w.node.Pressure.Memory.Stats
	w.node.Pressure.Memory = stats.Pressure{Time: w.now, Full: last, Some: last, Stats: averages}
}

// fullLook makes a full look that decides on pressure, that much later and with that share of time
// stalled.
func (w *testNode) fullLook(later time.Duration, share float64) (victim string) {
	w.now = w.now.Add(later)
	w.setStall(share)
	d := w.m.Step(w.now, Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}})
	if w.reason = d.Reason; len(d.Evictions) == 0 {
		return ""
	}
	return d.Evictions[0].Pod.PodRef.UID
}

// nodeUnderPressure returns a node on which memory stalls: a hog without a limit that has grown by
// that much since the node was calm, and a neighbour at its own limit, with a request and refaults.
func nodeUnderPressure(t *testing.T, grown, request, refaulted, hogRefaulted uint64) (*testNode, string) {
	w := newTestNode(t, "hard memory.pressure.full 20%/1s")
	w.setLeft(stats.SignalMemoryAvailable, 4000)
	w.addPod("hog", 500, 0, 1)
	w.addPod("neighbour", 900, 0, 1)
	hog, neighbour := &w.pods[0], &w.pods[1]
	neighbour.MemoryRequest, neighbour.QOSClass = stats.Some(stats.ExactRange(request<<20)), stats.Burstable
	set := func(p *stats.PodStats, hits, refaulted uint64) {
		p.Events = stats.Some(stats.MemoryEvents{Max: hits})
		p.Memory.RefaultBytes = stats.Some(refaulted << 20)
	}
	set(hog, 0, 0)
	set(neighbour, 0, 0)
	if v := w.fullLook(time.Second, 0.1); v != "" {
		t.Fatalf("victim on a calm node = %q, want none", v)
	}
	hog.Memory.WorkingSetBytes, hog.Memory.AnonBytes = stats.Some((500+grown)<<20), stats.Some((500+grown)<<20)
	set(hog, 0, hogRefaulted)
	set(neighbour, 50, refaulted)
	return w, w.fullLook(time.Second, 0.5)
}

// A growing pod causes the pressure, with its own limit or without. A pod that suffers from it at
// its own limit does not. A pod within its request is never evicted for it. If no pod grows, the
// cause is the pod that refaults most, or else the one that hit a limit.
func TestCauseOfMemoryPressure(t *testing.T) {
	for _, c := range []struct {
		name                                    string
		grown, request, refaulted, hogRefaulted uint64
		want                                    string
	}{
		{"a hog without a limit", 2000, 100, 0, 0, "hog"},
		{"neighbour refaults its losses", 2000, 100, 500, 0, "hog"},
		{"no growth, the neighbour thrashes", 0, 100, 500, 0, "neighbour"},
		{"the hog thrashes", 0, 100, 10, 500, "hog"},
		{"no growth and no refaults, the neighbour hits its limit", 0, 100, 0, 0, "neighbour"},
		{"a little growth is none", 20, 100, 500, 0, "neighbour"},
		{"within its request", 0, 2000, 500, 0, ""},
		{"within its request, at its limit", 0, 2000, 0, 0, ""},
	} {
		if w, got := nodeUnderPressure(t, c.grown, c.request, c.refaulted, c.hogRefaulted); got != c.want {
			t.Errorf("%s: victim = %q, want %q: %s", c.name, got, c.want, w.reason)
		}
	}
}

// A pod that started after the node was calm has grown by everything that it holds. A pod that was
// only missing in earlier looks has not.
func TestNewPodCausesMemoryPressure(t *testing.T) {
	for _, late := range []bool{true, false} {
		w := newTestNode(t, "hard memory.pressure.full 20%/1s")
		w.addPod("neighbour", 900, 0, 1).Events = stats.Some(stats.MemoryEvents{})
		w.fullLook(time.Second, 0.1)
		w.pods[0].Events.V.Max = 50
		p := w.addPod("new", 1500, 0, 1)
		if p.StartTime = epoch.Add(-time.Hour); late {
			p.StartTime = w.now.Add(time.Millisecond)
		}
		want := map[bool]string{true: "new", false: "neighbour"}[late]
		if got := w.fullLook(time.Second, 0.5); got != want {
			t.Errorf("late %v: victim = %q, want %q: %s", late, got, want, w.reason)
		}
	}
}

// Half of the growth is the minimum: of three pods that grew alike, none is the cause.
func TestNoPodAloneCausesMemoryPressure(t *testing.T) {
	w := newTestNode(t, "hard memory.pressure.full 20%/1s")
	for _, uid := range []string{"a", "b", "c"} {
		w.addPod(uid, 500, 0, 1)
	}
	w.fullLook(time.Second, 0.1)
	for i := range w.pods {
		w.pods[i].Memory.WorkingSetBytes, w.pods[i].Memory.AnonBytes = stats.Some(uint64(900<<20)), stats.Some(uint64(900<<20))
	}
	if got := w.fullLook(time.Second, 0.5); got != "" {
		t.Errorf("victim = %q, want none: each grew alike", got)
	}
}

// A kind of pressure may have several thresholds, with other windows. It is calm while none of them
// is met, in any order of the thresholds. Otherwise the growth of the cause would no longer count
// in the look that searches for it.
func TestPressureIsCalmByAllThresholds(t *testing.T) {
	for _, lines := range [][]string{
		{"hard memory.pressure.full 20%/1s", "soft memory.pressure.full 10%/1m", "grace memory.pressure.full 30s"},
		{"soft memory.pressure.full 10%/1m", "grace memory.pressure.full 30s", "hard memory.pressure.full 20%/1s"},
		{"hard memory.pressure.full 20%/1s", "hard memory.pressure.some 60%/10s"},
	} {
		for _, lost := range []bool{false, true} { // the other window is not observed during the pressure
			w := newTestNode(t, lines...)
			w.setLeft(stats.SignalMemoryAvailable, 4000)
			w.addPod("hog", 500, 0, 1)
			w.addPod("neighbour", 900, 0, 1)
			w.setActivity("hog", 500, 0, 0)
			w.setActivity("neighbour", 900, 0, 0)
			w.setAverages(0.02, true)
			w.fullLook(time.Second, 0.05)
			w.setActivity("hog", 2500, 0, 0)
			w.setActivity("neighbour", 900, 0, 50)
			w.setAverages(0.05, !lost) // those of one second rise first
			if got := w.fullLook(time.Second, 0.9); got != "hog" {
				t.Errorf("%v, lost %v: victim = %q, want hog, which grew by 2000 MiB: %s", lines, lost, got, w.reason)
			}
		}
	}
}

// setAverages sets the kernel's own averages, of all windows.
func (w *testNode) setAverages(share float64, ok bool) {
	of := stats.PSIData{Avg10: 100 * share, Avg60: 100 * share}
	w.node.Pressure.Memory.Stats = stats.Opt[stats.PSIStats]{V: stats.PSIStats{Full: of, Some: of, HasFull: true, HasSome: true}, OK: ok}
}

// The same for io and cpu: the pods' rates while it was calm show which pod does more now.
func TestIOAndCPUAreCalmByAllThresholds(t *testing.T) {
	for _, c := range []struct {
		lines []string
		set   func(p *stats.PodStats, did uint64)
	}{
		{[]string{"hard io.pressure.full 20%/1s", "soft io.pressure.full 10%/1m", "grace io.pressure.full 30s"}, func(p *stats.PodStats, did uint64) {
			p.IO = stats.Some(stats.IOStat{ReadBytes: did << 20})
		}},
		{[]string{"hard cpu.pressure.some 20%/1s", "soft cpu.pressure.some 10%/1m", "grace cpu.pressure.some 30s"}, func(p *stats.PodStats, did uint64) {
			p.CPU.Usage = stats.Some(time.Duration(did) * time.Millisecond)
		}},
	} {
		w := newTestNode(t, c.lines...)
		w.addPod("hog", 500, 0, 1)
		w.addPod("busy", 500, 0, 1) // unchanged
		w.addPod("idle", 500, 0, 1)
		hog, busy := uint64(0), uint64(0)
		look := func(share float64) string {
			last := stats.StallShare{Over1s: stats.Some(share)}
			averages := stats.PSIData{Avg60: 3}
			of := stats.Pressure{Full: last, Some: last, Stats: stats.Some(stats.PSIStats{Full: averages, Some: averages, HasFull: true, HasSome: true})}
			of.Time = w.now.Add(time.Second)
			w.node.Pressure.IO, w.node.Pressure.CPU = of, of
			c.set(&w.pods[0], hog)
			c.set(&w.pods[1], busy)
			c.set(&w.pods[2], 0)
			return w.fullLook(time.Second, 0)
		}
		for range 3 {
			busy += 400
			look(0.05)
		}
		hog, busy = hog+900, busy+400
		if got := look(0.9); got != "hog" {
			t.Errorf("%v: victim = %q, want hog: %s", c.lines, got, w.reason)
		}
	}
}

// A pod may have two cgroups: one is a leftover, of another cgroup driver or of an earlier sandbox,
// and is empty. Its counters are not mixed with those of the other, in any order.
func TestPodWithTwoCgroupsCountsByCgroup(t *testing.T) {
	for _, signal := range []string{"memory.pressure.full", "io.pressure.full", "cpu.pressure.some"} {
		for _, leftFirst := range []bool{false, true} {
			w := newTestNode(t, "hard "+signal+" 20%/1s")
			w.setLeft(stats.SignalMemoryAvailable, 4000)
			w.addPod("idle", 500, 0, 1)
			w.addPod("hog", 500, 0, 1)
			w.addPod("hog", 10, 0, 0)
			living, left := &w.pods[1], &w.pods[2]
			if leftFirst {
				living, left = left, living
			}
			living.CgroupID.Ino, left.CgroupID.Ino = 5, 4
			left.Populated = stats.Some(false)
			look := func(did uint64, share float64) string {
				last := stats.StallShare{Over1s: stats.Some(share)}
				of := stats.Pressure{Time: w.now.Add(time.Second), Full: last, Some: last}
				w.node.Pressure.IO, w.node.Pressure.CPU = of, of
				for p, n := range map[*stats.PodStats]uint64{&w.pods[0]: 0, living: did, left: 100_000} {
					p.IO = stats.Some(stats.IOStat{ReadBytes: n << 20})
					p.CPU.Usage = stats.Some(time.Duration(n) * time.Millisecond)
				}
				m := &living.Memory
				m.WorkingSetBytes, m.AnonBytes = stats.Some((500+did)<<20), stats.Some((500+did)<<20)
				left.Memory.WorkingSetBytes, left.Memory.AnonBytes = stats.Some(uint64(10<<20)), stats.Some(uint64(10<<20))
				return w.fullLook(time.Second, share)
			}
			for range 3 {
				if got := look(0, 0.05); got != "" {
					t.Fatalf("victim on a calm node = %q, want none", got)
				}
			}
			if got := look(2000, 0.9); got != "hog" {
				t.Errorf("%s, leftover cgroup first %v: victim = %q, want hog: %s", signal, leftFirst, got, w.reason)
			}
		}
	}
}

// A pod with half of the growth is the cause of pressure at every question: sums of rates do not
// depend on the order of pods.
func TestCauseDoesNotDependOnOrder(t *testing.T) {
	cs := causes{uses: map[useKey]*podActivity{}}
	for i, read := range []uint64{10e6, 20e6, 30e6} {
		u := &podActivity{io: counterRate{known: true}}
		u.io.update(stats.Some(read), 700*time.Millisecond, false)
		cs.uses[useKey{uid: string(rune('a' + i))}] = u
	}
	w := &watched{info: signalInfo{kind: kindIOPressure}}
	p := &stats.PodStats{PodRef: stats.PodReference{UID: "c"}}
	for range 300 {
		if part := cs.partIn(w, p); !part.OK {
			t.Fatal("c is not the cause, although half of the growth is its own")
		}
	}
}
