package kill

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri/critest"
	"jettison/internal/base/race"
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

// If the child cgroups cannot be opened, the whole pod is killed, with its monitors. It is not
// dead.
func TestKillBesideMonitorsWithoutDescriptors(t *testing.T) {
	f := newTree(t)
	v := monitored(t, f, CgroupKill|Pidfd|Mrelease, "201\n")
	withoutDescriptors(t, func() {
		if err := v.Kill(); err != nil {
			t.Errorf("kill = %v, want nil", err)
		}
		if err := v.WaitEmpty(t.Context(), 100*time.Millisecond); err == nil {
			t.Error("the pod is dead with a live container")
		}
	})
	f.checkKilled("pod", true)
}

// checkKilled checks whether cgroup.kill of a group was written. It waits for a thread that is
// slow.
func (f *tree) checkKilled(group string, want bool) {
	f.t.Helper()
	killed := func() bool {
		text, err := os.ReadFile(f.file(group, "cgroup.kill"))
		return err == nil && len(text) > 0
	}
	for end := time.Now().Add(waitLimit); want && !killed() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if got := killed(); got != want {
		f.t.Errorf("%s was killed: %v, want %v", group, got, want)
	}
}

// A monitor that started after Pin is spared, also if the ladder opens no pidfds before the kill,
// and after an earlier kill. A container that starts during the kill dies.
func TestMonitorsAndContainersAfterPin(t *testing.T) {
	for _, ladder := range []Ladder{CgroupKill | Mrelease, CgroupKill} {
		f := newTree(t)
		p := f.pod("pod", nil)
		k := New(Options{FS: f.fs, Ladder: ladder, Proc: procTree{101: {"/usr/bin/conmon", 1}}.write(t)})
		t.Cleanup(func() { _ = k.Close() })
		v, err := k.Pin(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		if ladder.has(Mrelease) {
			step(t, v, stepPidfds)
		}
		f.pod("pod/crio-a", nil)
		f.pod("pod/crio-conmon-a", map[string]string{"cgroup.procs": "101\n"})
		if err := v.Kill(); err != nil {
			t.Fatal(err)
		}
		f.checkKilled("pod/crio-a", true)
		f.pod("pod/crio-late", nil)
		f.end("pod/crio-a")
		late := func() bool { text, _ := os.ReadFile(f.file("pod/crio-late", "cgroup.kill")); return len(text) > 0 }
		for end := time.Now().Add(waitLimit); !late() && time.Now().Before(end); { // a busy machine repeats no kill within 100 ms
			if err := v.WaitEmpty(t.Context(), 100*time.Millisecond); err == nil {
				t.Errorf("%v: the pod is dead with a live container", ladder)
			}
		}
		for _, group := range []string{"pod", "pod/crio-conmon-a"} {
			f.checkKilled(group, false)
		}
		f.checkKilled("pod/crio-late", true)
		f.end("pod/crio-late")
		if err := v.WaitEmpty(t.Context(), waitLimit); err != nil {
			t.Errorf("%v: wait with only a monitor left = %v, want nil", ladder, err)
		}
	}
}

// end empties a group.
func (f *tree) end(group string) {
	f.t.Helper()
	if err := os.WriteFile(f.file(group, "cgroup.events"), []byte("populated 0\nfrozen 0\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// A pod is killed as a whole, with what is named as a monitor, if the runtime runs none, or if the
// pod has too many child cgroups to kill one by one in time.
func TestKillOfTheWholePod(t *testing.T) {
	for what, c := range map[string]struct {
		none     bool
		children int
	}{"another runtime": {none: true}, "too many children": {children: maxChildren}} {
		f := newTree(t)
		p := f.pod("pod", nil)
		f.pod("pod/crio-conmon-a", map[string]string{"cgroup.procs": "101\n"})
		for i := range c.children {
			if err := os.Mkdir(f.file("pod", strconv.Itoa(i)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		k := New(Options{FS: f.fs, Ladder: CgroupKill, NoMonitors: c.none,
			Proc: procTree{101: {"/usr/bin/conmon", 1}}.write(t)})
		t.Cleanup(func() { _ = k.Close() })
		v, err := k.Pin(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		if err := v.Kill(); err != nil {
			t.Errorf("%s: kill = %v, want nil", what, err)
		}
		f.checkKilled("pod", true)
	}
}

// Nothing is allocated until the containers alongside monitors are killed. The check of the one
// monitor allocates a buffer, after that.
func TestKillBesideMonitorsDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	f := newTree(t)
	v := monitored(t, f, CgroupKill|Pidfd|Mrelease, "201\n")
	f.pod("pod/crio-b", nil)
	// without the processes that the check reads in /proc
	if err := os.WriteFile(f.file("pod/crio-conmon-a", "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, killBuffer)
	n := testing.AllocsPerRun(100, func() {
		if err := v.writeFile(buf); err != nil {
			t.Error(err)
		}
	})
	f.checkKilled("pod/crio-b", true)
	if n > 1 {
		t.Errorf("allocations of a kill beside a monitor = %v, want at most 1", n)
	}
}

// The CPU time of a monitor is no sign that a container is dying.
func TestMonitorsCPUTimeIsNoProgress(t *testing.T) {
	f := newTree(t)
	v := monitored(t, f, CgroupKill|Pidfd|Mrelease, "201\n")
	put := func(group string, used int) { // of one length, so that no reader sees a part
		file, err := os.OpenFile(f.file(group, "cpu.stat"), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = fmt.Fprintf(file, "usage_usec %09d\n", used)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	groups := []string{"pod", "pod/crio-conmon-a"}
	for _, group := range append(groups, "pod/crio-a") {
		put(group, 1000)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	const limit = time.Second
	began, done := time.Now(), make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for used := 1000; ; used++ {
			select {
			case <-done:
				return
			case <-time.After(limit / 50):
			}
			for _, group := range groups {
				put(group, used)
			}
		}
	})
	err := v.WaitEmpty(t.Context(), limit)
	took := time.Since(began)
	close(done)
	busy.Wait()
	if !errors.Is(err, os.ErrDeadlineExceeded) || took > 3*limit {
		t.Errorf("wait for a stuck victim beside a busy monitor = %v after %v, want deadline exceeded after %v", err, took, limit)
	}
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
