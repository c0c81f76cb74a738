package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// testNode is a node that is looked at as the agent's loop does: a cheap look, and a look at pods
// only if requested.
type testNode struct {
	t              *testing.T
	m              *Manager
	now            time.Time
	node           stats.NodeStats
	pods           []stats.PodStats
	reason         string   // of the last step, why no pod was evicted
	reasons        []string // of every step
	totalsWithPods bool     // what all pods use is known only with the look at pods

	objects map[string]*Pod // known objects
}

func newTestNode(t *testing.T, lines ...string) *testNode {
	m := managerOf(t, 0, append([]string{"own x"}, lines...)...)
	m.config.Replay = false
	w := &testNode{t: t, m: m, now: epoch}
	w.node.Layout = stats.Some(stats.Layout{})
	for _, s := range []stats.Signal{
		stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalSwapAvailable, stats.SignalPIDAvailable, stats.SignalNodeFsAvailable,
	} {
		w.setLeft(s, 4000)
	}
	return w
}

// setLeft sets what is left of a signal: MiB, or tasks.
func (w *testNode) setLeft(s stats.Signal, left uint64) {
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

// addPod adds a pod with that much memory and swap in MiB, and that many tasks.
func (w *testNode) addPod(uid string, memory, swap, tasks uint64) *stats.PodStats {
	p := stats.PodStats{PodRef: stats.PodReference{UID: uid, Name: uid, Namespace: "default"}, Announced: true, Populated: stats.Some(true)}
	p.SandboxIDs, p.QOSClass = []string{uid}, stats.BestEffort
	p.MemoryRequest = stats.Some(stats.ExactRange(0))
	p.Memory = stats.PodMemoryStats{WorkingSetBytes: stats.Some(memory << 20), AnonBytes: stats.Some(memory << 20), SwapBytes: stats.Some(swap << 20), ShmemBytes: stats.Some(uint64(0))}
	p.Threads = stats.Some(tasks)
	w.pods = append(w.pods, p)
	return &w.pods[len(w.pods)-1]
}

// look makes one turn of the loop that much later. The victim is pinned, and killed if that cannot
// wait; nil: no victim.
func (w *testNode) look(later time.Duration) *Life {
	w.now, w.reason = w.now.Add(later), ""
	for _, at := range []*time.Time{&w.node.Memory.Time, &w.node.Allocatable.Time, &w.node.Swap.Time, &w.node.PIDs.Time, &w.node.Fs.V.Time} {
		*at = w.now
	}
	if w.node.ContainerFs.OK {
		w.node.ContainerFs = w.node.Fs
	}
	cheap := w.node
	if w.totalsWithPods {
		cheap.Pods = stats.PodsTotal{}
	}
	r := w.m.Observe(w.now, &cheap, Situation{Limited: len(w.objects) > 0})
	w.m.Acknowledge()
	if r.Look == LookNone {
		w.reason = "no look is asked for"
		return nil
	}
	in := Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, Pods: w.objects, MemoryOnly: r.Look == LookMemory}
	if r.NeedsGrowth {
		in.Growing = []Growth{{Cgroup: "system.slice", Bytes: 1 << 20}}
	}
	d := w.m.Step(w.now, in)
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 {
		d = w.m.StepAfterReclaim(w.now, in)
	}
	w.reason, w.reasons = d.Reason, append(w.reasons, d.Reason)
	if len(d.Evictions) == 0 {
		return nil
	}
	e, met := d.Evictions[0], metBy(d, &d.Evictions[0])
	if old := w.m.evictions.terminating(e.Pod.PodRef.UID); old != nil && e.CutsGracePeriod {
		w.m.Hasten(Stamp{Time: w.now}, old, e, met)
		return old
	}
	l := w.m.Begin(Stamp{Time: w.now}, e, met)
	if l.e.Urgent() { // as internal/agent/evictions does
		w.m.Killed(Stamp{Time: w.now}, l)
	}
	return l
}

// wantVictim checks the victim of a look; empty: none.
func (w *testNode) wantVictim(l *Life, want string) {
	w.t.Helper()
	got := ""
	if l != nil {
		got = l.e.Pod.PodRef.UID
	}
	if got != want {
		w.t.Fatalf("at %v: victim = %q, want %q: %s", w.now.Sub(epoch), got, want, w.reason)
	}
}

