package nodefiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/cgroup"
)

// A node with more cgroups than a record holds has what fits recorded, and /proc: else who makes many cgroups leaves nothing to see.
func TestWalkOfManyCgroups(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("cgroup/cgroup.procs", "")
	for i := range 2100 {
		put(fmt.Sprintf("cgroup/kubepods/besteffort/pod%08d-1234-1234-1234-123456789abc/cgroup.procs", i), "1\n")
	}
	put("cgroup/system.slice/cgroup.procs", "2\n")
	put("proc/meminfo", "MemTotal: 1 kB\n")
	fs, err := cgroup.OpenTree(filepath.Join(dir, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	pods, meminfo, system := 0, false, false
	err = Walk(Options{Cgroups: fs, ProcMount: filepath.Join(dir, "proc"), SysMount: dir}, func(name string, _ []byte) error {
		if strings.HasPrefix(name, "cgroup/kubepods/besteffort/pod") {
			pods++
		}
		meminfo = meminfo || name == "proc/meminfo"
		system = system || name == "cgroup/system.slice/cgroup.procs"
		return nil
	})
	if !errors.Is(err, cgroup.ErrTooMany) {
		t.Fatalf("error %v", err)
	}
	if pods < 1900 || !meminfo || !system {
		t.Errorf("%d pods, /proc/meminfo %v, the system's own %v", pods, meminfo, system)
	}
}
