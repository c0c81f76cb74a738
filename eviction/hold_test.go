package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// ward is a node that is looked at as the loop does it: a cheap look, and pods only where that says so.
type ward struct {
	t    *testing.T
	m    *Manager
	now  time.Time
	node stats.NodeStats
	pods []stats.PodStats
	why  string   // of the last step, why nobody went
	whys []string // of every step
	late bool     // what all pods use together is only known with the look at pods

	objects map[string]*Pod // that are known
}

func newWard(t *testing.T, lines ...string) *ward {
	m := managerOf(t, 0, append([]string{"own x"}, lines...)...)
	m.config.Replay = false
	w := &ward{t: t, m: m, now: epoch}
	w.node.Layout = stats.Some(stats.Layout{})
	for _, s := range []stats.Signal{
		stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalSwapAvailable, stats.SignalPIDAvailable, stats.SignalNodeFsAvailable,
	} {
		w.left(s, 4000)
	}
	return w
}

// left sets what is left of a signal: MiB, or tasks.
func (w *ward) left(s stats.Signal, left uint64) {
	n, all := &w.node, uint64(8000)
	switch s {
	case stats.SignalMemoryAvailable:
		n.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(all << 20), KernelAvailableBytes: stats.Some(left << 20)}
	case stats.SignalAllocatableMemoryAvailable:
		n.Allocatable = stats.AllocatableMemoryStats{LimitBytes: stats.Some(all << 20), WorkingSetBytes: stats.Some((all - left) << 20)}
	case stats.SignalSwapAvailable:
		n.Swap = stats.NodeSwapStats{TotalBytes: stats.Some(all << 20), FreeBytes: stats.Some(left << 20)}
	case stats.SignalPIDAvailable:
		n.PIDs = stats.NodePIDStats{Max: stats.Some(all), Current: stats.Some(all - left)}
	case stats.SignalNodeFsAvailable:
		n.Fs = stats.Some(stats.FsStats{AvailableBytes: stats.Some(left << 20), CapacityBytes: stats.Some(all << 20)})
	}
}

// pod that uses so much of memory and swap in MiB, and so many tasks.
func (w *ward) pod(uid string, memory, swap, tasks uint64) *stats.PodStats {
	p := stats.PodStats{PodRef: stats.PodReference{UID: uid, Name: uid, Namespace: "default"}, Announced: true, Populated: stats.Some(true)}
	p.SandboxIDs, p.QOSClass = []string{uid}, stats.BestEffort
	p.MemoryRequest = stats.Some(stats.Exactly(0))
	p.Memory = stats.PodMemoryStats{WorkingSetBytes: stats.Some(memory << 20), AnonBytes: stats.Some(memory << 20), SwapBytes: stats.Some(swap << 20), ShmemBytes: stats.Some(uint64(0))}
	p.Threads = stats.Some(tasks)
	w.pods = append(w.pods, p)
	return &w.pods[len(w.pods)-1]
}

// look is one turn of the loop so long after the last one. The victim is pinned, and killed where that cannot wait; nil: nobody goes.
func (w *ward) look(later time.Duration) *Life {
	w.now, w.why = w.now.Add(later), ""
	for _, at := range []*time.Time{&w.node.Memory.Time, &w.node.Allocatable.Time, &w.node.Swap.Time, &w.node.PIDs.Time, &w.node.Fs.V.Time} {
		*at = w.now
	}
	if w.node.ContainerFs.OK {
		w.node.ContainerFs = w.node.Fs
	}
	cheap := w.node
	if w.late {
		cheap.Pods = stats.PodsTotal{}
	}
	r := w.m.Observe(w.now, &cheap, Situation{Limited: len(w.objects) > 0})
	w.m.Advance()
	if r.Look == LookNone {
		w.why = "no look is asked for"
		return nil
	}
	in := Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, Pods: w.objects, MemoryOnly: r.Look == LookMemory}
	if r.Growth {
		in.Growing = []Growth{{Cgroup: "system.slice", Bytes: 1 << 20}}
	}
	d := w.m.Step(w.now, in)
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 {
		d = w.m.Reclaimed(w.now, in)
	}
	w.why, w.whys = d.Reason, append(w.whys, d.Reason)
	if len(d.Evictions) == 0 {
		return nil
	}
	e, met := d.Evictions[0], metBy(d, &d.Evictions[0])
	if old := w.m.evictions.terminating(e.Pod.PodRef.UID); old != nil && e.Hastens {
		w.m.Hasten(Stamp{Time: w.now}, old, e, met)
		return old
	}
	l := w.m.Begin(Stamp{Time: w.now}, e, met)
	if l.e.Urgent() { // as internal/agent/evictions does
		w.m.Killed(Stamp{Time: w.now}, l)
	}
	return l
}

