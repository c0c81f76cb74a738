package kill

import (
	"bufio"
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

// crashCommand is the hidden command by which tests start this program as one that crashes: it raises and restores the CPU limits of a
// cgroup, or freezes and thaws it, over and over until it is killed.
const crashCommand = "crash"

// beCrashing is that process. args: a mount, the path of a cgroup, and what it does there.
func beCrashing(args []string) {
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

// crash starts one and kills it at some time.
func crash(t *testing.T, mount, path, does string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", crashCommand, mount, path, does)
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
		t.Fatalf("it has not run: %v, %v", err, cmd.ProcessState)
	}
}

// limited is a pod in a tree of files with a CPU limit, whose notes work. (The files are shaped so that a write leaves what the kernel would.)
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

// Wherever a crash comes between the note and its removal, the next start finds out what there was before.
func TestACrashAtEachPoint(t *testing.T) {
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
		mended, err := Mend(f.fs, []string{"gone", p.Cgroup})
		if wants := n > 0 && n < len(steps); slices.Contains(mended, "pod") != wants || err != nil {
			t.Errorf("after %d steps: mended %v, %v", n, mended, err)
		}
		if got := f.read("pod", "cpu.max"); got != "200 1000" || n == 2 && raised != "max 1000" {
			t.Errorf("after %d steps: cpu.max %q, before that %q", n, got, raised)
		}
		if _, noted, err := g.Note(noteCPU); noted || err != nil {
			t.Errorf("after %d steps: the note stays, %v", n, err)
		}
	}
}

// The same with processes that are killed at any time.
func TestCrashesLeaveNothingRaised(t *testing.T) {
	f, _, g := limited(t)
	raised := 0
	for range 60 {
		crash(t, f.fs.Mount(), "pod", "cpu")
		if f.read("pod", "cpu.max") != "200 1000" {
			raised++
			if _, noted, err := g.Note(noteCPU); !noted || err != nil {
				t.Fatalf("raised and not noted: %v", err)
			}
		}
		if _, err := Mend(f.fs, []string{"pod"}); err != nil {
			t.Fatal(err)
		}
		if got := f.read("pod", "cpu.max"); got != "200 1000" {
			t.Fatalf("cpu.max %q", got)
		}
	}
	if raised == 0 {
		t.Error("no crash left it raised: this proves nothing")
	}
}

// Nor frozen, in this machine's hierarchy; what somebody else has frozen stays so.
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
		if _, err := Mend(fs, []string{p.Cgroup}); err != nil {
			t.Fatal(err)
		}
		if state() != "0" {
			t.Fatal("the pod is still frozen")
		}
	}
	if frozen == 0 {
		t.Error("no crash left it frozen: this proves nothing")
	}
	if err := os.WriteFile(file, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if mended, err := Mend(fs, []string{p.Cgroup}); len(mended) > 0 || err != nil || state() != "1" {
		t.Errorf("frozen by somebody else: mended %v, %v, now %s", mended, err, state())
	}
}

// A second attempt at the same pod, begun while the first one has raised it, restores what there was before both.
func TestTwoAttemptsAtOneCgroup(t *testing.T) {
	f, _, g := limited(t)
	buf := make([]byte, 256)
	first, _, err := raiseCPU(g, buf)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := raiseCPU(g, buf)
	if err != nil || second != first {
		t.Errorf("before the second attempt: %+v, want %+v, %v", second, first, err)
	}
	for _, before := range []cgroup.CPUSettings{second, first} {
		if err := restoreCPU(g, before, buf); err != nil {
			t.Error(err)
		}
	}
	if got := f.read("pod", "cpu.max"); got != "200 1000" {
		t.Errorf("cpu.max %q", got)
	}
}

// forge leaves a note as the owner of a cgroup's directory can.
func forge(t *testing.T, dir, text string) {
	t.Helper()
	if err := unix.Setxattr(dir, "user.jettison.cpu", []byte(text), 0); err != nil {
		t.Skip("no extended attributes of users here: ", err)
	}
}

// A container that says itself that it had no limit has it again after a kill that it survives.
func TestANoteThatAContainerForges(t *testing.T) {
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
		t.Errorf("%+v", s)
	}
	f.hasLimits()
}

