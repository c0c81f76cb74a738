package openfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldUp returns a holder with pod a, which has processes with one file in /proc that blocks
// until release. They come before this process.
func heldUp(t *testing.T, file string, pids ...int) (h *holder, release func()) {
	h = newHolder(t, "a", "b")
	h.guard.timeout = 50 * time.Millisecond
	h.proc = t.TempDir()
	self := fmt.Sprint(os.Getpid())
	if err := os.Symlink("/proc/self", filepath.Join(h.proc, self)); err != nil {
		t.Fatal(err)
	}
	var fifos, all []string
	for _, pid := range pids {
		name := filepath.Join(h.proc, fmt.Sprint(pid), file)
		if err := os.MkdirAll(filepath.Join(h.proc, fmt.Sprint(pid), "task", fmt.Sprint(pid)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		fifos, all = append(fifos, name), append(all, fmt.Sprint(pid))
	}
	procs := filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs")
	if err := os.WriteFile(procs, []byte(strings.Join(append(all, self), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return h, func() {
		for _, name := range fifos {
			if f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // otherwise no call waits
				f.Close()
			}
		}
	}
}

// A process that holds its mmap_lock costs a moment: the rest of its pod and all others are
// searched, and the result is a lower bound. It costs no moment in the next look, and a pod
// with many such processes costs a few threads. All of them end.
func TestProcessThatHoldsALockDelaysNoLook(t *testing.T) {
	for _, file := range []string{"map_files", "io"} {
		h, release := heldUp(t, file, 1<<22+1, 1<<22+2, 1<<22+3)
		h.file("open", 8<<20)
		h.unlink("open")
		looked := make(chan Kept)
		look := func(uid string, before Kept) (u Kept) {
			t.Helper()
			go func() { looked <- h.Look(t.Context(), uid, "", nil, &before) }()
			select {
			case u = <-looked:
			case <-time.After(20 * time.Second):
				release()
				t.Fatalf("%s: the look at pod %s does not end", file, uid)
			}
			return u
		}
		a := look("a", Kept{})
		if u := a.byDevice[h.disk]; u.Bytes < 8<<20 || !u.Partial || !a.cut {
			t.Errorf("usage with blocked %s = %+v, cut %v", file, u, a.cut)
		}
		if n := len(h.guard.stuck); n != maxStuckOfPod {
			t.Errorf("blocked %s: %d threads wait, want %d", file, n, maxStuckOfPod)
		}
		h.guard.timeout = time.Hour // the next look waits for none
		look("a", a)
		h.Forget(map[string]bool{"b": true})
		if b := look("b", Kept{}); b.cut || b.byDevice[h.disk].Bytes < 8<<20 {
			t.Errorf("blocked %s: usage of another pod = %+v", file, b)
		}
		release()
		for deadline := time.Now().Add(20 * time.Second); ; {
			ended := true
			for _, w := range h.guard.stuck {
				ended = ended && w.ended.Load()
			}
			if ended {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(file, ": abandoned threads do not end")
			}
			release() // one had not opened it yet
			time.Sleep(time.Millisecond)
		}
		h.guard.close()
	}
}

// Pods that block the maximum number of threads cost each other their mappings, not the look:
// one more thread each.
func TestBlockedThreadsAreFew(t *testing.T) {
	g := guard{timeout: time.Millisecond}
	stop := make(chan struct{})
	const pods = 3 * maxStuck / maxStuckOfPod
	for pid := range pods * maxStuckOfPod {
		if g.do(fmt.Sprint(pid/maxStuckOfPod), pid, func() { <-stop }) == nil {
			t.Fatal("a blocked call returned without an error")
		}
	}
	if want := maxStuck + pods - maxStuck/maxStuckOfPod; len(g.stuck) != want {
		t.Errorf("%d threads are blocked, want %d", len(g.stuck), want)
	}
	if err := g.do("0", 1<<20, func() { t.Error("call was made for a blocked pod") }); err != errStuck {
		t.Error(err)
	}
	close(stop)
	g.all.Wait()
	g.timeout = time.Minute
	called := false
	if err := g.do("0", 1<<20, func() { called = true }); err != nil || !called || len(g.stuck) > 0 {
		t.Errorf("after the release: error %v, %d threads blocked", err, len(g.stuck))
	}
	g.close()
}

// Replicas of one owner that block calls do not prevent calls for a pod that blocks none.
func TestBlockingPodsDoNotAffectOthers(t *testing.T) {
	g := guard{timeout: 20 * time.Millisecond}
	never := make(chan struct{})
	for pod := range maxStuck {
		for pid := range maxStuckOfPod {
			if g.do(fmt.Sprint("replica", pod), 100*pod+pid+1, func() { <-never }) == nil {
				t.Fatal("a blocked call returned without an error")
			}
		}
	}
	g.timeout = time.Minute
	for pid, whose := range []string{"hog", "hog on disks", "replica0 on disks"} {
		called := false
		if err := g.do(whose, 9999+pid, func() { called = true }); err != nil || !called {
			t.Errorf("call for %s: error %v, made %v", whose, err, called)
		}
	}
	close(never)
	g.close()
}
