package disk

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"jettison/stats"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
)

// A pod that is never walked to its end keeps earlier figures for a limited time: files that it
// has removed stop counting.
func TestALowerBoundThatIsKeptExpires(t *testing.T) {
	root := t.TempDir()
	s, found := volumesOf(t, root, "a/one")
	dir := filepath.Join(root, found["a"].pod)
	for i := range 200 {
		hosttest.Write(t, 5000, dir, "volumes", emptyDirPlugin, "one", "many", string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	hosttest.Write(t, 64<<20, dir, "volumes", emptyDirPlugin, "one", "big")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		l.SetPods(podindex.Index{"a": &podindex.Pod{}})
		look := func() stats.VolumeStats {
			l.measure(t.Context(), "a", found["a"])
			p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
			l.Fill(time.Now(), &p)
			return p.EphemeralStorage.Volumes[0]
		}
		l.setHurry(true)
		look()
		if err := os.Remove(filepath.Join(dir, "volumes", emptyDirPlugin, "one", "big")); err != nil {
			t.Fatal(err)
		}
		s.w = paced(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		began := time.Now()
		for time.Since(began) < 3*storageLimit {
			time.Sleep(10 * time.Minute)
			at := time.Since(began)
			kept := look().UsedBytes >= 64<<20
			if want := time.Since(began) <= storageLimit; kept != want {
				t.Errorf("%v after 64 MiB were removed they count: %v, want %v", at, kept, want)
			}
		}
	})
}

// When a kept figure expires, the previous look's own count is kept instead, for as long.
func TestKeptFigureExpiresByParts(t *testing.T) {
	began := time.Now()
	var before stats.FsUsage
	for i, c := range []struct{ bytes, inodes, wantBytes, wantInodes uint64 }{
		{200, 5, 200, 5},
		{10, 3, 200, 5},
		{40, 9, 200, 9}, // 40 minutes
		{20, 2, 200, 9}, // an hour
		{15, 1, 20, 2},  // the first look has expired, the previous look's count is kept
		{10, 3, 20, 3},
	} {
		now := began.Add(time.Duration(i) * storageLimit / 3)
		s := &storage{time: now}
		before = s.larger(stats.FsUsage{Time: now, UsedBytes: c.bytes, InodesUsed: c.inodes, Partial: true}, before)
		if before.UsedBytes != c.wantBytes || before.InodesUsed != c.wantInodes || before.Counted() != min(c.bytes, c.wantBytes) || !before.Partial {
			t.Errorf("usage after look %d = %+v, want %d bytes, %d inodes", i, before, c.wantBytes, c.wantInodes)
		}
	}
}

// In lazy mode figures are as old as the interval of demands: a quarter of an hour, while disks
// are not short. They also show the usage of pods that cannot be walked within seconds.
func TestFiguresOnDemandMayBeOld(t *testing.T) {
	for _, lazy := range []bool{true, false} {
		s, found := volumesOf(t, t.TempDir(), "a/one")
		synctest.Test(t, func(t *testing.T) {
			l := newStorageLoop(s, time.Minute)
			l.lazy = lazy
			l.measure(t.Context(), "a", found["a"])
			for _, c := range []struct {
				age  time.Duration
				want bool
			}{{5 * time.Minute, true}, {20 * time.Minute, lazy}, {storageLimit, lazy}, {storageLimit + time.Second, false}} {
				p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
				l.Fill(l.pods["a"].time.Add(c.age), &p)
				if got := len(p.EphemeralStorage.Volumes) == 1; got != c.want {
					t.Errorf("on demand only: %v, %v old: shown %v, want %v", lazy, c.age, got, c.want)
				}
			}
		})
	}
}

// The usage of a removed pod is not free while its directory exists; remaining log directories
// do not count, because they stay for a while.
func TestDirectoriesThatRemain(t *testing.T) {
	root := t.TempDir()
	s, _ := volumesOf(t, root, "a/one", "left/one", "b/one")
	hosttest.Write(t, 10, root, "pods/listed", "x")
	l := newStorageLoop(s, time.Minute)
	l.SetPods(podindex.Index{"b": &podindex.Pod{}})
	pods := []stats.PodStats{{PodRef: stats.PodReference{UID: "a"}}}
	if got := l.Remains(nil, pods); len(got) != 0 {
		t.Errorf("remains before the first listing = %v", got)
	}
	found, err := s.find()
	found["logs"] = storageDirs{logs: []string{"ns_name_logs"}}
	l.keep(found, err)
	if got := l.Remains([]string{"old"}[:0], pods); !slices.Equal(got, []string{"left", "listed"}) {
		t.Error(got)
	}
	delete(found, "left")
	l.keep(found, nil)
	if got := l.Remains(nil, pods); !slices.Equal(got, []string{"listed"}) {
		t.Errorf("remains after the removal = %v", got)
	}
}