// reportDead reports that no process of a victim is left.
func (w *testNode) reportDead(l *Life) {
	w.m.Emptied(Stamp{Time: w.now}, l)
	for i := range w.pods {
		if w.pods[i].PodRef.UID == l.e.Pod.PodRef.UID {
			w.pods[i].Populated = stats.Some(false)
		}
	}
}

// A signal does not wait for a victim of another signal that does not help it, and is never held
// back until nothing is left. The victim of the first signal is terminating all the time.
func TestVictimOfOtherSignalDelaysNothing(t *testing.T) {
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
				w := newTestNode(t, lines...)
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
					container(w.addPod(uid, memory, swap, tasks)).Rootfs = stats.Some(stats.FsUsage{UsedBytes: disk << 20})
				}
				one(first, "first")
				w.wantVictim(w.look(time.Second), "")
				w.setLeft(first, 900)
				w.wantVictim(w.look(time.Second), "first")
				one(second, "second")
				for left := uint64(990); ; left = left * 3 / 4 {
					if w.setLeft(second, left); left < 100 {
						t.Fatalf("%s is down to %d after %v, want an eviction at 100: %s", second, left, w.now.Sub(epoch), w.reason)
					}
					if l := w.look(150 * time.Millisecond); l != nil {
						w.wantVictim(l, "second")
						return
					}
				}
			})
		}
	}
}

