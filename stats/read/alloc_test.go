package read

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"jettison/cri"
	"jettison/internal/base/race"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// knownPods returns pods as a runtime would report them: a ready sandbox and a running
// container each.
func knownPods(pods []stats.PodStats) podindex.Index {
	var l cri.Listing
	for _, p := range pods {
		score := map[stats.QOSClass]int64{stats.Guaranteed: podindex.OOMScoreAdjGuaranteed, stats.Burstable: 900, stats.BestEffort: 1000}[p.QOSClass]
		sandbox := cri.PodSandbox{ID: "s-" + p.PodRef.UID, UID: p.PodRef.UID, Name: "pod", Namespace: "default", Ready: true}
		l.Sandboxes = append(l.Sandboxes, sandbox)
		l.Containers = append(l.Containers, cri.Container{ID: "c-" + p.PodRef.UID, SandboxID: sandbox.ID, State: cri.Running, Running: true, OOMScoreAdj: &score})
	}
	return podindex.New(l)
}

// The looks taken while memory is short allocate nothing once the pods are known, because
// memory may be unavailable. The full look may allocate, but its hundredth run no more than its
// first.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, kernel := range kernels {
		c, _, _ := recordedNode(t, kernel)
		var s stats.Summary
		if err := c.Collect(time.Unix(1000, 0), nil, &s); err != nil {
			t.Fatal(err)
		}
		pods, now := knownPods(s.Pods), time.Unix(1000, 0)
		if len(pods) != 3 {
			t.Fatalf("recorded node has %d pods", len(pods))
		}
		for name, look := range map[string]func() error{
			"MemoryView": func() error { return c.MemoryView(now, pods, &s) },
			"Node":       func() error { return c.Node(now, &s.Node) },
			"Memory":     func() error { return c.Memory(now, pods, &s) },
			"Quick":      func() error { return c.Quick(now, pods, &s) },
			"QuickPod":   func() error { return errors.Join(c.Quick(now, pods, &s), c.QuickPod(now, pods, &s, 1)) },
		} {
			var err error
			if n := testing.AllocsPerRun(100, func() { err = look() }); n != 0 || err != nil {
				t.Errorf("kernel %s: %s: %v allocations a look, %v", kernel, name, n, err)
			}
		}
		var full stats.Summary
		look := func() error { return c.Collect(time.Now(), pods, &full) }
		if early, late := allocations(t, look, 5), allocations(t, look, 45); late > early+early/50 {
			t.Errorf("kernel %s: the first full looks allocate %d times, later ones %d times", kernel, early, late)
		}
	}
}

// allocations returns the median allocations of several looks. Other goroutines may allocate
// meanwhile, so it does not use the mean.
func allocations(tb testing.TB, look func() error, looks int) uint64 {
	tb.Helper()
	var before, after runtime.MemStats
	var each []uint64
	for range looks {
		runtime.ReadMemStats(&before)
		err := look()
		runtime.ReadMemStats(&after)
		if err != nil {
			tb.Fatal(err)
		}
		each = append(each, after.Mallocs-before.Mallocs)
	}
	slices.Sort(each)
	return each[len(each)/2]
}