// What an older agent has noted, and crashed, is put back once. One that is forged takes CPU time from who forges it at most.
func TestNotesOfAnOlderAgent(t *testing.T) {
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
			if mended, err := Mend(f.fs, []string{p.Cgroup}); err != nil || len(mended) != mends {
				t.Error(mended, err)
			}
		}
		if pod, below := f.read("pod", "cpu.max"), f.read("pod/limited", "cpu.max"); pod != want || below != "300 1000" {
			t.Errorf("%s: %s, and %s below", forged, pod, below)
		}
		if _, noted, err := g.Note(formerCPU); noted || err != nil {
			t.Errorf("%s: it is noted still, %v", forged, err)
		}
	}
	f, p, _ := limited(t)
	f.containers()
	for _, name := range []string{"pod", "pod/limited"} {
		forge(t, filepath.Join(f.fs.Mount(), name), "max 1000 10000 0")
	}
	if _, err := Mend(f.fs, []string{p.Cgroup}); err != nil {
		t.Error(err)
	}
	f.hasLimits()
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
			t.Errorf("%+v: noted %q, want %q", s, got, text)
		}
		if got, ok := parseCPUNote(text); !ok || got != s {
			t.Errorf("%q: read %+v, want %+v", text, got, s)
		}
	}
	for _, text := range []string{"", "- - - 0", "5000 0 100 0", "5000 100000 100001 0", "5000 100000 100 2", "a b c d", "1 2 3", "1 2 3 0 0", "-1 100 100 0"} {
		if got, ok := parseCPUNote(text); ok {
			t.Errorf("%q: read %+v", text, got)
		}
	}
}

// containers gives the pod of a tree two groups below it, one with a limit.
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

// What was raised in the cgroups of the containers is put back where the victim does not die: its kill was refused late, and the runtime
// failed, too.
func TestAVictimThatLivesOnHasTheLimitsOfItsContainers(t *testing.T) {
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
		t.Fatalf("%+v", s)
	}
	if got := f.read("pod/limited", "cpu.max"); got != "max 1000" {
		t.Fatalf("not raised: %q", got)
	}
	v.Close()
	if s := step(t, v, stepRestored); s.Err != nil {
		t.Errorf("%+v", s)
	}
	f.hasLimits()
}

// hasLimits holds that everything is as it was, and nothing noted.
func (f *tree) hasLimits() {
	f.t.Helper()
	for name, want := range map[string]string{"pod": "200 1000", "pod/limited": "300 1000", "pod/free": "max 1000"} {
		g, err := f.fs.Group(name)
		if err != nil {
			f.t.Fatal(err)
		}
		_, noted, err := g.Note(noteCPU)
		if got := f.read(name, "cpu.max"); got != want || noted || err != nil {
			f.t.Errorf("%s: cpu.max %q, want %q, noted %v, %v", name, got, want, noted, err)
		}
		g.Close()
	}
}

// The same after a crash: the next start finds them. One whose note is none of the agent's holds up no other.
func TestACrashLeavesNoContainerRaised(t *testing.T) {
	f, p, _ := limited(t)
	f.containers()
	for _, name := range []string{"pod", "pod/limited", "pod/free"} {
		g, err := f.fs.Group(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, raised, err := raiseCPU(g, make([]byte, 256)); !raised || err != nil {
			t.Fatal(raised, err)
		}
		if name == "pod/free" {
			if err := g.SetNote(noteCPU, "x"); err != nil {
				t.Fatal(err)
			}
		}
		g.Close()
	}
	if _, err := Mend(f.fs, []string{p.Cgroup}); err == nil || !strings.Contains(err.Error(), "none of the agent's") {
		t.Error(err)
	}
	if mended, err := Mend(f.fs, []string{p.Cgroup}); err != nil || len(mended) != 1 {
		t.Error(mended, err)
	}
	f.hasLimits()
}

// An older agent was replaced in the middle of a kill, and the start had no time for what it noted: the next kill of the same pod, which it
// survives, does not take what was raised then for what there was before. What a container forges there costs nobody but itself.
func TestAKillOfWhatAnOlderAgentHasRaised(t *testing.T) {
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
		t.Errorf("%+v", s)
	}
	f.hasLimits()
	if _, noted, err := g.Note(formerCPU); noted || err != nil {
		t.Errorf("it is noted still, %v", err)
	}
}

// A weight that an older agent has raised is not what there was before either; what is not raised is.
func TestAWeightThatAnOlderAgentHasRaised(t *testing.T) {
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
			t.Errorf("%q, %q: before %q, noted %q, %v, %v", c.max, c.weight, cpuNote(before), text, err, noteErr)
		}
	}
}

// After a kill that failed the former note counts where it may be an agent's: one that is not holds up nothing.
func TestTheFormerNoteIsReadWhereItIsSound(t *testing.T) {
	for text, want := range map[string]bool{"none": false, "200 1000 79 0": true} {
		f, _, g := limited(t)
		forge(t, filepath.Join(f.fs.Mount(), "pod"), text)
		if got, noted, err := sound(g); noted != want || noted && got != text || err != nil {
			t.Errorf("%q: %q, %v, %v", text, got, noted, err)
		}
	}
}
