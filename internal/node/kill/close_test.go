package kill

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who carries an eviction out may close the victim while the loop kills it: the number of a descriptor that
// is given back too early is another pod's cgroup by then.
func TestAKillKeepsItsDescriptors(t *testing.T) {
	f := newTree(t)
	p := f.pod("a", nil)
	letGo := f.full("a", "cgroup.kill")
	v, err := Pin(f.fs, p)
	if err != nil {
		t.Fatal(err)
	}
	fd, killed := v.file.fd, make(chan error, 1)
	go func() { killed <- v.Kill() }()
	for limit := time.Now().Add(waitLimit); !v.file.busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("nobody writes")
		}
	}
	v.Close()
	isOpen := func() bool { _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); return err == nil }
	if !isOpen() {
		t.Error("cgroup.kill is closed while it is written")
	}
	letGo()
	if err := <-killed; err != nil {
		t.Error(err)
	}
	if isOpen() {
		t.Error("cgroup.kill is open still")
	}
}
