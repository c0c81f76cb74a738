package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"jettison/stats"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
	"jettison/stats/read/walk"
)

// A pod with a volume nested too deep counts with at least the counted part: the rest of that
// volume, and all others.
func TestADeepTreeIsALowerBound(t *testing.T) {
	root := t.TempDir()
	s, found := volumesOf(t, root, "a/one", "a/two")
	bounds := walk.DefaultBounds()
	maxLevels := bounds.Levels
	bounds.Depth = maxLevels
	s.w = walk.NewWithin(hosttest.NoPause, bounds)
	deep := filepath.Join(root, "pods/a/volumes", emptyDirPlugin, "one")
	for i := range 10 { // in any listing order some of these are walked after the deep one
		hosttest.Write(t, 300<<10, deep, string(rune('a'+i)), "beside")
		if i == 4 {
			hosttest.Chain(t, deep, maxLevels+1)
		}
	}
	l := newStorageLoop(s, time.Minute)
	l.SetPods(podindex.Index{"a": &podindex.Pod{}})
	l.measure(t.Context(), "a", found["a"])
	p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
	l.Fill(time.Now(), &p)
	e := p.EphemeralStorage
	if !errors.Is(l.pods["a"].err, walk.ErrTooDeep) || len(e.Volumes) != 2 || !e.Volumes[0].Partial || e.Volumes[1].Partial {
		t.Fatalf("usage with a deep volume = %+v, error %v", e, l.pods["a"].err)
	}
	if e.Volumes[0].UsedBytes < 3000<<10 || e.Volumes[0].InodesUsed != uint64(maxLevels)+22 || e.Volumes[1].InodesUsed != 2 {
		t.Errorf("volumes = %+v, want all but the part too deep", e.Volumes)
	}
	if !e.UsedBytes.OK || e.UsedBytes.V < 3000<<10 || !e.Partial {
		t.Errorf("sum of a deep volume = %+v, partial %v", e.UsedBytes, e.Partial)
	}
}

// A walk cut off at the end of its turn counts as far as it came, and never less than the
// previous figure.
func TestATurnThatEndsIsALowerBound(t *testing.T) {
	root := t.TempDir()
	s, found := volumesOf(t, root, "a/one")
	dir := filepath.Join(root, found["a"].pod)
	for i := range 200 {
		hosttest.Write(t, 5000, dir, "volumes", emptyDirPlugin, "one", "many", string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		l.SetPods(podindex.Index{"a": &podindex.Pod{}})
		look := func() stats.VolumeStats {
			t.Helper()
			l.measure(t.Context(), "a", found["a"])
			p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
			if l.Fill(time.Now(), &p); len(p.EphemeralStorage.Volumes) != 1 || !p.EphemeralStorage.UsedBytes.OK {
				t.Fatalf("usage after the turn = %+v, error %v", p.EphemeralStorage, l.pods["a"].err)
			}
			return p.EphemeralStorage.Volumes[0]
		}
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s.w = walk.New(hang)
		first := look()
		if !first.Partial || first.InodesUsed < 50 || first.InodesUsed >= 203 || !l.pods["a"].cut {
			t.Errorf("usage of the first, cut off walk = %+v", first)
		}
		s.w = walk.New(hosttest.NoPause)
		all := look()
		if all.Partial || all.InodesUsed != 203 {
			t.Errorf("usage of a complete walk = %+v", all)
		}
		s.w = walk.New(hang)
		if again := look(); !again.Partial || again.UsedBytes != all.UsedBytes || again.InodesUsed != all.InodesUsed {
			t.Errorf("usage after another cut off walk = %+v, before %+v", again, all)
		}
		s.w = walk.New(hosttest.NoPause)
		if err := os.RemoveAll(filepath.Join(dir, "volumes", emptyDirPlugin, "one", "many")); err != nil {
			t.Fatal(err)
		}
		if less := look(); less.Partial || less.InodesUsed != 2 {
			t.Errorf("usage after emptying and a complete walk = %+v", less)
		}
	})
}

