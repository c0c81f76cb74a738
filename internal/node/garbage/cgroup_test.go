package garbage

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/reclaim"
)

// The empty cgroup of a pod that is gone is removed. While the cgroup has a process, the pod is not
// gone, regardless of the runtime's answers.
func TestCgroupsOfPodsThatAreGone(t *testing.T) {
	const root = "jettison-garbage-test"
	mount, dir := "", ""
	for _, m := range []string{cgroup.DefaultMount, cgroup.DefaultMount + "/unified"} {
		if fs, err := cgroup.Open(m); err == nil {
			fs.Close()
			if dir = filepath.Join(m, root, "kubepods/besteffort"); os.MkdirAll(dir, 0o755) == nil {
				mount = m
				break
			}
		}
	}
	if mount == "" {
		t.Skip("no cgroup v2 hierarchy that this user may write to: the virtual machine's scenarios cover this")
	}
	n := newNode(t)
	n.open(func(o *Options) { o.CgroupMount, o.CgroupRoot = mount, root })
	t.Cleanup(func() {
		for _, name := range []string{"kubepods/besteffort/pod" + uidB + "/c", "kubepods/besteffort/pod" + uidB, "kubepods/besteffort/pod" + uidA + "/c", "kubepods/besteffort/pod" + uidA, "kubepods/besteffort/other", "kubepods/besteffort", "kubepods", ""} {
			_ = unix.Rmdir(filepath.Join(mount, root, name))
		}
	})
	for _, name := range []string{"pod" + uidA + "/c", "pod" + uidB + "/c", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "pod"+uidB+"/c"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	defer end()
	n.sandbox("s-b", uidB, false, time.Hour) // not ready, although its cgroup has a process
	n.pass(Containers, reclaim.Periodic)
	n.sleep(5 * time.Minute)
	r := n.pass(Containers, reclaim.Periodic)
	n.want(r)
	if len(r.Done) != 1 || r.Done[0].Outcome != Removed || r.Done[0].PodUID != uidA || exists(filepath.Join(dir, "pod"+uidA)) || !exists(filepath.Join(dir, "other")) {
		t.Errorf("steps = %+v, want only the empty cgroup of pod A removed", r.Done)
	}
	end()
	n.pass(Containers, reclaim.Periodic)
	n.sleep(5 * time.Minute)
	r = n.pass(Containers, reclaim.Periodic)
	n.want(r, "sandbox s-b")
	if outcome(t, r, root+"/kubepods/besteffort/pod"+uidB).Outcome != Removed || exists(filepath.Join(dir, "pod"+uidB)) {
		t.Errorf("steps = %+v, want the cgroup of pod B removed", r.Done)
	}
}
