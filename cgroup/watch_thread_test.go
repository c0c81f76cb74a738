package cgroup

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The thread's priority is raised as far as permitted, denied requests are reported, and the
// thread is ordinary again afterwards.
func TestPriorityOfTheThread(t *testing.T) {
	done := make(chan struct{})
	go func() { // a separate thread, which ends with the goroutine
		defer close(done)
		runtime.LockOSThread()
		raised, refused := RaiseThread()
		attr, err := unix.SchedGetAttr(0, 0)
		switch {
		case err != nil:
			t.Error(err)
		case raised && len(refused) == 0 && attr.Policy != unix.SCHED_FIFO, len(refused) == 1 && attr.Nice != -20, raised == (len(refused) == 2):
			t.Errorf("thread raised %v, refused %v, attributes %+v", raised, refused, attr)
		}
		t.Logf("raised %v, refused %v", raised, refused)
		if err := LowerThread(0); raised && err != nil {
			t.Error(err)
		}
		if attr, err = unix.SchedGetAttr(0, 0); err != nil || attr.Policy != unix.SCHED_NORMAL || raised && attr.Nice != 0 {
			t.Errorf("attributes after LowerThread = %+v, error %v", attr, err)
		}
	}()
	<-done
}

// The kernel's psimon threads have the same priority and must get CPU time while a large process ends. Children of a thread that was
// raised by mistake are ordinary.
func TestPriorityOfDyingThread(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := RaiseDying(cmd.Process.Pid); err != nil {
		t.Skip("no right to set real-time priority: ", err)
	}
	attr, err := unix.SchedGetAttr(cmd.Process.Pid, 0)
	if err != nil || attr.Policy != unix.SCHED_RR || attr.Priority != 1 || attr.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0 {
		t.Errorf("attributes of a dying thread = %+v, error %v, want SCHED_RR, priority 1, reset on fork", attr, err)
	}
}

// Keys are added, removed and woken at random from several goroutines; no wake is lost
// permanently and no source is left.
func TestWatcherConcurrently(t *testing.T) {
	var fds [8]int
	for i := range fds {
		fds[i] = eventfd(t)
	}
	w := watching(t, keepPriority)
	done := make(chan struct{})
	for i, fd := range fds {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 300 {
				if err := w.AddFile(fmt.Sprint(i), fd); err != nil {
					t.Error(err)
				}
				_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
				if rand.IntN(2) == 0 {
					w.Remove(fmt.Sprint(i))
				}
			}
			_ = w.AddFile(fmt.Sprint(i), fd)
		}()
	}
	var wake Wake
	for left := len(fds); left > 0; {
		select {
		case <-done:
			left--
		case <-w.Wakes():
			w.Take(&wake)
		}
	}
	for i, fd := range fds {
		signal(t, fd)
		await(t, w, fmt.Sprint(i), PIDsEventsChanged)
	}
	if files, keys := held(w); files != len(fds) || keys != len(fds) {
		t.Errorf("watcher still holds %d files and %d keys", files, keys)
	}
}

// BenchmarkWake measures from the event to the loop that took it: write, epoll, channel, Take.
func BenchmarkWake(b *testing.B) {
	fd := eventfd(b)
	w, err := NewWatcher()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Wait() }()
	defer func() {
		w.Close()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	if err := w.AddFile("x", fd); err != nil {
		b.Fatal(err)
	}
	for _, between := range []time.Duration{0, 3 * pace} {
		b.Run("between="+between.String(), func(b *testing.B) {
			var wake Wake
			var sum, worst time.Duration
			b.ReportAllocs()
			for b.Loop() {
				time.Sleep(between)
				start := time.Now()
				signal(b, fd)
				<-w.Wakes()
				w.Take(&wake)
				took := time.Since(start)
				sum, worst = sum+took, max(worst, took)
			}
			b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N), "ns/wake")
			b.ReportMetric(float64(worst.Nanoseconds()), "ns/worst")
		})
	}
}