// victim is the one of a look, which must be this one; empty: nobody.
func (w *ward) victim(l *Life, want string) {
	w.t.Helper()
	got := ""
	if l != nil {
		got = l.e.Pod.PodRef.UID
	}
	if got != want {
		w.t.Fatalf("at %v %q goes, want %q: %s", w.now.Sub(epoch), got, want, w.why)
	}
}

// dead tells that no process of a victim is left.
func (w *ward) dead(l *Life) {
	w.m.Emptied(Stamp{Time: w.now}, l)
	for i := range w.pods {
		if w.pods[i].PodRef.UID == l.e.Pod.PodRef.UID {
			w.pods[i].Populated = stats.Some(false)
		}
	}
}

// Whatever a victim goes for: another signal that it does not ease does not wait for it, and is never held back down to nothing. The
// victim of the first signal is dying all the time.
func TestASignalIsNotHeldBackByAnothersVictim(t *testing.T) {
	all := []stats.Signal{
		stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalSwapAvailable, stats.SignalPIDAvailable, stats.SignalNodeFsAvailable,
	}
	lines := []string{
		"hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000", "enforce pods",
		"hard allocatableMemory.available 1000Mi", "hard nodefs.available 1000Mi",
	}
	for _, first := range all {
		for _, second := range all {
			if first == second {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", first, second), func(t *testing.T) {
				w := newWard(t, lines...)
				one := func(s stats.Signal, uid string) {
					var memory, swap, tasks, disk uint64 = 1, 0, 1, 0
					switch s {
					case stats.SignalSwapAvailable:
						swap = 200
					case stats.SignalPIDAvailable:
						tasks = 200
					case stats.SignalNodeFsAvailable:
						disk = 200
					default:
						memory = 200
					}
					container(w.pod(uid, memory, swap, tasks)).Rootfs = stats.Some(stats.FsUsage{UsedBytes: disk << 20})
				}
				one(first, "first")
				w.victim(w.look(time.Second), "")
				w.left(first, 900)
				w.victim(w.look(time.Second), "first")
				one(second, "second")
				for left := uint64(990); ; left = left * 3 / 4 {
					if w.left(second, left); left < 100 {
						t.Fatalf("%s is down to %d after %v, and nobody goes: %s", second, left, w.now.Sub(epoch), w.why)
					}
					if l := w.look(150 * time.Millisecond); l != nil {
						w.victim(l, "second")
						return
					}
				}
			})
		}
	}
}

