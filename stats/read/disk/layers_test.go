package disk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
	"jettison/stats/read/walk"
)

// A layer mounted after the last reading of the mounts is found in the mounts: the runtime is
// not queried for it.
func TestALayerThatWasMountedSinceTheMountsWereRead(t *testing.T) {
	root, index := hosttest.WithAPod(t)
	hosttest.Mounts(t, root, "")
	host, err := hostroot.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	s := &storageWalker{host: host, proc: filepath.Join(root, "proc"), runtime: hosttest.OneStore(root), w: walk.New(hosttest.NoPause)}
	s.readMounts()
	hosttest.Mounts(t, root, hosttest.Overlay)
	out := s.measure(t.Context(), "uid-1", storageDirs{}, index["uid-1"])
	if u, ok := out.layers["c-app"]; !ok || out.missing || u.UsedBytes < 200000 {
		t.Errorf("layers of the container = %+v, error %v", out.layers, out.err)
	}
	exited := &podindex.Pod{Exited: []cri.Container{{ID: "c-app"}}}
	hosttest.Mounts(t, root, "")
	s.mounted, s.uppers = time.Time{}, nil
	s.readMounts()
	hosttest.Mounts(t, root, hosttest.Overlay)
	if out := s.measure(t.Context(), "uid-1", storageDirs{}, exited); out.exited["c-app"].UsedBytes < 200000 {
		t.Errorf("layer after the exit = %+v", out.exited)
	}
}

// crioMount returns the mount of a layer as CRI-O makes it.
func crioMount(home, layer string) string {
	return fmt.Sprintf("600 500 0:50 / %s/%s/merged rw - overlay overlay rw,upperdir=%s/%s/diff,workdir=/w\n", home, layer, home, layer)
}

// A layer of CRI-O is found by the root that the runtime names, while its container runs and after
// that. The runtime is not asked: it would walk every layer, also those of exited containers.
func TestALayerOfCRIO(t *testing.T) {
	for name, c := range map[string]struct{ named, mounted string }{
		"plain":                 {"/var/lib/containers/storage/overlay", "/var/lib/containers/storage/overlay"},
		"a symlinked directory": {"/var/lib/containers/storage/overlay", "/data/overlay"},
	} {
		root, index := hosttest.WithAPod(t)
		hosttest.Write(t, 300000, root, c.mounted, "l1/diff/written")
		hosttest.Mounts(t, root, crioMount(c.mounted, "l1")+crioMount(c.mounted, "l2"))
		p := index["uid-1"]
		p.Containers[0].Root = c.named + "/l1/merged"
		p.Exited = []cri.Container{{ID: "init", State: cri.Exited}}
		p.Containers = append(p.Containers, cri.Container{ID: "new", State: cri.Running}) // known by an event only
		r := hosttest.OneStore(root)
		r.Stats = func(context.Context) ([]cri.ContainerStats, error) {
			t.Errorf("%s: the runtime was asked", name)
			return nil, nil
		}
		l, _ := loopOn(t, root, index, r)
		look := func() *storage {
			l.walker.mounted = time.Time{}
			l.measure(t.Context(), "uid-1", storageDirs{})
			return l.pods["uid-1"]
		}
		s := look()
		if u := s.layers["c-app"]; u.UsedBytes < 300000 || u.Partial {
			t.Errorf("%s: layer = %+v, want at least 300000 bytes", name, u)
		}
		if u := s.exited["init"]; !u.Partial || u.UsedBytes != 0 || !s.missing {
			t.Errorf("%s: layer that ended before it was found = %+v, missing %v; want a lower bound of 0, and the new container's missing", name, u, s.missing)
		}
		hosttest.Mounts(t, root, crioMount(c.mounted, "l2")) // it has ended, and is still listed as running
		if u := look().layers["c-app"]; u.UsedBytes < 300000 || u.Partial {
			t.Errorf("%s: layer whose root is unmounted = %+v, want at least 300000 bytes", name, u)
		}
		p.Containers, p.Exited = p.Containers[1:], append(p.Exited, p.Containers[0])
		p.Containers[0].Root = c.named + "/l2/merged"
		hosttest.Write(t, 500000, root, c.mounted, "l1/diff/last words")
		l.SetPods(index)
		for range 2 {
			if u := look().exited["c-app"]; u.UsedBytes < 800000 || u.Partial {
				t.Errorf("%s: layer after the end = %+v, want at least 800000 bytes", name, u)
			}
		}
	}
}

