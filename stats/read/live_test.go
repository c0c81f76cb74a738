package read

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats/read/procfs"
)

// liveCollector returns a Reader on the real hierarchy of a node dedicated to tests; elsewhere
// it skips the test. See vm.LiveVariable.
func liveCollector(tb testing.TB) *Reader {
	tb.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		tb.Skip("makes pod cgroups: the virtual machine's scenarios run this")
	}
	// A pod takes up to 14 descriptors, and a concurrent raw reader 7 more.
	files := unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		tb.Fatal(err)
	}
	fs, err := cgroup.Open("")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { fs.Close() })
	proc, err := procfs.Open("")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { proc.Close() })
	c, err := NewReader(fs, proc, "")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// podParents are the parents of pods of each class, as a kubelet creates them with the cgroupfs
// driver.
var podParents = []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"}

// groupDir returns the directory of a cgroup of the real hierarchy.
func groupDir(path string) string { return filepath.Join(cgroup.DefaultMount, path) }

// makePodParents creates missing parents of pods, with controllers on, as a kubelet does.
func makePodParents(tb testing.TB) {
	tb.Helper()
	const controllers = "+cpu +cpuset +io +memory +pids"
	for _, dir := range podParents {
		above := filepath.Join(groupDir(filepath.Dir(dir)), "cgroup.subtree_control")
		if err := os.WriteFile(above, []byte(controllers), 0); err != nil {
			tb.Fatal(err)
		}
		if err := os.MkdirAll(groupDir(dir), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(groupDir(dir), "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
			tb.Fatal(err)
		}
	}
}

// podUID returns the UID of the i-th pod of a kind.
func podUID(kind, i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i) }

// bareKind is the kind of pods that makePods creates.
const bareKind = 0xbabe

// makePods creates bare pod cgroups, a third of each class, until the test ends, and returns
// their paths. Every 16th has a process and some MiB of memory.
func makePods(tb testing.TB, count int) (paths []string) {
	tb.Helper()
	makePodParents(tb)
	for i := range count {
		path := podParents[i%len(podParents)] + "/pod" + podUID(bareKind, i)
		if err := os.Mkdir(groupDir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		// Cleanups run last in, first out: the sleeper has ended then.
		tb.Cleanup(func() {
			if err := unix.Rmdir(groupDir(path)); err != nil {
				tb.Errorf("removal of cgroup %s failed: %v", path, err)
			}
		})
		paths = append(paths, path)
		if i%len(podParents) == 0 { // Guaranteed: it has a limit
			if err := os.WriteFile(filepath.Join(groupDir(path), "memory.max"), []byte("67108864"), 0); err != nil {
				tb.Fatal(err)
			}
		}
		if i%16 == 0 {
			sleepIn(tb, path, 4)
		}
	}
	return paths
}

// sleepIn starts a process in a cgroup that uses the given MiB and sleeps until the test ends.
func sleepIn(tb testing.TB, path string, mib int) {
	tb.Helper()
	dir, err := os.Open(groupDir(path))
	if err != nil {
		tb.Fatal(err)
	}
	defer dir.Close()
	file := filepath.Join(tb.TempDir(), strings.ReplaceAll(path, "/", "-"))
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("head -c %dM /dev/zero > %s; echo; exec sleep 3600", mib, file))
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		tb.Fatalf("start a process in %s: %v", path, err)
	}
}
