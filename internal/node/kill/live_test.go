package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// livePod makes a pod's cgroup with containers below it, with the cpu and memory controllers, in the guest.
func livePod(t *testing.T, containers ...string) (fs *cgroup.FS, p *stats.PodStats, top string) {
	t.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("takes a node to try things on: make e2e RUN=LiveTests")
	}
	fs, err := cgroup.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	name := "jettison-live-" + strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")
	top = filepath.Join(fs.Mount(), name)
	set(t, fs.Mount()+"/cgroup.subtree_control", "+cpu +memory +pids")
	mkdir(t, top)
	set(t, top+"/cgroup.subtree_control", "+cpu +memory +pids")
	for _, c := range containers {
		mkdir(t, filepath.Join(top, c))
	}
	return fs, &stats.PodStats{PodRef: stats.PodReference{UID: "u"}, Cgroup: name}, top
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mkdir(dir, 0o755); err != nil {
		t.Fatal(dir, err)
	}
	t.Cleanup(func() { tidy(dir) })
}

func set(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// hog starts a process that takes memory in a cgroup.
func hog(t *testing.T, dir string, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	v, err := startVictim(ctx, dir, strconv.Itoa(size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.end)
}

// spare gives this process as much CPU as the spinner: the victim is to be starved, not who kills it. An agent that is starved itself
// hands the victim to its threads so late that it may be dead by then.
func spare(t *testing.T) {
	t.Helper()
	_, own, ok := strings.Cut(get(t, "/proc/self/cgroup"), "0::/")
	if !ok {
		t.Fatal("/proc/self/cgroup names no cgroup v2")
	}
	const mount = "/sys/fs/cgroup/"
	mkdir(t, mount+"jettison-live-self")
	set(t, mount+"jettison-live-self/cpu.weight", "10000")
	set(t, mount+"jettison-live-self/cgroup.procs", "0")
	t.Cleanup(func() { set(t, mount+own+"/cgroup.procs", "0") })
}

// spin keeps every CPU busy beside the victim.
func spin(t *testing.T) {
	t.Helper()
	spare(t)
	dir := "/sys/fs/cgroup/jettison-live-spin"
	mkdir(t, dir)
	set(t, dir+"/cpu.weight", "10000")
	for range runtime.NumCPU() + 1 {
		start(t, dir, "/bin/sh", "-c", "while :; do :; done")
	}
}

// anon is what memory.stat says of a cgroup's anonymous memory.
func anon(t *testing.T, dir string) uint64 {
	t.Helper()
	for line := range strings.Lines(get(t, dir+"/memory.stat")) {
		if v, ok := strings.CutPrefix(line, "anon "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no anon")
	return 0
}

// A victim that gets no CPU time: the memory of its processes is freed by us, and it is let die.
func TestLiveStarvedVictims(t *testing.T) {
	const size = 96 << 20
	for _, starve := range []struct{ name, file, value string }{{"weight", "cpu.weight", "1"}, {"quota", "cpu.max", "1000 100000"}} {
		for _, rungs := range []string{"cgroup.kill", "cgroup.kill,cpu", "cgroup.kill,mrelease", "cgroup.kill,cpu,mrelease"} {
			if starve.name == "weight" && !strings.Contains(rungs, "cpu") {
				continue // it dies after 40 s, or never: without CPU nobody does
			}
			t.Run(starve.name+"-"+rungs, func(t *testing.T) {
				fs, p, top := livePod(t, "a", "b")
				hog(t, top+"/a", size)
				hog(t, top+"/b", size)
				spin(t)
				set(t, top+"/"+starve.file, starve.value)
				set(t, top+"/a/"+starve.file, starve.value)
				k := newKiller(t, fs, rungs)
				v, err := k.Pin(p)
				if err != nil {
					t.Fatal(err)
				}
				defer v.Close()
				before := anon(t, top)
				if s := step(t, v, stepPin); before < 2*size || s.Err != nil {
					t.Fatalf("anon %d, %+v", before, s)
				}
				begin := time.Now()
				if err := v.Kill(); err != nil {
					t.Fatal(err)
				}
				for anon(t, top) > before/10 && time.Since(begin) < time.Minute {
					time.Sleep(time.Millisecond) // nothing tells when memory is back
				}
				back, left := time.Since(begin), anon(t, top)
				if k.ladder.has(CPU) {
					if s := step(t, v, "cpu"); s.Err != nil || s.N != 3 {
						t.Errorf("%+v", s)
					}
				}
				if k.ladder.has(Mrelease) {
					if s := step(t, v, "mrelease"); s.Err != nil {
						t.Errorf("%+v", s)
					}
				}
				if k.ladder.has(CPU|Mrelease) && left > before/10 {
					t.Errorf("%d of %d bytes of anonymous memory are left", left, before)
				}
				err = v.WaitEmpty(t.Context(), time.Minute)
				t.Logf("%s: memory back after %v, empty after %v (%v)%s", rungs, back.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), err, told(v))
				if k.ladder.has(CPU) {
					if got := get(t, top+"/"+starve.file); err != nil || got != starve.value {
						t.Errorf("%s was not restored: %q, %v", starve.file, got, err)
					}
					if s := step(t, v, "cpu restored"); s.Err != nil {
						t.Errorf("%+v", s)
					}
					if got := get(t, top+"/a/"+starve.file); got != "max 100000" && got != "10000" {
						t.Errorf("the container still has %s %s", starve.file, got)
					}
				}
			})
		}
	}
}

// told is the steps, each with its time after the first.
func told(v *Victim) string {
	var b strings.Builder
	steps := v.Steps()
	for _, s := range steps {
		fmt.Fprintf(&b, "; %s +%v n=%d %v", s.Name, (s.At - steps[0].At).Round(10*time.Microsecond), s.N, s.Err)
	}
	return b.String()
}

// More processes than have pidfds: each is killed, each is looked for.
func TestLive500Processes(t *testing.T) {
	for _, rungs := range []string{"", "pidfd,cpu,mrelease"} {
		fs, p, top := livePod(t, "a")
		start(t, top+"/a", "/bin/sh", "-c", "i=0; while [ $i -lt 500 ]; do sleep 600 & i=$((i+1)); done; wait")
		waitProcs(t, top+"/a", 500)
		v, err := newKiller(t, fs, rungs).Pin(p)
		if err != nil {
			t.Fatal(err)
		}
		err = v.Kill()
		for tries := 0; tries < 10 && errors.Is(err, os.ErrDeadlineExceeded); tries++ {
			err = v.Kill() // an emulated CPU that others use, too, may need longer than the agent's loop would wait
		}
		if err := errors.Join(err, v.WaitEmpty(t.Context(), time.Minute)); err != nil {
			t.Error(err)
		}
		if s := step(t, v, "mrelease"); s.Err != nil {
			t.Errorf("%+v", s)
		}
		t.Log(told(v))
		v.Close()
		tidy(top + "/a")
		tidy(top)
	}
}

// An idle group has no weight until it is idle no more; it is again when nobody is left.
func TestLiveIdleVictim(t *testing.T) {
	fs, p, top := livePod(t, "a")
	hog(t, top+"/a", 1<<20)
	set(t, top+"/cpu.idle", "1")
	g, err := fs.Group(p.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	buf := make([]byte, 256)
	before, err := g.CPUSettings(buf)
	if err != nil || !before.Idle {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := g.RaiseCPU(); err != nil || get(t, top+"/cpu.weight") != "10000" {
		t.Errorf("%v, weight %s", err, get(t, top+"/cpu.weight"))
	}
	if err := g.RestoreCPU(before, buf); err != nil || get(t, top+"/cpu.idle") != "1" {
		t.Errorf("%v, idle %s", err, get(t, top+"/cpu.idle"))
	}
	// What somebody else has set meanwhile stays.
	if err := g.RaiseCPU(); err != nil {
		t.Fatal(err)
	}
	set(t, top+"/cpu.weight", "77")
	set(t, top+"/cpu.max", "5000 50000")
	before.Max = cgroup.CPUMax{Quota: time.Millisecond, Period: 100 * time.Millisecond}
	if err := g.RestoreCPU(before, buf); err != nil || get(t, top+"/cpu.weight") != "77" || get(t, top+"/cpu.max") != "5000 50000" {
		t.Errorf("%v, %s, %s", err, get(t, top+"/cpu.weight"), get(t, top+"/cpu.max"))
	}
}

func TestLiveSelfTest(t *testing.T) {
	fs, p, _ := livePod(t, "a")
	begin := time.Now()
	r := SelfTest(context.Background(), fs, p.Cgroup)
	t.Log(time.Since(begin), r)
	for _, rung := range r.Rungs {
		if rung.Outcome != Works {
			t.Errorf("%+v", rung)
		}
	}
	if left := leftovers(t, fs, r.Where); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What a pod has read over and over counts as used, and stays after its death until it is dropped.
func TestLiveDropCache(t *testing.T) {
	fs, p, top := livePod(t, "c")
	const size = 64 << 20
	folder, err := os.MkdirTemp(".", "cache") // not /tmp, which may be memory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "file")
	hog(t, top+"/c", 1<<20)
	own := strconv.Itoa(os.Getpid())
	set(t, top+"/c/cgroup.procs", own)
	text := make([]byte, size)
	err = os.WriteFile(file, text, 0o600)
	for range 3 {
		if err == nil {
			_, err = os.ReadFile(file)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	set(t, fs.Mount()+"/cgroup.procs", own)
	v, err := Pin(fs, p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), waitLimit); err != nil {
		t.Fatal(err)
	}
	tidy(filepath.Join(top, "c")) // as a runtime does at once
	began := time.Now()
	took := v.DropCache(t.Context(), func() bool { return false })
	var left cgroup.MemoryStat
	if err := v.group.wait.MemoryStat(make([]byte, 8<<10), &left); err != nil {
		t.Fatal(err)
	}
	if cache := left.File - left.Shmem; took < size/2 || cache > size/8 {
		t.Errorf("took %d MiB in %v, %d are left", took>>20, time.Since(began), cache>>20)
	}
	t.Logf("took %d MiB in %v", took>>20, time.Since(began))
}

// On a real hierarchy a note is left where the owner of a container's cgroup cannot leave one, and is gone once all is put back.
func TestLiveForgedNotes(t *testing.T) {
	fs, p, _ := livePod(t, "c")
	for _, name := range []string{p.Cgroup, p.Cgroup + "/c"} {
		dir := filepath.Join(fs.Mount(), name)
		set(t, dir+"/cpu.max", "20000 100000")
		if err := unix.Setxattr(dir, "user.jettison.cpu", []byte("max 100000 10000 0"), 0); err != nil {
			t.Fatal(err)
		}
		g, err := fs.Group(name)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 256)
		before, raised, err := raiseCPU(g, buf)
		if got := get(t, dir+"/cpu.max"); !raised || err != nil || got != "max 100000" {
			t.Errorf("%s: raised %v, %v: %s", name, raised, err, got)
		}
		if _, noted, err := g.Note(noteCPU); !noted || err != nil {
			t.Errorf("%s: not noted: %v", name, err)
		}
		if err := restoreCPU(g, before, buf); err != nil {
			t.Error(err)
		}
		_, noted, err := g.Note(noteCPU)
		if got := get(t, dir+"/cpu.max"); got != "20000 100000" || noted || err != nil {
			t.Errorf("%s: %s is left, noted %v, %v", name, got, noted, err)
		}
		g.Close()
	}
}
