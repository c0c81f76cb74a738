package disk

import (
	"path/filepath"
	"testing"
	"time"

	"jettison/cri"
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
