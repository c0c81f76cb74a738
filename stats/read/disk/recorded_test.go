package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/cri"
	"jettison/cri/critest"
)

// The writable layer of each running container of a real CRI-O is found in the node's mounts by the
// root that its status names. The roots of ended containers are not mounted.
func TestLayersOfARecordedCRIO(t *testing.T) {
	for _, name := range []string{critest.CRIOSystemd, critest.CRIOCgroupfs} {
		proc := t.TempDir()
		if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, "1/mountinfo"), []byte(critest.Recorded(t, name)["mountinfo"]), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := cri.Dial(critest.StartRecorded(t, name).Endpoint(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		l, err := cri.NewLister(c).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, running := &storageWalker{proc: proc}, 0
		for i := range l.Containers {
			one := &l.Containers[i]
			dir, ok := s.upper(one, time.Time{})
			if want := strings.TrimSuffix(one.Root, "merged") + "diff"; ok != one.Running || ok && dir != want {
				t.Errorf("%s: layer of container %s, %v, = %q, %v, want %q", name, one.Name, one.State, dir, ok, want)
			}
			if one.Running {
				running++
			}
		}
		if s.mountErr != nil || running != 3 {
			t.Errorf("%s: error %v, %d running containers, want 3", name, s.mountErr, running)
		}
	}
}
