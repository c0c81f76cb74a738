package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child creates a cgroup below another one.
func child(t testing.TB, fs *FS, parent *Group, name string) *Group {
	t.Helper()
	path := filepath.Join(parent.path, name)
	if err := unix.Mkdir(filepath.Join(fs.Mount(), path), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Rmdir(filepath.Join(fs.Mount(), path)) })
	g, err := fs.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// remove removes a cgroup, as soon as the kernel allows it.
func remove(t testing.TB, fs *FS, g *Group) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := unix.Rmdir(filepath.Join(fs.Mount(), g.path))
		if err == nil {
			return
		}
		if err != unix.EBUSY || time.Now().After(deadline) { // a reaped process may count for a moment
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// Each change causes a wake, not only the first one; adding a group causes none.
func TestLiveWatchCgroupEvents(t *testing.T) {
	fs, parent := live(t)
	g := child(t, fs, parent, "pod")
	fd := eventfd(t)
	dir, err := os.Open(filepath.Join(fs.Mount(), g.path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	w := watching(t)
	got, err := w.Add("uid", g, Watch{Events: CgroupEventsChanged})
	if err != nil || got != CgroupEventsChanged {
		t.Fatalf("Add returned events %v, error %v", got, err)
	}
	if again, err := w.Add("uid", g, Watch{Events: CgroupEventsChanged}); again != got || err != nil {
		t.Errorf("second Add of the group returned %v, error %v", again, err)
	}
	if files, _ := held(w); files != 1 {
		t.Errorf("watcher holds %d files after Add", files)
	}
	if err := w.AddFile("end", fd); err != nil {
		t.Fatal(err)
	}
	signal(t, fd)
	<-w.Wakes()
	var wake Wake
	w.Take(&wake)
	if wake.What != PIDsEventsChanged && wake.What != PIDsEventsChanged|Refused { // a refused priority
		t.Errorf("unexpected wake by events %v", wake.What)
	}
	wake.What = 0
	for range 3 {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, w, "uid", CgroupEventsChanged) // populated
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		await(t, w, "uid", CgroupEventsChanged) // and not any more
		_ = cmd.Wait()
	}
	// A reported event is not reported again.
	for tries := 0; wake.What != PIDsEventsChanged; tries++ {
		if tries == 100 {
			t.Fatalf("event reported again, wake by %v", wake.What)
		}
		signal(t, fd)
		for wake.What = 0; wake.What&PIDsEventsChanged == 0; {
			<-w.Wakes()
			w.Take(&wake)
		}
	}
	remove(t, fs, g)
	if _, err := w.Add("other", g, Watch{Events: CgroupEventsChanged}); !errors.Is(err, ErrVanished) {
		t.Errorf("Add of a removed group: error %v, want ErrVanished", err)
	}
	w.Keep(func(key string) bool {
		if key != "uid" {
			t.Errorf("Keep called wanted with key %q", key)
		}
		return false
	})
	if files, _ := held(w); files != 1 || w.Watches("uid", g.ID()) {
		t.Errorf("watcher still holds %d files", files)
	}
}

// A trigger fires when tasks stall, with any window that this process may use, and ends with
// its cgroup.
func TestLiveWatchTrigger(t *testing.T) {
	fs, parent := live(t)
	g := child(t, fs, parent, "pod")
	if _, err := pressure(g, CPU, make([]byte, 1024)); err != nil {
		t.Skip("no pressure on this kernel, the virtual machine's run of this test covers it (make e2e RUN=LiveTests): ", err)
	}
	w := watching(t, keepPriority)
	got, err := w.Add("uid", g, Watch{Triggers: []Trigger{
		{CPU, false, 50 * time.Millisecond, 500 * time.Millisecond}, {Memory, true, 50 * time.Millisecond, 700 * time.Millisecond},
	}})
	if err != nil || got&CPUPressed == 0 {
		t.Fatalf("Add with a trigger returned %v, error %v, refusals %q", got, err, w.Refusals())
	}
	// These windows need CAP_SYS_RESOURCE; without it one refusal is reported.
	for i, err := range w.Refusals() {
		t.Log(err)
		if i > 0 {
			t.Error("refusal was reported twice, want once")
		}
	}
	if got, err := w.AddNode("/proc", []Trigger{{CPU, false, 20 * time.Millisecond, 2 * time.Second}}); err != nil || got != CPUPressed {
		t.Errorf("AddNode returned %v, error %v, refusals %q", got, err, w.Refusals())
	}
	dir, err := os.Open(filepath.Join(fs.Mount(), g.path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var spinners []*exec.Cmd
	for range 2*runtime.NumCPU() + 2 {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		spinners = append(spinners, cmd)
	}
	await(t, w, "uid", CPUPressed)
	await(t, w, nodeKey, CPUPressed)
	for _, cmd := range spinners {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	remove(t, fs, g)
	await(t, w, "uid", Ended)
}

// memory.events reports limits that are hit, memory.events.local those of the cgroup itself,
// and pids.events rejected forks.
func TestLiveWatchLimits(t *testing.T) {
	fs, parent := live(t)
	enable := func(path string) {
		f := filepath.Join(fs.Mount(), path, "cgroup.subtree_control")
		for _, c := range []string{"+memory", "+pids"} {
			_ = os.WriteFile(f, []byte(c), 0) // a missing controller shows below
		}
	}
	enable("")
	enable(parent.path)
	g := child(t, fs, parent, "pod")
	if g.has("memory.high") != Yes || g.has("pids.max") != Yes {
		t.Skip("no memory and pids controllers here: the virtual machine's scenarios cover this")
	}
	w := watching(t)
	want := MemoryEventsChanged | MemoryEventsLocalChanged | PIDsEventsChanged | CgroupEventsChanged
	if got, err := w.Add("uid", g, Watch{Events: want}); got != want || err != nil {
		t.Fatalf("Add with limits returned events %v, error %v", got, err)
	}
	for file, value := range map[string]string{"memory.high": "8388608", "pids.max": "3"} {
		if err := g.write(file, value); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(filepath.Join(fs.Mount(), g.path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	run := func(script string, want WatchEvents) {
		t.Helper()
		cmd := exec.Command("sh", "-c", script)
		cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, w, "uid", want)
		if err := kill(g); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	}
	run("exec dd if=/dev/zero of=/dev/null bs=64M count=1", MemoryEventsChanged|MemoryEventsLocalChanged)
	run("sleep 60 & sleep 60 & sleep 60 & sleep 60 & wait", PIDsEventsChanged)
}

// Cgroups that are created and removed by the hundred while they are watched cause no error
// except ErrVanished, and leave no descriptor. Without triggers: see Trigger.
func TestLiveWatchChurn(t *testing.T) {
	fs, parent := live(t)
	w := watching(t)
	const workers, rounds = 4, 100
	var wg sync.WaitGroup
	start := time.Now()
	for worker := range workers {
		wg.Go(func() {
			for i := range rounds {
				name := filepath.Join(parent.path, fmt.Sprintf("pod%d-%d", worker, i%5))
				dir := filepath.Join(fs.Mount(), name)
				if err := unix.Mkdir(dir, 0o755); err != nil {
					t.Error(err)
					return
				}
				gone := make(chan struct{})
				go func() { // it vanishes while it is added
					_ = unix.Rmdir(dir)
					close(gone)
				}()
				g, err := fs.Group(name)
				if err == nil {
					_, err = w.Add(fmt.Sprint(worker), g, Watch{Events: CgroupEventsChanged | MemoryEventsChanged | PIDsEventsChanged})
					g.Close()
				}
				if err != nil && !errors.Is(err, ErrVanished) {
					t.Error(err)
				}
				<-gone
			}
		})
	}
	wg.Wait()
	t.Logf("%d cgroups in %v", workers*rounds, time.Since(start))
	w.Keep(func(string) bool { return false })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files != 0 || len(w.groups) != 0 {
		t.Errorf("watcher still holds %d files and %d keys", w.files, len(w.groups))
	}
	if len(w.sources) > workers*8 {
		t.Errorf("%d source numbers in use: free numbers are not reused", len(w.sources))
	}
}
