package evictions

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/internal/node/kill"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// A write to memory.reclaim of a dead victim blocks in the kernel. Its /dev/shm was unmounted
// before, and the runtime still cleans up.
func TestBlockedReclaimDelaysNoCleanUp(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.renew(softAndHard, f.host)
	pinned, dir := strings.Repeat("a", 64), f.FS.Mount()+"/"+nodetest.Pod
	f.Write("proc/1/mountinfo", "36 1 0:90 / /run/"+pinned+"/shm rw - tmpfs shm rw\n")
	f.killable()
	f.Populated(nodetest.Pod, false)
	if err := os.WriteFile(dir+"/memory.stat", []byte("anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = unix.Unlink(dir + "/memory.reclaim")
	if err := unix.Mkfifo(dir+"/memory.reclaim", 0o600); err != nil {
		t.Fatal(err)
	}
	hold, err := unix.Open(dir+"/memory.reclaim", unix.O_RDWR|unix.O_NONBLOCK, 0)
	for full := make([]byte, 4096); err == nil; {
		_, err = unix.Write(hold, full)
	}
	_ = unix.SetNonblock(hold, false)
	victim, err := kill.Pin(f.FS, &stats.PodStats{PodRef: stats.PodReference{UID: nodetest.UID}, Cgroup: nodetest.Pod, SandboxIDs: []string{pinned}})
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.carrier.carryOut(t.Context(), &job{victim: victim, cancel: func() {}, urgent: true, cgroup: true, cache: true})
	}()
	for _, want := range []stage{emptied, uncached, cleaned} {
		if e := <-f.Events(); e.stage != want {
			t.Errorf("reported stage %v, want %v", e.stage, want)
		}
		if want == uncached && !strings.Contains(f.Text(), "/run/"+pinned+"/shm") {
			t.Error("/dev/shm is unmounted after the page cache is dropped, want before")
		}
	}
	<-done
	_, _ = unix.Read(hold, make([]byte, 1<<17)) // the write returns
	unix.Close(hold)
}