// A victim for one signal that ends the shortage of another is waited for.
func TestVictimThatEndsAnotherShortageIsAwaited(t *testing.T) {
	for first, second := range map[stats.Signal]stats.Signal{
		stats.SignalPIDAvailable: stats.SignalMemoryAvailable, stats.SignalSwapAvailable: stats.SignalMemoryAvailable,
		stats.SignalMemoryAvailable: stats.SignalPIDAvailable, stats.SignalAllocatableMemoryAvailable: stats.SignalMemoryAvailable,
	} {
		w := newTestNode(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000", "enforce pods", "hard allocatableMemory.available 1000Mi")
		w.addPod("first", 800, 800, 800)
		w.wantVictim(w.look(time.Second), "")
		w.setLeft(first, 900)
		l := w.look(time.Second)
		w.wantVictim(l, "first")
		w.addPod("second", 700, 700, 700)
		w.setLeft(second, 990)
		for range 5 {
			w.wantVictim(w.look(200*time.Millisecond), "")
		}
		if w.reportDead(l); second == stats.SignalPIDAvailable {
			// its tasks are gone, and too few are left nevertheless
			w.wantVictim(w.look(200*time.Millisecond), "second")
		}
	}
}

// A victim with one task stuck in the kernel returns no more than it holds: what was returned is
// not expected again. The next pod is evicted before nothing is left, and not while the expected
// amount may still return.
func TestStuckTaskDelaysNoSignalForever(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("stuck", 2000, 0, 3)
	w.addPod("leaker", 500, 0, 1)
	w.setLeft(stats.SignalMemoryAvailable, 400)
	w.wantVictim(w.look(time.Second), "")
	w.setLeft(stats.SignalMemoryAvailable, 90)
	w.wantVictim(w.look(time.Second), "stuck")
	w.setLeft(stats.SignalMemoryAvailable, 20) // nothing has returned yet
	w.wantVictim(w.look(200*time.Millisecond), "")
	w.setLeft(stats.SignalMemoryAvailable, 2000)
	w.wantVictim(w.look(100*time.Millisecond), "")
	stuck := &w.pods[0].Memory
	stuck.WorkingSetBytes, stuck.AnonBytes = stats.Some(uint64(60<<20)), stats.Some(uint64(60<<20))
	for left := uint64(1000); ; left /= 2 {
		w.setLeft(stats.SignalMemoryAvailable, left)
		if l := w.look(150 * time.Millisecond); l != nil {
			w.wantVictim(l, "leaker")
			break
		}
		if left == 0 {
			t.Fatalf("nothing is left %v after the kill, want an eviction before: %s", w.now.Sub(epoch), w.reason)
		}
	}
}

// The same if another pod takes what is returned immediately, so that it never shows: what the
// victim still holds is measured.
func TestTerminatingVictimIsRemeasured(t *testing.T) {
	for _, still := range []uint64{1900, 10} {
		w := newTestNode(t, "hard memory.available 100Mi")
		w.addPod("stuck", 2000, 0, 3)
		w.addPod("leaker", 500, 0, 1)
		w.setLeft(stats.SignalMemoryAvailable, 90)
		w.wantVictim(w.look(time.Second), "stuck")
		w.pods[0].Memory.WorkingSetBytes, w.pods[0].Memory.AnonBytes = stats.Some(still<<20), stats.Some(still<<20)
		w.setLeft(stats.SignalMemoryAvailable, 20)
		if still > 100 {
			w.wantVictim(w.look(300*time.Millisecond), "")
			w.setLeft(stats.SignalMemoryAvailable, 5)
			w.wantVictim(w.look(time.Second), "")
			w.wantVictim(w.look(time.Second), "leaker") // it takes too long
			continue
		}
		w.wantVictim(w.look(300*time.Millisecond), "leaker")
	}
}

// The expected returns of an eviction for other signals survive a restart.
func TestExpectedReturnsSurviveRestart(t *testing.T) {
	w := newTestNode(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000")
	w.addPod("first", 800, 1, 1)
	w.wantVictim(w.look(time.Second), "")
	w.setLeft(stats.SignalPIDAvailable, 3000)
	w.setLeft(stats.SignalMemoryAvailable, 900)
	w.wantVictim(w.look(time.Second), "first")
	w.setLeft(stats.SignalMemoryAvailable, 950)
	w.wantVictim(w.look(time.Millisecond), "")
	saved := throughFile(t, w.m.Save())
	restored := managerOf(t, 0, "own x", "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000")
	if dropped := restored.Resume(w.now, saved); len(dropped) > 0 {
		t.Fatalf("Resume dropped %v, want nothing", dropped)
	}
	if was, is := w.m.evictions.lives[0].awaited, restored.evictions.lives[0].awaited; was != is {
		t.Errorf("expected returns after a restart = %+v\nwant %+v", is, was)
	}
	saved.Lives[0].Awaited = nil // an older agent's file
	restored = managerOf(t, 0, "hard memory.available 1000Mi")
	if dropped := restored.Resume(w.now, saved); len(dropped) > 0 || restored.evictions.lives[0].expected[kindMemory] != stats.Some(uint64(800<<20)) {
		t.Errorf("Resume dropped %v, expected returns %+v, want 800 MiB of memory", dropped, restored.evictions.lives[0].expected)
	}
	saved.Lives[0].Awaited = map[string]SavedAwaited{"memory.available": {Level: new(uint64), Best: 1 << 63}, "x\n": {}}
	restored = managerOf(t, 0, "hard memory.available 1000Mi")
	if dropped := restored.Resume(w.now, saved); len(dropped) != 2 || strings.Contains(fmt.Sprint(dropped), "\n") {
		t.Errorf("Resume dropped %v, want two errors of one line", dropped)
	}
}

// Each signal has a separate baseline in an eviction.
func TestEachSignalHasItsBaseline(t *testing.T) {
	var seen [signalCount]stats.Signal
	for signal, info := range signals {
		if info.order < 0 || info.order >= signalCount || seen[info.order] != "" {
			t.Fatalf("%s has order %d, want a free one below %d", signal, info.order, signalCount)
		}
		seen[info.order] = signal
	}
}

// Two victims may end a shortage together that neither ends alone, whatever each was chosen for.
func TestVictimsEndShortageTogether(t *testing.T) {
	for short, other := range map[stats.Signal]stats.Signal{
		stats.SignalPIDAvailable: stats.SignalSwapAvailable, stats.SignalSwapAvailable: stats.SignalPIDAvailable,
		stats.SignalMemoryAvailable: stats.SignalPIDAvailable, stats.SignalAllocatableMemoryAvailable: stats.SignalSwapAvailable,
	} {
		w := newTestNode(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000", "enforce pods", "hard allocatableMemory.available 1000Mi")
		w.addPod("first", 500, 500, 500)
		w.wantVictim(w.look(time.Second), "")
		w.setLeft(short, 600)
		w.wantVictim(w.look(time.Second), "first")
		w.addPod("second", 501, 501, 501)
		w.setLeft(other, 400)
		w.wantVictim(w.look(200*time.Millisecond), "second")
		w.addPod("third", 1, 1, 1)
		w.setLeft(short, 90)
		w.wantVictim(w.look(200*time.Millisecond), "")
		w.setLeft(other, 4000)
		if l := w.look(settleLimit); l == nil || l.e.Signal != short { // it takes too long
			t.Errorf("half of %s is gone: victim = %+v, want one for it: %s", short, l, w.reason)
		}
	}
}
