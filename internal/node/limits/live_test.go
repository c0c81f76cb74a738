package limits

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"jettison/cgroup"
)

// holdVariable makes this test binary allocate and touch that many bytes, until its input ends.
const holdVariable = "JETTISON_HOLD"

func hold(size string) {
	n, err := strconv.Atoi(size)
	if err != nil {
		panic(err)
	}
	memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	for i := 0; i < n; i += 4096 {
		memory[i] = 1
	}
	fmt.Println("holds")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

const liveRoot = "jettison-live-limits"

// live creates the cgroups of two pods in a real hierarchy, and starts a process in one that uses
// memory.
func live(t *testing.T, held int) *node {
	t.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("takes a node to try things on: make e2e RUN=LiveTests")
	}
	fs, err := cgroup.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	n := &node{TB: t, dir: fs.Mount(), fs: fs}
	for _, dir := range []string{"", "/kubepods", "/kubepods/poda", "/kubepods/poda/a-c", "/kubepods/burstable", "/kubepods/burstable/podb", "/kubepods/burstable/podb/b-c"} {
		dir = filepath.Join(fs.Mount(), liveRoot+dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if err := os.WriteFile(filepath.Dir(dir)+"/cgroup.subtree_control", []byte("+memory +pids +cpu"), 0); err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.Open(filepath.Join(fs.Mount(), liveRoot, "kubepods/poda/a-c"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), holdVariable+"="+strconv.Itoa(held))
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(in.Fd())}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		t.Fatal(err1, err2, cmd)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("process of the pod died: %v", err)
		}
	})
	if _, err := stdout.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) says(name string) string {
	n.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, liveRoot, name))
	if err != nil {
		n.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A real kernel accepts the values and returns them, a pod that uses more than the limit survives,
// and everything can be restored.
func TestLiveLimits(t *testing.T) {
	const held = 256 * mib
	n := live(t, held)
	w := &Writer{FS: n.fs, CgroupRoot: liveRoot, Kubelet: never}
	if r := w.Limit(t.Context(), Targets{MemoryMax: some(128*mib + 5), PIDsMax: some(1000), CPUWeight: some(149)}); r.Err != nil || len(r.Limited) != 3 {
		t.Fatalf("result of the first pass = %+v", r)
	}
	most, err := strconv.ParseUint(n.says("kubepods/memory.max"), 10, 64)
	if err != nil || most < held || most > 2*held || n.says("kubepods/pids.max") != "1000" || n.says("kubepods/cpu.weight") != "149" {
		t.Errorf("after the first pass, memory.max = %d, pids.max = %s, error %v", most, n.says("kubepods/pids.max"), err)
	}
	if r := w.Limit(t.Context(), Targets{MemoryMax: some(held*2 + 5)}); r.Err != nil || n.says("kubepods/memory.max") != strconv.Itoa(held*2) {
		t.Errorf("memory.max after the second pass = %s, error %v", n.says("kubepods/memory.max"), r.Err)
	}
	max := filepath.Join(n.dir, liveRoot, "kubepods/burstable/podb/b-c/memory.max")
	if err := os.WriteFile(max, []byte("157286400"), 0); err != nil { // the limit of its object
		t.Fatal(err)
	}
	known := Known{Objects: []*v1.Pod{object("a", "c 100M 100M"), object("b", "c 50Mi 150Mi")}, Runtime: runs(map[string][]string{"a": {"c"}, "b": {"c"}})}
	budget := Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: uint64(os.Getpagesize())}
	for range 2 {
		if r := w.Protect(t.Context(), known, budget); r.Err != nil {
			t.Errorf("restore of the limits: error %v", r.Err)
		}
	}
	for file, want := range map[string]string{
		"memory.min": "99999744", "kubepods/memory.min": "99999744", "kubepods/poda/a-c/memory.min": "99999744", "kubepods/memory.low": "52428800",
		"kubepods/burstable/podb/b-c/memory.low": "52428800", "kubepods/burstable/podb/b-c/memory.high": "146800640",
	} {
		if got := n.says(file); got != want {
			t.Errorf("value of %s = %s, want %s", file, got, want)
		}
	}
	if err := os.WriteFile(max, []byte("max"), 0); err != nil {
		t.Fatal(err)
	}
	if r := Restore(t.Context(), n.fs, liveRoot, false, never, nil); r.Err != nil {
		t.Error(r.Err)
	}
	for _, group := range []string{"", "kubepods/", "kubepods/poda/", "kubepods/poda/a-c/", "kubepods/burstable/", "kubepods/burstable/podb/b-c/"} {
		for file, want := range map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max", "pids.max": "max", "cpu.weight": "100"} {
			if got := n.says(group + file); got != want {
				t.Errorf("value of %s%s = %s after the restore", group, file, got)
			}
		}
	}
	if events := n.says("kubepods/memory.events"); !strings.Contains(events, "oom_kill 0") {
		t.Error(events)
	}
}
