package kill

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// crashCommand is the hidden command with which tests start this executable as a process that crashes: it raises and restores the CPU
// limits of a cgroup, or freezes and thaws it, in a loop until it is killed.
const crashCommand = "crash"

// runCrashing is the body of that process. args: a mount, the path of a cgroup, and the action.
func runCrashing(args []string) {
	fs, err := cgroup.OpenTree(args[0])
	if err != nil {
		panic(err)
	}
	g, err := fs.Group(args[1])
	if err != nil {
		panic(err)
	}
	by, buf := cgroup.NewProcKiller(), make([]byte, 256)
	fmt.Println("begun")
	for {
		if args[2] == "freeze" {
			_, _ = by.Kill(g, time.Second)
			continue
		}
		before, raised, err := raiseCPU(g, buf)
		if err == nil && raised {
			err = restoreCPU(g, before, buf)
		}
		if err != nil {
			panic(err)
		}
	}
}

// crash starts such a process and kills it after a random time.
func crash(t *testing.T, mount, path, action string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", crashCommand, mount, path, action)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	time.Sleep(rand.N(2 * time.Millisecond))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("crash process ended with %v, %v, want a kill while it runs", err, cmd.ProcessState)
	}
}

// limited creates a pod with a CPU limit in a tree of files that supports notes. The file contents have a length such that a write leaves
// the text that the kernel would.
func limited(t *testing.T) (f *tree, p *stats.PodStats, g *cgroup.Group) {
	t.Helper()
	f = newTree(t)
	p = f.pod("pod", map[string]string{"cpu.max": "200 1000\n", "cpu.weight": "10000\n"})
	g, err := f.fs.Group("pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if err := g.SetNote(cgroup.Trusted+"try", ""); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	return f, p, g
}

func (f *tree) read(pod, name string) string {
	f.t.Helper()
	b, err := os.ReadFile(f.file(pod, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// The next start restores the limits, wherever a crash happens between the note and its removal.
func TestCrashAtEachPoint(t *testing.T) {
	buf := make([]byte, 256)
	f, p, g := limited(t)
	before, err := g.CPUSettings(buf)
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{
		func() error { return g.SetNote(noteCPU, cpuNote(before)) },
		func() error { return g.RaiseCPU() },
		func() error { return g.RestoreCPU(before, buf) },
		func() error { return g.RemoveNote(noteCPU) },
	}
	for n := range len(steps) + 1 {
		for _, step := range steps[:n] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		raised := f.read("pod", "cpu.max")
		mended, err := Restore(f.fs, []string{"gone", p.Cgroup})
		if want := n > 0 && n < len(steps); slices.Contains(mended, "pod") != want || err != nil {
			t.Errorf("after %d steps: restored cgroups = %v, %v, want the pod in it: %v", n, mended, err, want)
		}
		if got := f.read("pod", "cpu.max"); got != "200 1000" || n == 2 && raised != "max 1000" {
			t.Errorf("after %d steps: cpu.max = %q, want 200 1000; before the restore %q", n, got, raised)
		}
		if _, noted, err := g.Note(noteCPU); noted || err != nil {
			t.Errorf("after %d steps: note present = %v, %v, want false", n, noted, err)
		}
	}
}

// systemd takes the controller cpu from a slice without processes. Then nothing is raised any more.
func TestRestoreWithoutTheCPUController(t *testing.T) {
	f, p, g := limited(t)
	before, err := g.CPUSettings(make([]byte, 256))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.SetNote(noteCPU, cpuNote(before)), g.RaiseCPU(), os.Remove(f.file("pod", "cpu.max")),
		os.Remove(f.file("pod", "cpu.weight"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(f.fs, []string{p.Cgroup}); err != nil {
		t.Errorf("Restore() = %v, want nil", err)
	}
	if _, noted, err := g.Note(noteCPU); noted || err != nil {
		t.Errorf("note present = %v, %v, want false", noted, err)
	}
}

// The same with processes that are killed at a random time.
func TestCrashesLeaveNothingRaised(t *testing.T) {
	f, _, g := limited(t)
	raised := 0
	for range 60 {
		crash(t, f.fs.Mount(), "pod", "cpu")
		if f.read("pod", "cpu.max") != "200 1000" {
			raised++
			if _, noted, err := g.Note(noteCPU); !noted || err != nil {
				t.Fatalf("note of a raised cgroup present = %v, %v, want true", noted, err)
			}
		}
		if _, err := Restore(f.fs, []string{"pod"}); err != nil {
			t.Fatal(err)
		}
		if got := f.read("pod", "cpu.max"); got != "200 1000" {
			t.Fatalf("cpu.max after Mend = %q, want 200 1000", got)
		}
	}
	if raised == 0 {
		t.Error("no crash left the limits raised, so the test proves nothing")
	}
}

// Restore thaws a cgroup of this machine's hierarchy after a crash; a cgroup frozen by another program stays frozen.
func TestCrashesLeaveNothingFrozen(t *testing.T) {
	fs, p := pod(t)
	frozen, file := 0, filepath.Join(fs.Mount(), p.Cgroup, "cgroup.freeze")
	state := func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	for range 60 {
		crash(t, fs.Mount(), p.Cgroup, "freeze")
		if state() == "1" {
			frozen++
		}
		if _, err := Restore(fs, []string{p.Cgroup}); err != nil {
			t.Fatal(err)
		}
		if state() != "0" {
			t.Fatalf("cgroup.freeze after Mend = %s, want 0", state())
		}
	}
	if frozen == 0 {
		t.Error("no crash left the pod frozen, so the test proves nothing")
	}
	if err := os.WriteFile(file, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if mended, err := Restore(fs, []string{p.Cgroup}); len(mended) > 0 || err != nil || state() != "1" {
		t.Errorf("frozen by another program: restored %v, %v, cgroup.freeze %s, want none and 1", mended, err, state())
	}
}

// A second attempt at a pod with already raised limits restores the limits from before both attempts.
func TestTwoAttemptsAtOneCgroup(t *testing.T) {
	f, _, g := limited(t)
	buf := make([]byte, 256)
	first, _, err := raiseCPU(g, buf)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := raiseCPU(g, buf)
	if err != nil || second != first {
		t.Errorf("former settings in the second attempt = %+v, %v, want %+v", second, err, first)
	}
	for _, before := range []cgroup.CPUSettings{second, first} {
		if err := restoreCPU(g, before, buf); err != nil {
			t.Error(err)
		}
	}
	if got := f.read("pod", "cpu.max"); got != "200 1000" {
		t.Errorf("cpu.max after both restores = %q, want 200 1000", got)
	}
}

// forge writes a note that the owner of a cgroup's directory can write.
func forge(t *testing.T, dir, text string) {
	t.Helper()
	if err := unix.Setxattr(dir, "user.jettison.cpu", []byte(text), 0); err != nil {
		t.Skip("no extended attributes of users here: ", err)
	}
}

// A container that forges a note without a limit has its limit again after a kill that it survives.
func TestForgedNote(t *testing.T) {
	f, p, _ := limited(t)
	f.containers()
	for _, name := range []string{"pod", "pod/limited"} {
		forge(t, filepath.Join(f.fs.Mount(), name), "max 1000 10000 0")
	}
	k := newKiller(t, f.fs, "cgroup.kill,cpu")
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	step(t, v, "cpu")
	v.Close()
	if s := step(t, v, stepRestored); s.Err != nil {
		t.Errorf("step cpu restored = %+v, want no error", s)
	}
	f.checkLimits()
}

// The note of an older agent that crashed is restored once. A forged note can only reduce the CPU time of its author.
func TestNotesOfOlderAgent(t *testing.T) {
	for forged, want := range map[string]string{"200 1000 10000 0": "200 1000", "max 1000 10000 0": "max 1000"} {
		f, p, g := limited(t)
		f.containers()
		forge(t, filepath.Join(f.fs.Mount(), "pod"), forged)
		forge(t, filepath.Join(f.fs.Mount(), "pod/limited"), "300 1000 10000 0")
		for _, name := range []string{"pod", "pod/limited"} {
			if err := os.WriteFile(f.file(name, "cpu.max"), []byte("max 1000\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, mends := range []int{1, 0} {
			if mended, err := Restore(f.fs, []string{p.Cgroup}); err != nil || len(mended) != mends {
				t.Errorf("Mend = %v, %v, want %d cgroups", mended, err, mends)
			}
		}
		if pod, below := f.read("pod", "cpu.max"), f.read("pod/limited", "cpu.max"); pod != want || below != "300 1000" {
			t.Errorf("%s: cpu.max = %s, of the container %s, want %s and 300 1000", forged, pod, below, want)
		}
		if _, noted, err := g.Note(formerCPU); noted || err != nil {
			t.Errorf("%s: former note present = %v, %v, want false", forged, noted, err)
		}
	}
	f, p, _ := limited(t)
	f.containers()
	for _, name := range []string{"pod", "pod/limited"} {
		forge(t, filepath.Join(f.fs.Mount(), name), "max 1000 10000 0")
	}
	if _, err := Restore(f.fs, []string{p.Cgroup}); err != nil {
		t.Error(err)
	}
	f.checkLimits()
}

func TestCPUNotes(t *testing.T) {
	max := cgroup.CPUMax{Period: 100 * time.Millisecond, Unlimited: true}
	quota := cgroup.CPUMax{Period: 100 * time.Millisecond, Quota: 5 * time.Millisecond}
	for text, s := range map[string]cgroup.CPUSettings{
		"5000 100000 100 0": {Max: quota, HasMax: true, Weight: 100, HasWeight: true},
		"max 100000 1 1":    {Max: max, HasMax: true, Weight: 1, HasWeight: true, Idle: true},
		"- - 79 0":          {Weight: 79, HasWeight: true},
		"5000 100000 - 0":   {Max: quota, HasMax: true},
	} {
		if got := cpuNote(s); got != text {
			t.Errorf("cpuNote(%+v) = %q, want %q", s, got, text)
		}
		if got, ok := parseCPUNote(text); !ok || got != s {
			t.Errorf("parseCPUNote(%q) = %+v, %v, want %+v", text, got, ok, s)
		}
	}
	for _, text := range []string{"", "- - - 0", "5000 0 100 0", "5000 100000 100001 0", "5000 100000 100 2", "a b c d", "1 2 3", "1 2 3 0 0", "-1 100 100 0"} {
		if got, ok := parseCPUNote(text); ok {
			t.Errorf("parseCPUNote(%q) accepted as %+v, want rejected", text, got)
		}
	}
}

// containers adds two child cgroups to the pod of a tree, one with a limit.
func (f *tree) containers() {
	f.t.Helper()
	for name, max := range map[string]string{"limited": "300 1000\n", "free": "max 1000\n"} {
		if err := os.Mkdir(f.file("pod", name), 0o755); err != nil {
			f.t.Fatal(err)
		}
		for file, text := range map[string]string{"cpu.max": max, "cpu.weight": "10000\n", "cgroup.procs": ""} {
			if err := os.WriteFile(f.file("pod/"+name, file), []byte(text), 0o600); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// The limits of the container cgroups are restored if the victim does not die: the kernel refused its kill late, and the runtime failed
// too.
func TestSurvivorHasItsContainerLimits(t *testing.T) {
	f, p, _ := limited(t)
	f.containers()
	k := newKiller(t, f.fs, "cgroup.kill,cpu")
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if s := step(t, v, "cpu"); s.N != 3 || s.Err != nil {
		t.Fatalf("step cpu = %+v, want N = 3 and no error", s)
	}
	if got := f.read("pod/limited", "cpu.max"); got != "max 1000" {
		t.Fatalf("cpu.max after the kill = %q, want max 1000", got)
	}
	v.Close()
	if s := step(t, v, stepRestored); s.Err != nil {
		t.Errorf("step cpu restored = %+v, want no error", s)
	}
	f.checkLimits()
}

// checkLimits checks that all limits have their first values and that no note is left.
func (f *tree) checkLimits() {
	f.t.Helper()
	for name, want := range map[string]string{"pod": "200 1000", "pod/limited": "300 1000", "pod/free": "max 1000"} {
		g, err := f.fs.Group(name)
		if err != nil {
			f.t.Fatal(err)
		}
		_, noted, err := g.Note(noteCPU)
		if got := f.read(name, "cpu.max"); got != want || noted || err != nil {
			f.t.Errorf("%s: cpu.max = %q, noted %v, %v, want %q and no note", name, got, noted, err, want)
		}
		g.Close()
	}
}

// The next start restores the container cgroups after a crash. An invalid note on one does not block the others.
func TestCrashLeavesNoContainerRaised(t *testing.T) {
	f, p, _ := limited(t)
	f.containers()
	for _, name := range []string{"pod", "pod/limited", "pod/free"} {
		g, err := f.fs.Group(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, raised, err := raiseCPU(g, make([]byte, 256)); !raised || err != nil {
			t.Fatalf("%s: raiseCPU = %v, %v, want raised", name, raised, err)
		}
		if name == "pod/free" {
			if err := g.SetNote(noteCPU, "x"); err != nil {
				t.Fatal(err)
			}
		}
		g.Close()
	}
	if _, err := Restore(f.fs, []string{p.Cgroup}); err == nil || !strings.Contains(err.Error(), "was not written by an agent") {
		t.Errorf("first Mend = %v, want an error about the invalid note", err)
	}
	if mended, err := Restore(f.fs, []string{p.Cgroup}); err != nil || len(mended) != 1 {
		t.Errorf("second Mend = %v, %v, want one cgroup", mended, err)
	}
	f.checkLimits()
}

// An older agent was replaced in the middle of a kill, and the start had no time for its notes. The next kill of the pod, which it
// survives, must not treat the raised limits as the former ones. A note that a container forges costs only itself.
func TestKillAfterOlderAgentRaisedLimits(t *testing.T) {
	f, p, g := limited(t)
	f.containers()
	for name, note := range map[string]string{"pod": "200 1000 10000 0", "pod/limited": "300 1000 10000 0", "pod/free": "none"} {
		forge(t, filepath.Join(f.fs.Mount(), name), note)
		if err := os.WriteFile(f.file(name, "cpu.max"), []byte("max 1000\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := newKiller(t, f.fs, "cgroup.kill,cpu")
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	step(t, v, "cpu")
	v.Close()
	if s := step(t, v, stepRestored); s.Err != nil {
		t.Errorf("step cpu restored = %+v, want no error", s)
	}
	f.checkLimits()
	if _, noted, err := g.Note(formerCPU); noted || err != nil {
		t.Errorf("former note present = %v, %v, want false", noted, err)
	}
}

// A weight raised by an older agent comes from its note too; a setting that is not raised is its own former value.
func TestWeightRaisedByOlderAgent(t *testing.T) {
	for _, c := range []struct{ max, weight, before string }{
		{"max 1000\n", "10000\n", "100 1000 79 0"}, {"200 1000\n", "10000\n", "200 1000 79 0"}, {"max 1000\n", "50\n", "100 1000 50 0"},
	} {
		f := newTree(t)
		f.pod("pod", map[string]string{"cpu.max": c.max, "cpu.weight": c.weight})
		g, err := f.fs.Group("pod")
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		forge(t, filepath.Join(f.fs.Mount(), "pod"), "100 1000 79 0")
		before, _, err := raiseCPU(g, make([]byte, 256))
		if text, _, noteErr := g.Note(noteCPU); err != nil || noteErr != nil || cpuNote(before) != c.before || text != c.before {
			t.Errorf("%q, %q: former settings = %q, noted %q, %v, %v, want %q", c.max, c.weight, cpuNote(before), text, err, noteErr, c.before)
		}
	}
}

// After a failed kill the former note counts if it is valid; an invalid one is skipped.
func TestValidFormerNoteIsRead(t *testing.T) {
	for text, want := range map[string]bool{"none": false, "200 1000 79 0": true} {
		f, _, g := limited(t)
		forge(t, filepath.Join(f.fs.Mount(), "pod"), text)
		if got, noted, err := trustedNote(g); noted != want || noted && got != text || err != nil {
			t.Errorf("trustedNote with former note %q = %q, %v, %v, want valid: %v", text, got, noted, err, want)
		}
	}
}

// If the child cgroups cannot be listed, the note of the pod's cgroup stays for the next start.
func TestRestoreWithoutDescriptors(t *testing.T) {
	f := newTree(t)
	f.pod("pod", nil)
	f.pod("pod/container", nil)
	g, err := f.fs.Group("pod")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	withoutDescriptors(t, func() {
		if err := restoreBelow(g, time.Now().Add(time.Minute), trustedNote, make([]byte, 256)); err == nil {
			t.Error("restore = nil, want an error: no child was read")
		}
	})
}
