package read

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"jettison/stats"
)

// From include/uapi/linux/userfaultfd.h, v6.12.
const (
	uffdAPI      = 0xaa
	uffdioAPI    = 0xc018aa3f
	uffdRegister = 0xc020aa00
	uffdZeroPage = 0xc020aa04
	uffdMissing  = 1
)

// uffdRange is struct uffdio_register and struct uffdio_zeropage, which have the same layout.
type uffdRange struct{ start, length, mode, result uint64 }

// heldDirectory holds a cgroup's directory lock for as long as the test likes, as a mkdir does
// that allocates under pressure: a goroutine reads the directory into memory that is not there
// yet, and a mkdir waits for it. A process that lists the directory, or looks up a new name in
// it, waits behind that.
type heldDirectory struct {
	t    *testing.T
	uffd int
	page []byte
	made chan error // of the mkdir
}

func holdDirectory(t *testing.T, dir, newName string) *heldDirectory {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Fatal("userfaultfd is not available here: ", errno)
	}
	h := &heldDirectory{t: t, uffd: int(fd), made: make(chan error, 1)}
	t.Cleanup(func() { unix.Close(h.uffd) })
	h.ioctl(uffdioAPI, unsafe.Pointer(&[3]uint64{uffdAPI}))
	var err error
	if h.page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		t.Fatal(err)
	}
	h.ioctl(uffdRegister, unsafe.Pointer(&uffdRange{h.start(), uint64(len(h.page)), uffdMissing, 0}))
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // it holds the directory's lock, shared, until there is memory
		_, _ = unix.Getdents(d, h.page)
		unix.Close(d)
	}()
	if _, err := unix.Read(h.uffd, make([]byte, 64)); err != nil { // it waits for memory
		t.Fatal(err)
	}
	tid := make(chan int)
	go func() { // it waits for the exclusive lock, and later requests queue behind it
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		h.made <- unix.Mkdir(filepath.Join(dir, newName), 0o755)
	}()
	stat := fmt.Sprintf("/proc/self/task/%d/stat", <-tid)
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(stat); err == nil && bytes.Contains(b, []byte(") D ")) {
			return h
		}
		if time.Now().After(limit) {
			t.Fatal("mkdir did not wait for the directory lock")
		}
	}
}

func (h *heldDirectory) start() uint64 { return uint64(uintptr(unsafe.Pointer(&h.page[0]))) }

func (h *heldDirectory) ioctl(request uintptr, arg unsafe.Pointer) {
	h.t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(h.uffd), request, uintptr(arg)); errno != 0 {
		h.t.Fatalf("ioctl %#x of a userfaultfd: %v", request, errno)
	}
}

func (h *heldDirectory) release() {
	h.t.Helper()
	h.ioctl(uffdZeroPage, unsafe.Pointer(&uffdRange{h.start(), uint64(len(h.page)), 0, 0}))
	if err := <-h.made; err != nil {
		h.t.Fatal(err)
	}
}

// A kubepods directory lock that the kernel holds for seconds delays no look; a Reader without
// a lister's thread waits all that time.
func TestLiveHeldLockDelaysNoLook(t *testing.T) {
	c, other := liveCollector(t), liveCollector(t)
	const dir, kind, holds = "kubepods/besteffort", 0x10c4, 4 * time.Second
	if err := os.MkdirAll(groupDir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"pod" + podUID(kind, 0), "pod" + podUID(kind, 1)}
	t.Cleanup(func() {
		for _, name := range names {
			_ = unix.Rmdir(groupDir(dir + "/" + name))
		}
	})
	if err := unix.Mkdir(groupDir(dir+"/"+names[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	look := func(c *Reader) (found int, err error) {
		var s stats.Summary
		err = c.Quick(time.Now(), nil, &s)
		for i := range s.Pods {
			if uid := s.Pods[i].PodRef.UID; uid == podUID(kind, 0) || uid == podUID(kind, 1) {
				found++
			}
		}
		return found, err
	}
	c.StartLister()
	for _, c := range []*Reader{c, other} {
		if found, err := look(c); found != 1 {
			t.Fatalf("first look found %d pods, error %v", found, err)
		}
	}
	lock := holdDirectory(t, groupDir(dir), names[1])
	start, without := time.Now(), make(chan time.Duration, 1)
	go func() {
		_, _ = look(other)
		without <- time.Since(start)
	}()
	looks, longest, late := 0, time.Duration(0), 0
	for time.Since(start) < holds {
		began := time.Now()
		found, err := look(c)
		longest, looks = max(longest, time.Since(began)), looks+1
		if found != 1 {
			t.Fatalf("look while held found %d pods, error %v", found, err)
		}
		if errors.Is(err, errListLate) {
			late++
		}
	}
	select {
	case took := <-without:
		t.Fatalf("without a thread a look took %v: the directory was not held", took)
	default:
	}
	lock.release()
	if late != looks || longest > time.Second {
		t.Errorf("%d looks in %v, the longest took %v; %d reported a late list", looks, holds, longest, late)
	}
	t.Logf("%d looks while the directory was held for %v, the longest took %v; without a thread one took %v", looks, holds, longest, <-without)
	if found, err := look(c); found != 2 {
		t.Errorf("look after the release found %d pods, error %v", found, err)
	}
}