// A victim for one signal that explains the shortage of another one is waited for.
func TestAnEarlierVictimThatExplainsAnotherShortage(t *testing.T) {
	for first, second := range map[stats.Signal]stats.Signal{
		stats.SignalPIDAvailable: stats.SignalMemoryAvailable, stats.SignalSwapAvailable: stats.SignalMemoryAvailable,
		stats.SignalMemoryAvailable: stats.SignalPIDAvailable, stats.SignalAllocatableMemoryAvailable: stats.SignalMemoryAvailable,
	} {
		w := newWard(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000", "enforce pods", "hard allocatableMemory.available 1000Mi")
		w.pod("first", 800, 800, 800)
		w.victim(w.look(time.Second), "")
		w.left(first, 900)
		l := w.look(time.Second)
		w.victim(l, "first")
		w.pod("second", 700, 700, 700)
		w.left(second, 990)
		for range 5 {
			w.victim(w.look(200*time.Millisecond), "")
		}
		if w.dead(l); second == stats.SignalPIDAvailable {
			w.victim(w.look(200*time.Millisecond), "second") // its tasks are gone, and there are too few still
		}
	}
}

// A victim of which one task is left in the kernel returns no more than it has: what came back is not awaited once more. The next one
// goes before nothing is left, and not while what is awaited is still to come.
func TestAVictimWithOneTaskThatDoesNotDieBlindsNoSignal(t *testing.T) {
	w := newWard(t, "hard memory.available 100Mi")
	w.pod("stuck", 2000, 0, 3)
	w.pod("leaker", 500, 0, 1)
	w.left(stats.SignalMemoryAvailable, 400)
	w.victim(w.look(time.Second), "")
	w.left(stats.SignalMemoryAvailable, 90)
	w.victim(w.look(time.Second), "stuck")
	w.left(stats.SignalMemoryAvailable, 20) // nothing is back yet
	w.victim(w.look(200*time.Millisecond), "")
	w.left(stats.SignalMemoryAvailable, 2000)
	w.victim(w.look(100*time.Millisecond), "")
	stuck := &w.pods[0].Memory
	stuck.WorkingSetBytes, stuck.AnonBytes = stats.Some(uint64(60<<20)), stats.Some(uint64(60<<20))
	for left := uint64(1000); ; left /= 2 {
		w.left(stats.SignalMemoryAvailable, left)
		if l := w.look(150 * time.Millisecond); l != nil {
			w.victim(l, "leaker")
			break
		}
		if left == 0 {
			t.Fatalf("nothing is left %v after the kill, and nobody goes: %s", w.now.Sub(epoch), w.why)
		}
	}
}

// The same where another pod takes what comes back at once, so that it never shows: what the victim still has is measured.
func TestWhatAVictimStillHasIsMeasured(t *testing.T) {
	for _, still := range []uint64{1900, 10} {
		w := newWard(t, "hard memory.available 100Mi")
		w.pod("stuck", 2000, 0, 3)
		w.pod("leaker", 500, 0, 1)
		w.left(stats.SignalMemoryAvailable, 90)
		w.victim(w.look(time.Second), "stuck")
		w.pods[0].Memory.WorkingSetBytes, w.pods[0].Memory.AnonBytes = stats.Some(still<<20), stats.Some(still<<20)
		w.left(stats.SignalMemoryAvailable, 20)
		if still > 100 {
			w.victim(w.look(300*time.Millisecond), "")
			w.left(stats.SignalMemoryAvailable, 5)
			w.victim(w.look(time.Second), "")
			w.victim(w.look(time.Second), "leaker") // it takes too long
			continue
		}
		w.victim(w.look(300*time.Millisecond), "leaker")
	}
}

// What is known of an eviction for other signals outlives a restart.
func TestWhatIsAwaitedOutlivesARestart(t *testing.T) {
	w := newWard(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000")
	w.pod("first", 800, 1, 1)
	w.victim(w.look(time.Second), "")
	w.left(stats.SignalPIDAvailable, 3000)
	w.left(stats.SignalMemoryAvailable, 900)
	w.victim(w.look(time.Second), "first")
	w.left(stats.SignalMemoryAvailable, 950)
	w.victim(w.look(time.Millisecond), "")
	saved := onFile(t, w.m.Save())
	again := managerOf(t, 0, "own x", "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000")
	if dropped := again.Resume(w.now, saved); len(dropped) > 0 {
		t.Fatal(dropped)
	}
	if was, is := w.m.evictions.lives[0].awaited, again.evictions.lives[0].awaited; was != is {
		t.Errorf("was %+v\nis  %+v", was, is)
	}
	saved.Lives[0].Awaited = nil // of an agent before this one
	again = managerOf(t, 0, "hard memory.available 1000Mi")
	if dropped := again.Resume(w.now, saved); len(dropped) > 0 || again.evictions.lives[0].expected[kindMemory] != stats.Some(uint64(800<<20)) {
		t.Errorf("dropped %v, due %+v", dropped, again.evictions.lives[0].expected)
	}
	saved.Lives[0].Awaited = map[string]SavedAwaited{"memory.available": {Level: new(uint64), Best: 1 << 63}, "x\n": {}}
	again = managerOf(t, 0, "hard memory.available 1000Mi")
	if dropped := again.Resume(w.now, saved); len(dropped) != 2 || strings.Contains(fmt.Sprint(dropped), "\n") {
		t.Errorf("dropped %v", dropped)
	}
}

// Each signal has a place of its own among those that are kept per eviction.
func TestEachSignalHasItsMark(t *testing.T) {
	var seen [signalCount]stats.Signal
	for signal, info := range signals {
		if info.order < 0 || info.order >= signalCount || seen[info.order] != "" {
			t.Fatalf("%s has place %d", signal, info.order)
		}
		seen[info.order] = signal
	}
}

// What none of two victims explains alone they explain together, whatever each went for.
func TestVictimsThatExplainAShortageTogetherAreAwaited(t *testing.T) {
	for short, other := range map[stats.Signal]stats.Signal{
		stats.SignalPIDAvailable: stats.SignalSwapAvailable, stats.SignalSwapAvailable: stats.SignalPIDAvailable,
		stats.SignalMemoryAvailable: stats.SignalPIDAvailable, stats.SignalAllocatableMemoryAvailable: stats.SignalSwapAvailable,
	} {
		w := newWard(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000", "enforce pods", "hard allocatableMemory.available 1000Mi")
		w.pod("first", 500, 500, 500)
		w.victim(w.look(time.Second), "")
		w.left(short, 600)
		w.victim(w.look(time.Second), "first")
		w.pod("second", 501, 501, 501)
		w.left(other, 400)
		w.victim(w.look(200*time.Millisecond), "second")
		w.pod("third", 1, 1, 1)
		w.left(short, 90)
		w.victim(w.look(200*time.Millisecond), "")
		w.left(other, 4000)
		if l := w.look(settleLimit); l == nil || l.e.Signal != short { // it takes too long
			t.Errorf("half of %s is gone, and %+v goes: %s", short, l, w.why)
		}
	}
}
