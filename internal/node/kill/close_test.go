package kill

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The goroutine that carries out an eviction may close the victim while the loop kills it. A descriptor closed
// too early could then refer to the cgroup of another pod.
func TestKillKeepsItsDescriptors(t *testing.T) {
	f := newTree(t)
	p := f.pod("a", nil)
	unblock := f.full("a", "cgroup.kill")
	v, err := Pin(f.fs, p)
	if err != nil {
		t.Fatal(err)
	}
	fd, killed := v.file.fd, make(chan error, 1)
	go func() { killed <- v.Kill() }()
	for limit := time.Now().Add(waitLimit); !v.file.busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("no thread writes cgroup.kill after %v", waitLimit)
		}
	}
	v.Close()
	isOpen := func() bool { _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); return err == nil }
	if !isOpen() {
		t.Error("cgroup.kill is closed while it is written")
	}
	unblock()
	if err := <-killed; err != nil {
		t.Error(err)
	}
	if isOpen() {
		t.Error("cgroup.kill is still open after Close and Kill")
	}
}
