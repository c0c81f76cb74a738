package kubeletdetect

import (
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// searchTime returns the CPU time of a search, including the kernel's, so that a busy machine does
// not disturb the test.
func searchTime(t *testing.T, procMount string) (took time.Duration, found bool, why string) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	found, why = new(Finder).Kubelet(procMount)
	return used() - began, found, why
}

// none skips the test if this machine has a kubelet.
func none(t *testing.T) {
	t.Helper()
	alone(t)
	if found, why := new(Finder).Kubelet(""); found {
		t.Skip(why)
	}
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
}

// deep creates nested directories until the path has 5000 bytes, and opens the last.
func deep(t *testing.T) (dir *os.File) {
	t.Helper()
	top := t.TempDir()
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	name := strings.Repeat("d", 250)
	for range 20 {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		above := fd
		fd, err = unix.Openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(above)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir = os.NewFile(uintptr(fd), "deep")
	t.Cleanup(func() { dir.Close() })
	return dir
}

// A program path that is too long does not make the search read the arguments: that takes the lock
// of the process's memory map, which the process may hold indefinitely.
func TestLongProgramPath(t *testing.T) {
	none(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	dir := deep(t)
	below := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
	if err := os.WriteFile(filepath.Join(below, "tenant"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: "./tenant", Args: []string{"/usr/bin/kubelet", "600"}, Dir: below}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, linkErr := os.Readlink("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe")
	found, why := new(Finder).Kubelet("/proc")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if linkErr == nil {
		t.Error("the program's path is short enough to read, want ENAMETOOLONG")
	}
	if found {
		t.Errorf("the arguments of the process were read: %q", why)
	}
}

// A listener that was sent over a socket and closed still listens, but no process holds it: it is
// no kubelet's.
func TestListenerInFlight(t *testing.T) {
	none(t)
	l, err := net.Listen("tcp", "127.0.0.1:10255")
	if err != nil {
		t.Skip(err)
	}
	f, err := l.(*net.TCPListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	held, why := new(Finder).Kubelet("/proc")
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if c, err := net.Dial("tcp", "127.0.0.1:10255"); err != nil {
		t.Errorf("the socket in flight does not listen: %v", err)
	} else {
		c.Close()
	}
	found, whyInFlight := new(Finder).Kubelet("/proc")
	unix.Close(pair[0])
	unix.Close(pair[1])
	if !held {
		if inNodesNetwork(t) {
			t.Errorf("listener of this process: held %v, evidence %q", held, why)
		}
		t.Skip("process 1 has another network")
	}
	if found {
		t.Errorf("listener in flight counts as a kubelet: %q", whyInFlight)
	}
}

// listenTimes opens that many listeners on one port, as any user may.
func listenTimes(t *testing.T, n, port int) {
	t.Helper()
	var all []int
	t.Cleanup(func() {
		for _, fd := range all {
			unix.Close(fd)
		}
	})
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skipf("%d listeners: %v", len(all), err)
		}
		all = append(all, fd)
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
		}
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		if err != nil {
			t.Skip(err)
		}
	}
}

// Thousands of listeners on another port cost a search only milliseconds, with and without socket
// diagnosis.
func TestSearchTimeWithManyListeners(t *testing.T) {
	none(t)
	// Other processes and the speed of the machine affect both measurements.
	before := leastSearchTime(t)
	listenTimes(t, 16_000, 23456)
	after := leastSearchTime(t)
	if after-before > 500*time.Millisecond {
		t.Errorf("a search takes %v of CPU time, want at most 500ms more than %v without the listeners", after, before)
	}
	t.Log(before, after)
}

// leastSearchTime returns the least CPU time of three searches that find nothing.
func leastSearchTime(t *testing.T) time.Duration {
	t.Helper()
	least := time.Duration(math.MaxInt64)
	for range 3 {
		took, found, why := searchTime(t, "/proc")
		if found {
			t.Errorf("search found a kubelet: %q", why)
		}
		least = min(least, took)
	}
	return least
}

// All sockets are searched in one pass over the descriptors.
func TestManySocketsOfRoot(t *testing.T) {
	var b strings.Builder
	b.WriteString(header)
	for i := range 300 {
		b.WriteString(listens(10255, strconv.Itoa(100_000+i)))
	}
	dir := node(join(holder, tree{"1/net/tcp": b.String()})).write(t)
	for i := range 3000 {
		if err := os.Symlink("socket:["+strconv.Itoa(i)+"]", filepath.Join(dir, "8/fd", strconv.Itoa(100+i))); err != nil {
			t.Fatal(err)
		}
	}
	if took, found, why := searchTime(t, dir); found || took > 400*time.Millisecond {
		t.Errorf("found = %v, %q after %v of CPU time", found, why, took)
	} else {
		t.Log(took)
	}
}
