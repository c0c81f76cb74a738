package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/internal/base/race"
)

// watching runs a Watcher until the test ends, and then checks that it left nothing open.
func watching(t testing.TB, set ...func(*Watcher)) *Watcher {
	t.Helper()
	before, ignore := openFiles(t), goleak.IgnoreCurrent()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range set {
		set(w)
	}
	done := make(chan error, 1)
	go func() { done <- w.Wait() }()
	t.Cleanup(func() {
		w.Close()
		if err := <-done; err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("Wait returned unexpected error: %v", err)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d files open after Close, %d before", after, before)
		}
		goleak.VerifyNone(t, ignore)
	})
	return w
}

// held returns the number of files and keys of a running Watcher.
func held(w *Watcher) (files, keys int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files, len(w.groups)
}

// keepPriority makes the waiting thread run with ordinary priority.
func keepPriority(w *Watcher) { w.keepPriority = true }

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// eventfd returns a descriptor that becomes readable when signal is called.
func eventfd(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func signal(t testing.TB, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
}

// await takes wakes until one has all of what for the key, and returns all events of the key on
// the way.
func await(t testing.TB, w *Watcher, key string, what WatchEvents) WatchEvents {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	var got WatchEvents
	var wake Wake
	for {
		select {
		case <-w.Wakes():
			w.Take(&wake)
			for _, k := range wake.Keys[:wake.N] {
				if k.Key == key {
					got |= k.What
				}
			}
			if got&what == what {
				return got
			}
		case <-timer.C:
			t.Fatalf("events of key %q = %v, want %v", key, got, what)
		}
	}
}

// 10,000 events without a Take are one wake.
func TestABurstIsOneWake(t *testing.T) {
	w := watching(t, keepPriority)
	groups := make([]watched, 300)
	for i := range groups {
		groups[i].key = fmt.Sprint("pod", i)
	}
	now := time.Now()
	for i := range 10_000 {
		w.mu.Lock()
		w.slot.add(now.Add(time.Duration(i)), &groups[i%len(groups)], MemoryEventsChanged<<(i%2))
		w.notify()
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.slot.add(now, &groups[200], PIDsEventsChanged) // the wake has no room for it
	w.mu.Unlock()
	if n := len(w.Wakes()); n != 1 {
		t.Fatalf("events caused %d wakes, want one", n)
	}
	<-w.Wakes()
	var wake Wake
	if !w.Take(&wake) || wake.Events != 10_001 || wake.N != maxWoken || !wake.Overflow || !wake.First.Equal(now) {
		t.Errorf("wake has %d events, %d keys, overflow %v, first after %v", wake.Events, wake.N, wake.Overflow, wake.First.Sub(now))
	}
	if wake.What != MemoryEventsChanged|MemoryEventsLocalChanged|PIDsEventsChanged || wake.Keys[3] != (KeyEvents{"pod3", MemoryEventsLocalChanged}) ||
		wake.Keys[0] != (KeyEvents{"pod0", MemoryEventsChanged}) {
		t.Errorf("wake has events %v, first keys %+v", wake.What, wake.Keys[:4])
	}
	if w.Take(&wake) || wake.N != 0 || wake.What != 0 || wake.Keys[0] != (KeyEvents{}) || len(w.Wakes()) != 0 {
		t.Errorf("second Take returned events: %+v", wake)
	}
	w.mu.Lock()
	w.slot.add(now, &groups[299], Ended) // it did not fit into the previous wake
	w.slot.add(now, nil, Refused)
	w.mu.Unlock()
	if !w.Take(&wake) || wake.N != 1 || wake.Keys[0] != (KeyEvents{"pod299", Ended}) || wake.What != Ended|Refused || wake.Overflow {
		t.Errorf("unexpected content of the next wake: %+v", wake)
	}
}

// The same through the kernel: while the loop is busy with one look, 10,000 events become one
// more look; and a loop that is never busy looks at most once a millisecond.
func TestABurstThroughTheKernelCostsFewLooks(t *testing.T) {
	var fds [50]int
	for i := range fds {
		fds[i] = eventfd(t)
	}
	w := watching(t)
	for i, fd := range fds {
		if err := w.AddFile(fmt.Sprint(i), fd); err != nil {
			t.Fatal(err)
		}
	}
	burst := func() {
		for i := range 10_000 {
			signal(t, fds[i%len(fds)])
		}
	}
	signal(t, fds[0])
	await(t, w, "0", PIDsEventsChanged) // and the loop is busy with that
	burst()
	last := eventfd(t)
	if err := w.AddFile("last", last); err != nil {
		t.Fatal(err)
	}
	signal(t, last)
	var wake Wake
	seen, busy := map[string]bool{}, 0
	for !seen["last"] {
		<-w.Wakes()
		busy++
		w.Take(&wake)
		for _, k := range wake.Keys[:wake.N] {
			seen[k.Key] = true
		}
	}
	if busy > 3 || len(seen) != len(fds)+1 { // the pending wake, a round in progress, the last
		t.Errorf("busy loop took %d looks at %d keys", busy, len(seen))
	}

	start, looks, events, done := time.Now(), 0, uint64(0), make(chan struct{})
	go func() {
		burst()
		close(done)
	}()
	for running := true; running; {
		select {
		case <-w.Wakes():
			w.Take(&wake)
			looks++
			events += wake.Events
		case <-done:
			running = false
		}
	}
	elapsed := time.Since(start)
	if most := int(elapsed/pace) + 3; looks > most {
		t.Errorf("%d looks in %v, want %d at most", looks, elapsed, most)
	}
	t.Logf("10,000 events in %v: %d seen, %d looks", elapsed, events, looks)
}

// Neither a round of the thread nor a Take allocates.
func TestWakingDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	file := filepath.Join(t.TempDir(), "memory.events")
	if err := os.WriteFile(file, []byte("low 0\nhigh 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var events [100]unix.EpollEvent
	for i := range events {
		of := &watched{key: fmt.Sprint(i)}
		w.sources = append(w.sources, source{fd: fd, kind: MemoryEventsChanged, of: of, rearm: true})
		of.sources = append(of.sources, int32(i))
		events[i] = unix.EpollEvent{Fd: int32(i), Events: unix.EPOLLPRI | unix.EPOLLERR}
	}
	buf, now, dead := make([]byte, 4096), time.Now(), []int(nil)
	var wake Wake
	if n := testing.AllocsPerRun(100, func() {
		dead, _ = w.round(now, events[:], buf, dead[:0])
		if !w.Take(&wake) {
			t.Error("Take returned no event in the loop")
		}
	}); n != 0 {
		t.Errorf("a round and Take made %v allocations, want 0", n)
	}
}

// A late event of a removed source is dropped, even if its number is in use again.
func TestALateEventIsNotTheSuccessors(t *testing.T) {
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd := eventfd(t)
	add := func(key string) {
		t.Helper()
		if err := w.AddFile(key, fd); err != nil {
			t.Fatal(err)
		}
	}
	add("old")
	late := []unix.EpollEvent{{Fd: 0, Events: unix.EPOLLIN}, {Fd: 17, Events: unix.EPOLLIN}, {Fd: -1}}
	w.Remove("old")
	w.Remove("old")
	w.round(time.Now(), late, nil, nil)
	add("new")
	w.round(time.Now(), late, nil, nil)
	var wake Wake
	if w.Take(&wake) {
		t.Errorf("late event woke keys %+v, want none", wake.Keys[:wake.N])
	}
	late[0].Pad = 1
	w.round(time.Now(), late, nil, nil)
	if !w.Take(&wake) || wake.Keys[0] != (KeyEvents{"new", PIDsEventsChanged}) {
		t.Errorf("own event of the new source is missing: %+v", wake.Keys[0])
	}
}

// A source is replaced under its key, and its end is reported.
func TestASourceThatEnds(t *testing.T) {
	w := watching(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{eventfd(t), pipe[1]} {
		if err := w.AddFile("uid", fd); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := held(w); files != 1 {
		t.Errorf("watcher holds %d files after the end", files)
	}
	unix.Close(pipe[1])
	unix.Close(pipe[0])
	if got := await(t, w, "uid", Ended); got != Ended {
		t.Error(got)
	}
}

func TestWatcherIsOver(t *testing.T) {
	fd := eventfd(t)
	w := watching(t)
	if err := w.AddFile("x", fd); err != nil {
		t.Fatal(err)
	}
	signal(t, fd)
	await(t, w, "x", PIDsEventsChanged)
	if err := w.Wait(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a second Wait returned error %v", err)
	}
	w.Close()
	w.Close()
	if err := w.AddFile("y", fd); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Add after Close: error %v, want os.ErrClosed", err)
	}
	w.Remove("x")
	w.Keep(func(string) bool { return false })
	if w.Watches("x", ID{}) {
		t.Error("key is still watched after Close")
	}

	never := watching(t)
	never.Close() // maybe before its Wait began
}

// With the file bound or the process limit reached, sources are left out and one refusal is
// reported.
func TestNoMoreDescriptors(t *testing.T) {
	for name, most := range map[string]int{"bound": 3, "process": maxFiles} {
		t.Run(name, func(t *testing.T) {
			fs := tree(t, map[string]string{"a/cgroup.procs": "", "a/cgroup.events": "populated 0\n", "b/cgroup.procs": ""})
			a, b := group(t, fs, "a"), group(t, fs, "b")
			var fds [5]int
			for i := range fds {
				fds[i] = eventfd(t)
			}
			w := watching(t, keepPriority, func(w *Watcher) { w.fileLimit = most })
			if name == "process" {
				fillDescriptors(t)
				for range 3 {
					w.Remove("a")
					if got, err := w.Add("a", a, Watch{Events: CgroupEventsChanged}); got != 0 || err != nil {
						t.Errorf("Add beyond the limit returned %v, error %v", got, err)
					}
				}
			} else {
				for i, fd := range fds {
					if err := w.AddFile(fmt.Sprint(i), fd); err != nil {
						t.Error(err)
					}
				}
			}
			refusals := w.Refusals()
			if len(refusals) != 1 || !strings.Contains(refusals[0].Error(), "files") {
				t.Errorf("refusals at the limit = %q, want one", refusals)
			}
			if again := w.Refusals(); again != nil {
				t.Errorf("refusal was reported again: %q", again)
			}
			if got, err := w.Add("b", b, Watch{Events: CgroupEventsChanged | MemoryEventsChanged}); got != 0 || err != nil {
				t.Errorf("Add of a group without event files: %v, error %v", got, err)
			}
			if !w.Watches("b", b.ID()) || w.Watches("b", a.ID()) || w.Watches("c", b.ID()) {
				t.Error("Watches reports wrong groups, want only b under key b")
			}
			if more := w.Refusals(); more != nil {
				t.Errorf("refusals after the first one: %q", more)
			}
		})
	}
}

// fillDescriptors uses up this process' descriptors until the test ends.
func fillDescriptors(t *testing.T) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	highest, err := unix.Dup(0) // the lowest that is free: all below are taken
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(highest)
	less := unix.Rlimit{Cur: uint64(highest), Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &less); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

func TestTriggers(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct{ stall, window, plainStall, plainWindow time.Duration }{
		{100 * ms, 1000 * ms, 200 * ms, 2000 * ms},
		{150 * ms, 500 * ms, 600 * ms, 2000 * ms},
		{300 * ms, 2000 * ms, 300 * ms, 2000 * ms},
		{300 * ms, 3000 * ms, 400 * ms, 4000 * ms},
		{10_000 * ms, 10_000 * ms, 10_000 * ms, 10_000 * ms},
		{time.Microsecond, 9999 * ms, time.Microsecond, 10_000 * ms},
	} {
		got := Trigger{Memory, true, c.stall, c.window}.plain()
		if got != (Trigger{Memory, true, c.plainStall, c.plainWindow}) || got.validate() != nil {
			t.Errorf("plain trigger for %v of %v = %v", c.stall, c.window, got)
		}
	}
	if text := (Trigger{Memory, false, 150 * ms, 1000 * ms}).String(); text != "memory: some 150000 1000000" {
		t.Errorf("Trigger.String = %q, want the kernel's format", text)
	}
	w := watching(t, keepPriority)
	for _, bad := range []Trigger{{}, {Memory, true, 0, 1000 * ms}, {Memory, true, 2000 * ms, 1000 * ms}, {Memory, true, ms, 499 * ms},
		{Memory, true, ms, 10_001 * ms}, {Resource(3), true, ms, 1000 * ms}, {Resource(-1), true, ms, 1000 * ms}, {IO, true, -ms, 1000 * ms}} {
		if _, err := w.AddNode("/proc", []Trigger{bad}); !errors.Is(err, errTrigger) {
			t.Errorf("invalid trigger %v: error %v, want errTrigger", bad, err)
		}
	}
	if got, err := w.AddNode(t.TempDir(), []Trigger{{Memory, true, ms, 1000 * ms}, {IO, true, ms, 1000 * ms}}); got != 0 || err != nil {
		t.Errorf("AddNode without PSI: %v, error %v", got, err)
	}
	if refusals := w.Refusals(); len(refusals) != 2 || !errors.Is(refusals[0], os.ErrNotExist) || !strings.Contains(refusals[0].Error(), "psi=0") {
		t.Errorf("refusals without PSI = %q, want two", refusals)
	}
}
