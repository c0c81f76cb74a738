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

// On a node with more cgroups than the limit, Walk visits those that fit and /proc.
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
		t.Fatalf("Walk of 2100 pods: error = %v, want ErrTooMany", err)
	}
	if pods < 1900 || !meminfo || !system {
		t.Errorf("visited %d pods, /proc/meminfo: %v, system.slice: %v; want 1900 pods and both", pods, meminfo, system)
	}
}

// A pod with more cgroups than the limit does not hide the pods after it.
func TestWalkOfPodWithManyCgroups(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("1\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(i int) string { return fmt.Sprintf("cgroup/kubepods/pod%08d-1234-1234-1234-123456789abc", i) }
	put("cgroup/cgroup.procs")
	for i := range 2 {
		put(pod(i) + "/container/cgroup.procs")
		for j := range 2000 {
			put(fmt.Sprintf("%s/container/%d/cgroup.procs", pod(i), j))
		}
	}
	fs, err := cgroup.OpenTree(filepath.Join(dir, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	seen := map[string]bool{}
	err = Walk(Options{Cgroups: fs, ProcMount: dir, SysMount: dir}, func(name string, _ []byte) error {
		seen[name] = true
		return nil
	})
	if !errors.Is(err, cgroup.ErrTooMany) || len(seen) < 1900 {
		t.Fatalf("visited %d files with error %v, want at least 1900 and ErrTooMany", len(seen), err)
	}
	for i := range 2 {
		if !seen[pod(i)+"/container/cgroup.procs"] {
			t.Errorf("container of pod %d was not visited", i)
		}
	}
}
