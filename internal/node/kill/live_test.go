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

// livePod creates a pod cgroup with container cgroups and the cpu and memory controllers, in the test node.
func livePod(t *testing.T, containers ...string) (fs *cgroup.FS, p *stats.PodStats, top string) {
	t.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("needs a test node: make e2e RUN=LiveTests")
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

// hog starts a process that allocates memory in a cgroup.
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

// raiseSelf gives this process as much CPU as the spinner: the test starves the victim, not the killer. A starved agent queues the victim
// for its threads so late that it may be dead by then.
func raiseSelf(t *testing.T) {
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

// spin keeps every CPU busy while the victim runs.
func spin(t *testing.T) {
	t.Helper()
	raiseSelf(t)
	dir := "/sys/fs/cgroup/jettison-live-spin"
	mkdir(t, dir)
	set(t, dir+"/cpu.weight", "10000")
	for range runtime.NumCPU() + 1 {
		start(t, dir, "/bin/sh", "-c", "while :; do :; done")
	}
}

// anon returns the anonymous memory of a cgroup from memory.stat.
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
	t.Fatalf("no anon line in %s/memory.stat", dir)
	return 0
}

// A victim without CPU time: the agent frees the memory of its processes and gives them real-time priority. Its limits stay.
func TestLiveStarvedVictims(t *testing.T) {
	const size = 96 << 20
	for _, starve := range []struct{ name, file, value string }{{"weight", "cpu.weight", "1"}, {"quota", "cpu.max", "1000 100000"}} {
		for _, rungs := range []string{"cgroup.kill", "cgroup.kill,cpu", "cgroup.kill,mrelease", "cgroup.kill,cpu,mrelease"} {
			if starve.name == "weight" && !strings.Contains(rungs, "cpu") {
				continue // without CPU it dies after 40 s, or never
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
					t.Fatalf("anonymous memory before the kill = %d, want %d; step pin = %+v", before, 2*size, s)
				}
				begin := time.Now()
				if err := v.Kill(); err != nil {
					t.Fatal(err)
				}
				for anon(t, top) > before/10 && time.Since(begin) < time.Minute {
					time.Sleep(time.Millisecond) // no event reports that memory is free
				}
				back, left := time.Since(begin), anon(t, top)
				if k.ladder.has(CPU) {
					// with mrelease, processes may end before
					if s := step(t, v, "cpu"); s.Err != nil || s.N < 2 && !k.ladder.has(Mrelease) {
						t.Errorf("step cpu = %+v, want N >= 2 and no error", s)
					}
				}
				if k.ladder.has(Mrelease) {
					if s := step(t, v, "mrelease"); s.Err != nil {
						t.Errorf("step mrelease = %+v, want no error", s)
					}
				}
				if k.ladder.has(CPU|Mrelease) && left > before/10 {
					t.Errorf("%d of %d bytes of anonymous memory are left", left, before)
				}
				err = v.WaitEmpty(t.Context(), time.Minute)
				t.Logf("%s: memory back after %v, empty after %v (%v)%s", rungs, back.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), err, stepTimes(v))
				if k.ladder.has(CPU) {
					for _, dir := range []string{top, top + "/a"} {
						if got := get(t, dir+"/"+starve.file); err != nil || got != starve.value {
							t.Errorf("%s/%s after the kill = %q, %v, want %q", dir, starve.file, got, err, starve.value)
						}
					}
				}
			})
		}
	}
}

// stepTimes formats the steps, each with its time after the first.
func stepTimes(v *Victim) string {
	var b strings.Builder
	steps := v.Steps()
	for _, s := range steps {
		fmt.Fprintf(&b, "; %s +%v n=%d %v", s.Name, (s.At - steps[0].At).Round(10*time.Microsecond), s.N, s.Err)
	}
	return b.String()
}

// With more processes than pidfds, each process is found and killed.
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
			t.Errorf("step mrelease = %+v, want no error", s)
		}
		t.Log(stepTimes(v))
		v.Close()
		tidy(top + "/a")
		tidy(top)
	}
}

func TestLiveSelfTest(t *testing.T) {
	fs, p, _ := livePod(t, "a")
	begin := time.Now()
	r := SelfTest(context.Background(), fs, p.Cgroup)
	t.Log(time.Since(begin), r)
	for _, rung := range r.Steps {
		if rung.Outcome != Works {
			t.Errorf("self-test of step %s = %+v, want works", rung.Step, rung)
		}
	}
	if left := leftovers(t, fs, r.Where); len(left) > 0 {
		t.Errorf("scratch cgroups after the self-test = %v, want none", left)
	}
}

// Page cache that a pod has read repeatedly counts as used, and stays after its death until DropCache.
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
	tidy(filepath.Join(top, "c")) // as a runtime does after the death
	began := time.Now()
	took := v.DropCache(t.Context(), func() bool { return false })
	var left cgroup.MemoryStat
	if err := v.group.wait.MemoryStat(make([]byte, 8<<10), &left); err != nil {
		t.Fatal(err)
	}
	if cache := left.File - left.Shmem; took < size/2 || cache > size/8 {
		t.Errorf("freed %d MiB in %v with %d MiB left, want most freed", took>>20, time.Since(began), cache>>20)
	}
	t.Logf("freed %d MiB in %v", took>>20, time.Since(began))
}
