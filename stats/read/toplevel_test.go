package read

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"jettison/cgroup"
)

// Whoever asks what else grows gets the units in slices one by one, and no pods.
func TestTopLevelNamesUnitsAndNoPods(t *testing.T) {
	dir := t.TempDir()
	for path, current := range map[string]string{
		"": "", "init.scope": "1\n", "leak": "2\n", "system.slice": "30\n", "system.slice/leak.service": "20\n", "system.slice/other.service": "10\n",
		"user.slice": "4\n", "kubepods": "500\n", "kubepods/besteffort": "500\n", "unlimited.slice": "", "broken": "many\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if current != "" {
			if err := os.WriteFile(filepath.Join(dir, path, "memory.current"), []byte(current), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	c, err := NewReader(fs, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := map[string]uint64{}
	err = c.TopLevel(func(path string, bytes uint64) { got[path] = bytes })
	want := map[string]uint64{"init.scope": 1, "leak": 2, "system.slice/leak.service": 20, "system.slice/other.service": 10, "user.slice": 4}
	if !maps.Equal(got, want) || err == nil {
		t.Errorf("got %v, %v; want %v and an error for the broken one", got, err, want)
	}
}

// While a disk is short, figures that are seconds old are renewed; otherwise those that are a minute old.
func TestAHurriedWalkRenewsSooner(t *testing.T) {
	l := newStorageLoop(&storageWalker{}, storageEvery)
	l.pods["a"] = &storage{time: time.Now().Add(-2 * hurriedEvery)}
	found := map[string]storageDirs{"a": {}}
	b := &Background{storage: l, calm: 0.01}
	for _, hurry := range []bool{false, true, false} {
		b.Hurry(hurry)
		if _, due := l.oldest(found); due != hurry {
			t.Errorf("hurry %v: due %v", hurry, due)
		}
		if got := b.share(); (got > 0.1) != hurry {
			t.Errorf("hurry %v: a share of %v", hurry, got)
		}
	}
}

// Before a victim is chosen for a disk, figures from before the disk was short are renewed; those of pods with limits often.
func TestFiguresOnDemand(t *testing.T) {
	now := time.Now()
	l := newStorageLoop(&storageWalker{}, storageEvery)
	b := &Background{storage: l}
	found := map[string]storageDirs{"old": {}, "young": {}}
	l.keep(found, nil)
	l.pods["old"], l.pods["young"] = &storage{time: now.Add(-30 * time.Second)}, &storage{time: now}
	due := func() string {
		uid, due := l.oldest(found)
		if !due {
			return ""
		}
		return uid
	}
	if got := due(); got != "" || b.Fresh(now.Add(-time.Second)) || !b.Fresh(now.Add(-time.Minute)) {
		t.Errorf("before: due %q", got)
	}
	b.Demand(now.Add(-time.Second))
	if got := due(); got != "old" {
		t.Errorf("on demand: due %q", got)
	}
	l.pods["old"].time = now
	if got := due(); got != "" || !b.Fresh(now.Add(-time.Second)) {
		t.Errorf("measured: due %q", got)
	}
	l.pods["young"].time = now.Add(-2 * eagerEvery)
	l.demanded = time.Time{}
	b.Eager(map[string]bool{"young": true, "gone": true})
	if got := due(); got != "young" {
		t.Errorf("with a limit of its own: due %q", got)
	}
	delete(l.pods, "old")
	if b.Fresh(time.Time{}) {
		t.Error("a pod that was never measured is fresh")
	}
}
