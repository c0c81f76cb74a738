package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// stalled sets the share of time in which all tasks waited for memory.
func (w *ward) stalled(share float64) {
	last, averages := stats.StallShare{Over1s: stats.Some(share)}, w.node.Pressure.Memory.Stats
	w.node.Pressure.Memory = stats.Pressure{Time: w.now, Full: last, Some: last, Stats: averages}
}

// full is a full look that decides on pressure: how much later, and the share of time stalled.
func (w *ward) full(later time.Duration, share float64) (victim string) {
	w.now = w.now.Add(later)
	w.stalled(share)
	d := w.m.Step(w.now, Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}})
	if w.why = d.Reason; len(d.Evictions) == 0 {
		return ""
	}
	return d.Evictions[0].Pod.PodRef.UID
}

// pressedNode is a node on which memory stalls: a hog without a limit that has taken so much since all was well, and a neighbour at a limit of
// its own, which has requested so much, and read so much in again.
func pressedNode(t *testing.T, grown, request, refaulted, hogRefaulted uint64) (*ward, string) {
	w := newWard(t, "hard memory.pressure.full 20%/1s")
	w.left(stats.SignalMemoryAvailable, 4000)
	w.pod("hog", 500, 0, 1)
	w.pod("neighbour", 900, 0, 1)
	hog, neighbour := &w.pods[0], &w.pods[1]
	neighbour.MemoryRequest, neighbour.QOSClass = stats.Some(stats.Exactly(request<<20)), stats.Burstable
	set := func(p *stats.PodStats, hits, refaulted uint64) {
		p.Events = stats.Some(stats.MemoryEvents{Max: hits})
		p.Memory.RefaultBytes = stats.Some(refaulted << 20)
	}
	set(hog, 0, 0)
	set(neighbour, 0, 0)
	if v := w.full(time.Second, 0.1); v != "" {
		t.Fatalf("%s goes while all is well", v)
	}
	hog.Memory.WorkingSetBytes, hog.Memory.AnonBytes = stats.Some((500+grown)<<20), stats.Some((500+grown)<<20)
	set(hog, 0, hogRefaulted)
	set(neighbour, 50, refaulted)
	return w, w.full(time.Second, 0.5)
}

// A pod that grows causes the pressure, with a limit of its own or not; one that suffers from it at its own limit does not, and one within
// its request never goes for it. Where nobody grows, who reads its memory in over and over is the cause, and else who hit a limit.
func TestWhoCausesMemoryPressure(t *testing.T) {
	for _, c := range []struct {
		name                                    string
		grown, request, refaulted, hogRefaulted uint64
		want                                    string
	}{
		{"a hog without a limit", 2000, 100, 0, 0, "hog"},
		{"whose neighbour reads in again what it lost", 2000, 100, 500, 0, "hog"},
		{"nobody grows, the neighbour thrashes", 0, 100, 500, 0, "neighbour"},
		{"the hog thrashes", 0, 100, 10, 500, "hog"},
		{"nobody does anything but hit a limit", 0, 100, 0, 0, "neighbour"},
		{"a little growth is none", 20, 100, 500, 0, "neighbour"},
		{"within its request", 0, 2000, 500, 0, ""},
		{"within its request, at its limit", 0, 2000, 0, 0, ""},
	} {
		if w, got := pressedNode(t, c.grown, c.request, c.refaulted, c.hogRefaulted); got != c.want {
			t.Errorf("%s: %q goes, want %q: %s", c.name, got, c.want, w.why)
		}
	}
}

// A pod that came after all was well has taken all that it has since; one that was only not seen before has not.
func TestANewPodCausesMemoryPressure(t *testing.T) {
	for _, late := range []bool{true, false} {
		w := newWard(t, "hard memory.pressure.full 20%/1s")
		w.pod("neighbour", 900, 0, 1).Events = stats.Some(stats.MemoryEvents{})
		w.full(time.Second, 0.1)
		w.pods[0].Events.V.Max = 50
		p := w.pod("new", 1500, 0, 1)
		if p.StartTime = epoch.Add(-time.Hour); late {
			p.StartTime = w.now.Add(time.Millisecond)
		}
		want := map[bool]string{true: "new", false: "neighbour"}[late]
		if got := w.full(time.Second, 0.5); got != want {
			t.Errorf("late %v: %q goes, want %q: %s", late, got, want, w.why)
		}
	}
}

