package agent

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/eviction"
	"jettison/internal/records"
	"jettison/internal/squeeze"
	"jettison/reclaim"
	"jettison/stats"
)

const coldPod = "cgroup/kubepods/besteffort/pod87654321-1234-1234-1234-123456789abc/"

// coldNode has another pod, with cold memory. The kernel takes the first chunk that is asked for, and holds the second one until release.
func coldNode(t *testing.T) (n *testNode, release func()) {
	t.Helper()
	n = newTestNode(t)
	n.a.o.Config.StateDir = t.TempDir()
	n.write(coldPod+"cgroup.procs", "")
	n.write(coldPod+"cgroup.events", "populated 1\nfrozen 0\n")
	n.write(coldPod+"memory.current", "104857600\n")
	n.write(coldPod+"memory.stat", "anon 94371840\nfile 0\nshmem 0\ninactive_anon 94371840\nactive_anon 0\ninactive_file 0\nactive_file 0\nworkingset_refault_anon 10\nworkingset_refault_file 10\n")
	n.complete(coldPod)
	for _, group := range []string{coldPod, "cgroup/kubepods/", "cgroup/kubepods/besteffort/"} {
		for name, text := range map[string]string{"memory.min": "0\n", "memory.low": "0\n", "memory.swap.max": "max\n", "memory.swap.current": "0\n"} {
			n.write(group+name, text)
		}
	}
	n.write("cgroup/kubepods/memory.current", "1048576000\n")
	n.write("cgroup/kubepods/besteffort/memory.current", "1048576000\n")
	path := filepath.Join(n.dir, coldPod, "memory.reclaim")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(pipe) })
	size, err := unix.FcntlInt(uintptr(pipe), unix.F_SETPIPE_SZ, 4096)
	if err == nil {
		_, err = unix.Write(pipe, make([]byte, size-len("1048576 swappiness=200"))) // room for one write
	}
	if err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.OpenTree(filepath.Join(n.dir, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	n.a.squeezer = squeeze.Start(squeeze.Options{FS: fs, SysMount: n.dir, Watch: time.Millisecond})
	request := squeeze.Request{
		MemoryWish: reclaim.MemoryWish{Bytes: 64 << 20, Time: time.Hour, Rate: 1 << 40}, Signal: stats.SignalMemoryAvailable, Before: stats.Some[uint64](150 << 20),
		SwapFree: stats.Some[uint64](1 << 30), Exempt: map[string]bool{uid: true},
	}
	if !n.a.trySqueeze(request) {
		t.Fatal("no squeeze")
	}
	for held := 0; held < size; runtime.Gosched() { // until the first chunk was taken
		select {
		case e := <-n.a.squeezed():
			if e.Took < time.Second || !n.a.trySqueeze(request) { // else its time was over before it had looked
				t.Fatalf("nothing is asked: %+v", e)
			}
		default:
		}
		if held, err = unix.IoctlGetInt(pipe, unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	n.write(coldPod+"memory.current", "103809024\n") // 1 MiB less
	return n, func() {
		if _, err := unix.Read(pipe, make([]byte, size)); err != nil {
			t.Error(err)
		}
	}
}

// A crossing stops a squeeze that the kernel is at. The kill does not wait for it, and what it got until then is in the eviction's record and
// in the log once it is known.
func TestWhatAStoppedSqueezeGotIsInTheRecord(t *testing.T) {
	// On a machine that is very busy the squeeze may have ended before it is stopped, for it has 2 s.
	for try := 0; !stoppedSqueeze(t); try++ {
		if try == 10 {
			t.Fatal("no squeeze lasts until it is stopped")
		}
	}
}

// stoppedSqueeze is one try. false: there was nothing to stop.
func stoppedSqueeze(t *testing.T) (stopped bool) {
	n, release := coldNode(t)
	n.a.startKeeping(time.Now())
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.kill", "")
	n.runs()
	n.available(90)
	ctx, cancel := context.WithCancel(t.Context())
	n.a.look(ctx, time.Now())
	u := n.a.underway[uid]
	if u == nil || u.Killed().Time.IsZero() || u.record.Squeeze != nil {
		t.Fatalf("under way %+v\n%s", u, n.log)
	}
	release() // only now
	e := <-n.a.squeezed()
	n.a.hasSqueezed(time.Now(), e)
	first := u.record.Squeeze
	if e.Stopped && (first == nil || first.Asked < 1<<20 || !first.Stopped || first.Freed == nil || *first.Freed != 1<<20 || first.Refaulted != nil) {
		t.Errorf("%+v\n%s", first, n.log)
	}
	n.available(500)
	n.runtime.Change(func() { n.runtime.Containers = nil })
	n.a.happened(time.Now(), event{u, emptied, nil})
	n.a.measure(time.Now())
	n.a.progress(time.Now())
	n.a.hasSqueezed(time.Now(), <-n.a.squeezed())
	if text := n.log.String(); e.Stopped && !(strings.Contains(text, "squeezeFreed=1048576 squeezeStopped=true") && strings.Contains(text, "evicted=default/pod uid="+uid)) {
		t.Errorf("log: %s", text)
	}
	cancel()
	n.a.evictions.Wait()
	if err := n.a.squeezer.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if err := n.a.keeper.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if !e.Stopped {
		return false
	}
	list, err := records.Read(records.Path(n.a.o.Config.StateDir))
	if err != nil || len(list.Records) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	r := list.Records[0]
	if s := r.Squeeze; r.Outcome != records.Back || s == nil || s.Asked != first.Asked || !s.Stopped || s.Refaulted == nil || *s.Refaulted != 0 || r.Reclaimed != nil {
		t.Errorf("%+v: %+v", r, s)
	}
	return true
}

// What a squeeze got belongs to one eviction, the first that follows it: of the same signal, or of another one if that has stopped it.
func TestWhichEvictionASqueezeCameBefore(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		effect reclaim.MemoryEffect
		signal stats.Signal
		after  time.Duration
		want   bool
	}{
		{"the same signal", reclaim.MemoryEffect{Asked: 1}, stats.SignalMemoryAvailable, time.Second, true},
		{"long ago", reclaim.MemoryEffect{Asked: 1}, stats.SignalMemoryAvailable, squeezeOld + time.Second, false},
		{"another signal", reclaim.MemoryEffect{Asked: 1}, stats.SignalPIDAvailable, time.Second, false},
		{"stopped by another signal", reclaim.MemoryEffect{Asked: 1, Stopped: true}, stats.SignalPIDAvailable, time.Second, true},
		{"nothing asked", reclaim.MemoryEffect{Final: true, Stopped: true}, stats.SignalMemoryAvailable, time.Second, false},
		{"of the one before", reclaim.MemoryEffect{Asked: 1, Began: now.Add(-time.Minute)}, stats.SignalMemoryAvailable, time.Second, false},
	} {
		for _, early := range []bool{false, true} { // the effect is known before the eviction, or after it began
			n := newTestNode(t)
			n.a.tried = now
			c.effect.Signal = stats.SignalMemoryAvailable
			if c.effect.Began.IsZero() {
				c.effect.Began = now
			}
			at := eviction.Stamp{Time: now.Add(c.after)}
			e := eviction.Eviction{Signal: c.signal}
			first, second := &underway{Life: n.a.manager.Begin(at, e, eviction.Met{})}, &underway{Life: n.a.manager.Begin(at, e, eviction.Met{})}
			if early {
				n.a.squeezeKnown(&c.effect)
			}
			n.a.afterSqueeze(first)
			n.a.afterSqueeze(second)
			if !early {
				n.a.squeezeKnown(&c.effect)
			}
			if (first.squeeze != nil) != c.want || second.squeeze != nil {
				t.Errorf("%s, early %v: %+v, %+v", c.name, early, first.squeeze, second.squeeze)
			}
		}
	}
}

// An agent without a squeezer is none the wiser.
func TestNoSqueezeNoFigures(t *testing.T) {
	u := &underway{Life: &eviction.Life{}}
	newTestNode(t).a.afterSqueeze(u)
	if u.squeeze != nil || squeezeFields(u) != nil {
		t.Errorf("%+v", u.squeeze)
	}
}
