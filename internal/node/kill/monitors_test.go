package kill

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
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
