package kill

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri/critest"
)

// procTree is a /proc with these processes.
type procTree map[int]struct {
	exe    string
	parent int
}

func (p procTree) write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for pid, of := range p {
		d := filepath.Join(dir, strconv.Itoa(pid))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(of.exe, d+"/exe"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d+"/stat", fmt.Appendf(nil, "%d (a) b) S %d 1 1 0 -1", pid, of.parent), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A pod of CRI-O has the monitors of its containers in its own cgroup. The kill spares the monitors,
// which then write the exit codes, and nothing else: a container may have created a cgroup with such
// a name. The pod is dead once only monitors are left.
func TestKillSparesTheRuntimesMonitors(t *testing.T) {
	proc := procTree{
		100: {"/usr/bin/crio", 1},
		101: {"/usr/bin/conmon", 1},
		102: {"/usr/libexec/crio/conmon (deleted)", 100},
		103: {"/usr/bin/leaker", 1},
		104: {"/usr/bin/conmon", 103},
		105: {"/usr/bin/conmon", 1},
		106: {"/usr/bin/crio-conmonrs", 1},
	}.write(t)
	f := newTree(t)
	p := f.pod("pod", nil)
	children := map[string]struct {
		procs  string
		killed bool
	}{
		"crio-a":              {"201\n", true},
		"crio-b.scope":        {"", true}, // its processes are in groups below
		"crio-conmon-a":       {"101\n", false},
		"crio-conmon-b.scope": {"102\n", false},
		"crio-conmon-none":    {"", false},
		"crio-conmon-package": {"106\n", false},
		"crio-conmon-tenant":  {"103\n", true},
		"crio-conmon-two":     {"101\n103\n", true},
		"crio-conmon-child":   {"104\n", true},
		"crio-conmon-nested":  {"105\n", true},
		"crio-conmon-unknown": {"999\n", true},
		"conmon":              {"105\n", true},
	}
	for name, of := range children {
		f.pod("pod/"+name, map[string]string{"cgroup.procs": of.procs})
	}
	f.pod("pod/crio-conmon-nested/below", nil)
	k := New(Options{FS: f.fs, Ladder: CgroupKill | Pidfd | Mrelease, Proc: proc})
	defer func() { _ = k.Close() }()
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	step(t, v, stepPidfds) // the monitors have been found
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	written := func(group string) bool {
		text, err := os.ReadFile(f.file(group, "cgroup.kill"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text) != ""
	}
	if written("pod") {
		t.Error("cgroup.kill of the whole pod was written, want only its children's")
	}
	for name, of := range children {
		if got := written("pod/" + name); got != of.killed {
			t.Errorf("%s was killed: %v, want %v", name, got, of.killed)
		}
	}
	if v.WaitEmpty(t.Context(), 50*time.Millisecond) == nil {
		t.Error("the pod is dead with live containers")
	}
	for name, of := range children {
		if of.killed {
			if err := os.WriteFile(f.file("pod/"+name, "cgroup.events"), []byte("populated 0\nfrozen 0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := v.WaitEmpty(t.Context(), 10*time.Second); err != nil {
		t.Errorf("wait for the pod's death with only monitors left: %v", err)
	}
}

// monitored pins a pod with a monitor and, if a process is given, a container.
func monitored(t *testing.T, f *tree, ladder Ladder, process string) *Victim {
	t.Helper()
	p := f.pod("pod", nil)
	if process != "" {
		f.pod("pod/crio-a", map[string]string{"cgroup.procs": process})
	}
	f.pod("pod/crio-conmon-a", map[string]string{"cgroup.procs": "101\n"})
	k := New(Options{FS: f.fs, Ladder: ladder, Proc: procTree{101: {"/usr/bin/conmon", 1}}.write(t)})
	t.Cleanup(func() { _ = k.Close() })
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	step(t, v, stepPidfds) // the monitors have been found
	return v
}

// withoutDescriptors calls do while this process can open no file.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

// If the child cgroups cannot be listed, the pod is neither killed nor dead.
func TestKillBesideMonitorsWithoutDescriptors(t *testing.T) {
	v := monitored(t, newTree(t), CgroupKill|Pidfd|Mrelease, "201\n")
	withoutDescriptors(t, func() {
		_ = v.Kill() // nil if a thread is slow
		if err := v.WaitEmpty(t.Context(), 100*time.Millisecond); err == nil || v.Struck() {
			t.Errorf("wait = %v, struck %v, want an error and false: no process was killed", err, v.Struck())
		}
	})
}

// A dead pod is reported soon, however long it took to die, while a monitor lives.
func TestLateDeathBesideMonitors(t *testing.T) {
	f := newTree(t)
	v := monitored(t, f, CgroupKill|Pidfd|Mrelease, "201\n")
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	died := make(chan time.Time, 1)
	time.AfterFunc(1500*time.Millisecond, func() {
		_ = os.WriteFile(f.file("pod/crio-a", "cgroup.events"), []byte("populated 0\nfrozen 0\n"), 0o600)
		died <- time.Now()
	})
	if err := v.WaitEmpty(t.Context(), waitLimit); err != nil {
		t.Fatal(err)
	}
	if late := time.Since(<-died); late > 400*time.Millisecond {
		t.Errorf("the death was reported after %v, want within 400ms", late)
	}
}

// A pod in which only monitors live is dead: to kill it process by process is no error.
func TestKillOfMonitorsAlone(t *testing.T) {
	v := monitored(t, newTree(t), Pidfd|Mrelease, "")
	if err := v.Kill(); err != nil {
		t.Errorf("kill = %v, want nil", err)
	}
	if err := v.WaitEmpty(t.Context(), 0); err != nil {
		t.Errorf("wait = %v, want nil", err)
	}
}

// The monitors of a real CRI-O are recognized, and no other process of its node is.
func TestMonitorsOfARecordedCRIO(t *testing.T) {
	for _, name := range []string{critest.CRIOSystemd, critest.CRIOCgroupfs} {
		tree := procTree{}
		for line := range strings.Lines(critest.Recorded(t, name)["processes"]) {
			var pid, parent int
			var exe string
			if _, err := fmt.Sscan(line, &pid, &exe, &parent); err != nil {
				t.Fatal(err)
			}
			of := tree[pid]
			of.exe, of.parent = exe, parent
			tree[pid] = of
		}
		m, found := monitors{proc: tree.write(t)}, 0
		for pid, of := range tree {
			is := m.isMonitorProcess(pid)
			if is != (of.exe == "/usr/local/bin/conmon") {
				t.Errorf("%s: process %d, %s, is a monitor = %v", name, pid, of.exe, is)
			}
			if is {
				found++
			}
		}
		if found != 4 {
			t.Errorf("%s: %d monitors, want 4", name, found)
		}
	}
}
