package read

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"jettison/cgroup"
)

// The processes of a pod are found in its containers, and below these, where crun puts them with the
// systemd driver. A pod with many cgroups costs a bounded number of look-ups in each level.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	group := func(path string, pids ...int) {
		text := ""
		for _, pid := range pids {
			text += fmt.Sprintln(pid)
		}
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path, "cgroup.procs"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	group("")
	group("p")
	group("p/crio-a.scope")
	group("p/crio-a.scope/container", 7, 8)
	group("p/crio-a.scope/container/nested", 9)
	group("p/b", 5)
	for i := range 3 * maxContainers {
		group(fmt.Sprint("q/", i), 100+i)
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	find := func(path string) (pids []int) {
		processes(fs, path, make([]byte, 32<<10), func(pid int) { pids = append(pids, pid) })
		slices.Sort(pids)
		return pids
	}
	if got := find("p"); !slices.Equal(got, []int{5, 7, 8}) {
		t.Errorf("processes = %v, want 5, 7 and 8", got)
	}
	if got := find("q"); len(got) != maxContainers {
		t.Errorf("%d processes of %d cgroups, want %d", len(got), 3*maxContainers, maxContainers)
	}
}
