package nri

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// A deadline applies to a peer that sends without pause as well as to a peer that sends nothing.
func TestDeadlineAppliesWhileDataIsAvailable(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	ours, theirs := &conn{fd: fds[0]}, &conn{fd: fds[1]}
	defer ours.close()
	defer theirs.close()
	_, err = theirs.Write([]byte("there is always more"))
	check(t, err)
	b := make([]byte, 5)
	if n, err := ours.Read(b); n != 5 || err != nil {
		t.Errorf("read without a deadline = %d bytes, error %v", n, err)
	}
	check(t, ours.SetReadDeadline(time.Now().Add(time.Hour)))
	if n, err := ours.Read(b); n != 5 || err != nil {
		t.Errorf("read before the deadline = %d bytes, error %v", n, err)
	}
	check(t, ours.SetReadDeadline(time.Now().Add(-time.Second)))
	if n, err := ours.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %d bytes, %v", n, err)
	}
}

// A thread with raised priority sleeps only if it has used more than its share of a CPU.
func TestCPUShare(t *testing.T) {
	var used, rested time.Duration
	s := &cpuShare{used: func() time.Duration { return used }, rest: func(d time.Duration) { rested += d }}
	for _, c := range []struct {
		elapsed, more time.Duration
		rests         bool
	}{
		{0, 0, false}, // the first question after long
		{window / 2, window / 2, false},
		{window, window / 4, false},
		{window, 100 * window, true}, // however long this test was interrupted
		{10 * window, window, false},
	} {
		if c.elapsed > 0 {
			s.since = time.Now().Add(-c.elapsed)
		}
		used, rested = used+c.more, 0
		if s.limit(); rested > 0 != c.rests || rested > window {
			t.Errorf("with %v of CPU time in %v it rests %v", c.more, c.elapsed, rested)
		}
		s.had = used
	}
	if threadTime() <= 0 {
		t.Error("a running thread has no CPU time")
	}
}

// A runtime that sends requests without pause gets answers, and the plugin leaves CPU time to
// others.
func TestRuntimeFloodsRequests(t *testing.T) {
	socket := socketIn(t)
	r := listen(t, socket)
	p, err := New(Options{Socket: socket, Thread: func() {}})
	check(t, err)
	began, rests := time.Now(), make(chan time.Duration, 1)
	if p.share == nil {
		t.Fatal("a thread with a priority has no CPU limit")
	}
	p.share = &cpuShare{used: func() time.Duration { return time.Since(began) }, rest: func(d time.Duration) {
		select {
		case rests <- d:
		default:
		}
	}}
	run(t, p)
	r.welcome()
	for {
		r.call("PostStartContainer", &api.PostStartContainerRequest{Pod: pod(1), Container: container(1, 1, 0)})
		select {
		case <-rests:
			return
		default:
		}
	}
}

// The plugin keeps only data that is not consumed yet, however messages are split into frames.
func TestFramesNeverEndWithAMessage(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	ours, theirs := &conn{fd: fds[0]}, &conn{fd: fds[1]}
	defer ours.close()
	defer theirs.close()
	w := newWire(ours)
	body := make([]byte, 10<<10)
	whole := rawMessage(1, typeRequest, body)
	const half = 100
	payload, most := whole[:half], 0
	for i := range 2000 {
		b := binary.BigEndian.AppendUint32(nil, pluginConn)
		b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
		_, err := theirs.Write(append(b, payload...))
		check(t, err)
		if i == 0 {
			payload = append(append([]byte(nil), whole[half:]...), whole[:half]...)
			continue
		}
		m, err := w.next(time.Time{})
		check(t, err)
		if len(m.body) != len(body) {
			t.Fatalf("message %d has a body of %d bytes", i, len(m.body))
		}
		most = max(most, cap(w.in[pluginConn].buf))
	}
	if most > 4*maxKeptBuffer {
		t.Errorf("buffered data = %d KiB, above the limit", most>>10)
	}
}

// A large message, such as a Synchronize of all pods, takes no memory after it was consumed: the next
// frame may come hours later.
func TestConsumedMessageIsFreed(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	ours, theirs := &conn{fd: fds[0]}, &conn{fd: fds[1]}
	defer ours.close()
	defer theirs.close()
	w := newWire(ours)
	whole := rawMessage(1, typeRequest, make([]byte, 1<<20))
	sent := make(chan error, 1)
	go func() {
		b := binary.BigEndian.AppendUint32(nil, pluginConn)
		b = binary.BigEndian.AppendUint32(b, uint32(len(whole)))
		_, err := theirs.Write(append(b, whole...))
		sent <- err
	}()
	m, err := w.next(time.Time{})
	check(t, err)
	check(t, <-sent)
	if len(m.body) != 1<<20 {
		t.Fatalf("message has a body of %d bytes, want 1 MiB", len(m.body))
	}
	if _, err := w.next(time.Now().Add(-time.Second)); !errors.Is(err, errIdle) {
		t.Fatalf("next message: error %v, want errIdle", err)
	}
	if kept := cap(w.in[pluginConn].buf); kept > maxKeptBuffer {
		t.Errorf("buffered data = %d KiB after the message, want at most %d KiB", kept>>10, maxKeptBuffer>>10)
	}
}

// A thousand restarts of the runtime leak no descriptor and no thread. The plugin's own thread ends
// with the plugin.
func TestRuntimeRestartsAThousandTimes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	socket := socketIn(t)
	r := listen(t, socket)
	tid := make(chan int, 1)
	p, err := New(Options{Socket: socket, Thread: func() { tid <- unix.Gettid() }})
	check(t, err)
	p.firstRetry, p.maxRetry = time.Microsecond, time.Microsecond
	t.Run("", func(t *testing.T) {
		run(t, p)
		before := 0
		for i := range 1000 {
			r.accept()
			check(t, r.c.Close())
			if i == 10 {
				before = entries(t, "/proc/self/fd")
			}
		}
		if now := entries(t, "/proc/self/fd"); now > before+3 { // two of the next connection, and what the collector has not seen
			t.Errorf("open descriptors = %d, at first %d", now, before)
		}
	})
	own := <-tid
	if own == unix.Getpid() {
		return // Go parks a process's first thread where it ends another (runtime/proc.go mexit, 1.26)
	}
	task := filepath.Join("/proc/self/task", strconv.Itoa(own))
	for _, err := os.Stat(task); err == nil; _, err = os.Stat(task) { // it ends right after its goroutine
		goruntime.Gosched()
	}
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	check(t, err)
	return len(all)
}