// A part that can no longer be measured keeps its previous figure for a limited time: a pod
// must not look smaller by that.
func TestUnmeasurablePartKeepsItsFigure(t *testing.T) {
	now := time.Now()
	of := func(bytes uint64, age time.Duration) stats.FsUsage {
		return stats.FsUsage{Time: now.Add(-age), UsedBytes: bytes, InodesUsed: bytes / 10}
	}
	before := &storage{
		allLogs: of(100, time.Minute), logs: map[string]stats.FsUsage{"app": of(90, time.Minute)},
		layers:  map[string]stats.FsUsage{"c": of(200, time.Minute), "old": of(50, 2*storageLimit)},
		volumes: []stats.VolumeStats{{Name: "a", FsUsage: of(300, time.Minute)}, {Name: "b", FsUsage: of(10, time.Minute)}},
	}
	missing := func() *storage {
		return &storage{
			time: now, err: errors.New("x"), missing: true, logs: map[string]stats.FsUsage{}, layers: map[string]stats.FsUsage{},
			volumes: []stats.VolumeStats{{Name: "b", FsUsage: of(5, 0)}},
		}
	}
	s := missing()
	s.keep(before)
	if s.allLogs.UsedBytes != 100 || !s.allLogs.Partial || s.logs["app"].UsedBytes != 90 || s.layers["c"].UsedBytes != 200 || len(s.layers) != 1 ||
		len(s.volumes) != 2 || s.volumes[0].UsedBytes != 300 || !s.volumes[0].Partial || s.volumes[1].UsedBytes != 5 {
		t.Errorf("kept figures of the pod = %+v", s)
	}
	s = missing()
	s.missing = false // everything was measured, one part incompletely
	s.volumes[0].Partial = true
	s.keep(before)
	if len(s.layers)+len(s.logs) != 0 || len(s.volumes) != 1 || s.volumes[0].UsedBytes != 10 || s.volumes[0].InodesUsed != 1 {
		t.Errorf("figures of removed parts are kept: %+v", s)
	}
	s = missing()
	s.err, s.missing = nil, false
	s.volumes[0].Partial = true // directories in it were moved, which is no error
	if s.keep(before); s.volumes[0].UsedBytes != 10 || s.volumes[0].InodesUsed != 1 || !s.volumes[0].Partial {
		t.Errorf("lower bound without an error = %+v", s)
	}
	s = missing()
	s.err, s.missing = nil, false
	if s.keep(before); len(s.layers) != 0 || s.volumes[0].UsedBytes != 5 {
		t.Errorf("figures after a complete measurement = %+v", s)
	}
}

// While a disk is short turns are short: a pod with many files does not delay the figures of
// all others.
func TestTurnsAreShortWhileADiskIs(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one", "b/one")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		s.w = paced(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { l.setHurry(true) })
		l.measure(t.Context(), "a", found["a"])
		if took := time.Since(began); took != hurriedTurn || !l.pods["a"].cut {
			t.Errorf("turn during which a hurry begins took %v: %+v", took, l.pods["a"])
		}
		for _, want := range []time.Duration{hurriedTurn, 2 * hurriedTurn, 4 * hurriedTurn, 8 * hurriedTurn, turn, turn} {
			began = time.Now()
			if l.measure(t.Context(), "b", found["b"]); time.Since(began) != want {
				t.Errorf("turn in a hurry lasted %v, want %v", time.Since(began), want)
			}
		}
	})
}

// A file moved out of a volume that cannot be walked to its end counts once for the pod's own
// limits, even with kept figures; for a short disk the pod does not look smaller.
func TestAFileThatWasMovedCountsOnceForOwnLimits(t *testing.T) {
	root := t.TempDir()
	s, found := volumesOf(t, root, "a/one", "a/two")
	bounds := walk.DefaultBounds()
	maxLevels := bounds.Levels
	bounds.Depth = maxLevels
	s.w = walk.NewWithin(hosttest.NoPause, bounds)
	one := filepath.Join(root, "pods/a/volumes", emptyDirPlugin, "one")
	two := filepath.Join(root, "pods/a/volumes", emptyDirPlugin, "two")
	hosttest.Write(t, 600<<10, one, "big", "f")
	hosttest.Chain(t, one, maxLevels+1)
	l := newStorageLoop(s, time.Minute)
	l.SetPods(podindex.Index{"a": &podindex.Pod{}})
	look := func() stats.PodStorageStats {
		t.Helper()
		l.measure(t.Context(), "a", found["a"])
		p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
		if l.Fill(time.Now(), &p); len(p.EphemeralStorage.Volumes) != 2 || !p.EphemeralStorage.UsedBytes.OK {
			t.Fatalf("usage after the walk = %+v, error %v", p.EphemeralStorage, l.pods["a"].err)
		}
		return p.EphemeralStorage
	}
	before := look()
	if err := os.Rename(filepath.Join(one, "big", "f"), filepath.Join(two, "f")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a kept figure does not count as measured the next time
		now := look()
		if b, n := &before.Volumes[0], &now.Volumes[0]; n.UsedBytes != b.UsedBytes || n.Counted() != b.UsedBytes-600<<10 || n.KeptInodes != 1 {
			t.Errorf("usage of volume one changed from %+v to %+v", b, n)
		}
		if now.UsedBytes != before.UsedBytes || now.InodesUsed != before.InodesUsed || !now.Partial {
			t.Errorf("sum of the pod changed from %+v to %+v", before, now)
		}
	}
}