// CRI-O's verbose status of a container can be too large for the agent. Then the container's
// statistics contain its root, and the agent walks it. It requests them once, also if the walk for
// the answer takes long, and never those of all containers.
func TestLayerOfARefusedContainer(t *testing.T) {
	const home = "/var/lib/containers/storage/overlay"
	for name, c := range map[string]struct {
		mounted     string        // where the table has the root; empty: nowhere
		took        time.Duration // for the answer
		least, most int           // queries in an hour
		want        stats.FsUsage
	}{
		"an overlay":        {home, 0, 1, 1, stats.FsUsage{UsedBytes: 300000}},
		"a symbolic link":   {"/data/overlay", 0, 1, 1, stats.FsUsage{UsedBytes: 300000}},
		"fuse-overlayfs":    {"", 0, 30, 60, stats.FsUsage{UsedBytes: 200}},
		"a walk of minutes": {home, time.Minute, 4, 9, stats.FsUsage{}},
	} {
		root, index := hosttest.WithAPod(t)
		hosttest.Mounts(t, root, crioMount(home, "l2"))
		if c.mounted != "" {
			hosttest.Write(t, 300000, root, c.mounted, "l1/diff/written")
			hosttest.Mounts(t, root, crioMount(c.mounted, "l1")+crioMount(home, "l2"))
		}
		hosttest.Write(t, 100, root, home, "l2/diff/written")
		p := index["uid-1"]
		p.Containers[0].Refused, p.Containers[0].Detailed = true, true
		p.Containers = append(p.Containers, cri.Container{ID: "other", State: cri.Running, Root: home + "/l2/merged"},
			cri.Container{ID: "new", State: cri.Created, Detailed: true, Refused: true})
		r := hosttest.OneStore(root)
		r.Stats = func(context.Context) ([]cri.ContainerStats, error) {
			t.Errorf("%s: the agent queried the runtime for all containers", name)
			return nil, nil
		}
		queries, used, inodes := 0, uint64(200), uint64(1)
		r.One = func(ctx context.Context, id string) (cri.ContainerStats, error) {
			if queries++; id != "c-app" {
				t.Errorf("%s: the agent queried the runtime for %s, want c-app only", name, id)
			}
			select {
			case <-time.After(c.took):
			case <-ctx.Done():
			}
			return cri.ContainerStats{ID: id, WritableLayer: &cri.FilesystemUsage{Mountpoint: home + "/l1/merged", UsedBytes: &used, InodesUsed: &inodes}}, ctx.Err()
		}
		l, _ := loopOn(t, root, index, r)
		synctest.Test(t, func(t *testing.T) {
			for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Minute) {
				l.walker.mounted = time.Time{}
				l.measure(t.Context(), "uid-1", storageDirs{})
				s := l.pods["uid-1"]
				if u := s.layers["c-app"]; u.UsedBytes < c.want.UsedBytes || u.UsedBytes > c.want.UsedBytes+100000 || u.Partial || s.missing != (c.want.UsedBytes == 0) {
					t.Fatalf("%s: layer = %+v, missing %v, error %v; want %d bytes", name, u, s.missing, s.err, c.want.UsedBytes)
				}
			}
		})
		if queries < c.least || queries > c.most {
			t.Errorf("%s: %d queries in an hour, want %d to %d", name, queries, c.least, c.most)
		}
	}
}

// The runtime's value of a layer is as fresh as the measurement that needs it. A slow runtime gets time
// to rest, and the last value stays while it does not answer.
func TestAgeOfTheRuntimesValue(t *testing.T) {
	root, index := hosttest.WithAPod(t)
	hosttest.Mounts(t, root, "")
	used, inodes, queries := uint64(100), uint64(1), 0
	took, broken := time.Duration(0), error(nil)
	r := hosttest.OneStore(root)
	r.Stats = func(ctx context.Context) ([]cri.ContainerStats, error) {
		queries++
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
		return []cri.ContainerStats{{ID: "c-app", WritableLayer: &cri.FilesystemUsage{UsedBytes: &used, InodesUsed: &inodes}}}, errors.Join(ctx.Err(), broken)
	}
	l, _ := loopOn(t, root, index, r)
	synctest.Test(t, func(t *testing.T) {
		look := func() *storage {
			l.measure(t.Context(), "uid-1", storageDirs{})
			return l.pods["uid-1"]
		}
		for range 10 {
			look()
			time.Sleep(3 * time.Second)
		}
		if queries != 1 {
			t.Errorf("%d queries in 30 s at rest, want 1", queries)
		}
		l.Demand(time.Now())
		if used = 200; look().layers["c-app"].UsedBytes != 200 {
			t.Errorf("layer after a demand = %+v, want 200 bytes", l.pods["uid-1"].layers["c-app"])
		}
		time.Sleep(100 * time.Millisecond)
		l.Demand(time.Now()) // while the runtime rests
		if u := look().layers["c-app"]; u.UsedBytes != 200 || !u.Partial {
			t.Errorf("layer while the runtime rests = %+v, want a lower bound of 200 bytes", u)
		}
		queries, took = 0, 5*time.Second // longer than its timeout
		l.setHurry(true)
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
			if u := look().layers["c-app"]; u.UsedBytes != 200 {
				t.Fatalf("layer while the runtime does not answer = %+v, want 200 bytes", u)
			}
		}
		if queries > 3 || !l.pods["uid-1"].layers["c-app"].Partial {
			t.Errorf("%d queries of a hung runtime in a minute, layer %+v; want at most 3 and a lower bound", queries, l.pods["uid-1"].layers["c-app"])
		}
		time.Sleep(time.Minute)
		if used, took = 300, 0; look().layers["c-app"].UsedBytes != 300 {
			t.Errorf("layer once the runtime answers = %+v, want 300 bytes", l.pods["uid-1"].layers["c-app"])
		}
		broken = errors.New("broken")
		time.Sleep(storageLimit + time.Minute)
		if u, ok := look().layers["c-app"]; ok && u.KeptTime.IsZero() {
			t.Errorf("layer whose value is older than %v = %+v, want none", storageLimit, u)
		}
	})
}