// Half of the growth is the least: of three that grew alike none is the cause by that.
func TestNobodyAloneCausesMemoryPressure(t *testing.T) {
	w := newWard(t, "hard memory.pressure.full 20%/1s")
	for _, uid := range []string{"a", "b", "c"} {
		w.pod(uid, 500, 0, 1)
	}
	w.full(time.Second, 0.1)
	for i := range w.pods {
		w.pods[i].Memory.WorkingSetBytes, w.pods[i].Memory.AnonBytes = stats.Some(uint64(900<<20)), stats.Some(uint64(900<<20))
	}
	if got := w.full(time.Second, 0.5); got != "" {
		t.Errorf("%q goes", got)
	}
}

// A kind of pressure may have several thresholds, of other windows. It is calm where none of them is met, whichever comes last: else what the
// cause took is no growth any more in the very look that looks for it.
func TestPressureIsCalmByAllOfItsThresholds(t *testing.T) {
	for _, lines := range [][]string{
		{"hard memory.pressure.full 20%/1s", "soft memory.pressure.full 10%/1m", "grace memory.pressure.full 30s"},
		{"soft memory.pressure.full 10%/1m", "grace memory.pressure.full 30s", "hard memory.pressure.full 20%/1s"},
		{"hard memory.pressure.full 20%/1s", "hard memory.pressure.some 60%/10s"},
	} {
		for _, lost := range []bool{false, true} { // the other window is not observed when it presses
			w := newWard(t, lines...)
			w.left(stats.SignalMemoryAvailable, 4000)
			w.pod("hog", 500, 0, 1)
			w.pod("neighbour", 900, 0, 1)
			w.did("hog", 500, 0, 0)
			w.did("neighbour", 900, 0, 0)
			w.averages(0.02, true)
			w.full(time.Second, 0.05)
			w.did("hog", 2500, 0, 0)
			w.did("neighbour", 900, 0, 50)
			w.averages(0.05, !lost) // those of a second are ahead of them
			if got := w.full(time.Second, 0.9); got != "hog" {
				t.Errorf("%v, lost %v: %q goes, want hog, which grew by 2000 MiB: %s", lines, lost, got, w.why)
			}
		}
	}
}

// averages sets the kernel's own, of all windows.
func (w *ward) averages(share float64, ok bool) {
	of := stats.PSIData{Avg10: 100 * share, Avg60: 100 * share}
	w.node.Pressure.Memory.Stats = stats.Opt[stats.PSIStats]{V: stats.PSIStats{Full: of, Some: of, HasFull: true, HasSome: true}, OK: ok}
}

// The same of io and cpu: by what pods did while it was calm it is told who does more now.
func TestIOAndCPUAreCalmByAllOfTheirThresholds(t *testing.T) {
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
		w := newWard(t, c.lines...)
		w.pod("hog", 500, 0, 1)
		w.pod("busy", 500, 0, 1) // as ever
		w.pod("idle", 500, 0, 1)
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
			return w.full(time.Second, 0)
		}
		for range 3 {
			busy += 400
			look(0.05)
		}
		hog, busy = hog+900, busy+400
		if got := look(0.9); got != "hog" {
			t.Errorf("%v: %q goes, want hog: %s", c.lines, got, w.why)
		}
	}
}

// A pod may have two cgroups: one is left over, of another cgroup driver or of a sandbox before, and nothing is in it. What is counted there is
// not taken for what the other one did, whichever comes last.
func TestAPodOfTwoCgroupsCausesWhatItsLivingOneDoes(t *testing.T) {
	for _, signal := range []string{"memory.pressure.full", "io.pressure.full", "cpu.pressure.some"} {
		for _, leftFirst := range []bool{false, true} {
			w := newWard(t, "hard "+signal+" 20%/1s")
			w.left(stats.SignalMemoryAvailable, 4000)
			w.pod("idle", 500, 0, 1)
			w.pod("hog", 500, 0, 1)
			w.pod("hog", 10, 0, 0)
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
				return w.full(time.Second, share)
			}
			for range 3 {
				if got := look(0, 0.05); got != "" {
					t.Fatalf("%s goes while all is well", got)
				}
			}
			if got := look(2000, 0.9); got != "hog" {
				t.Errorf("%s, what is left over first %v: %q goes, want hog: %s", signal, leftFirst, got, w.why)
			}
		}
	}
}
