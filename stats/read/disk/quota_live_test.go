package disk

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hostroot"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
	"jettison/stats/read/walk"
)

// If the file system counts a volume by itself, its count is used; a volume without a project,
// or with an entry of another, is walked. The scenario mounts a file system with project quotas
// here.
func TestQuotaOfAVolume(t *testing.T) {
	hosttest.OnANode(t)
	const mount = "/mnt/quota"
	host, err := hostroot.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	pod := filepath.Join(mount, "pods", "u")
	for name, id := range map[string]uint32{"counted": 4242, "again": 4242, "mixed": 4343, "walked": 0} {
		dir := filepath.Join(pod, "volumes", emptyDirPlugin, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if id != 0 {
			setProject(t, dir, id)
		}
		hosttest.Write(t, 3<<20, dir, "below", "file")
	}
	setProject(t, filepath.Join(pod, "volumes", emptyDirPlugin, "mixed", "below"), 99) // as its owner is allowed to
	unix.Sync()                                                                        // ext4 allocates late
	s := &storageWalker{host: host, rootDir: mount, logsDir: "/var/log/none", w: walk.New(hosttest.NoPause), uppers: map[string]string{}}
	found, err := s.find()
	if err != nil {
		t.Fatal(err)
	}
	got := s.measure(t.Context(), "u", found["u"], &podindex.Pod{})
	if got.err != nil || len(got.volumes) != 4 {
		t.Fatalf("measured volumes are incomplete: %+v", got)
	}
	again, counted, mixed, walked := got.volumes[0], got.volumes[1], got.volumes[2], got.volumes[3]
	if !again.Quota || !counted.Quota || mixed.Quota || walked.Quota {
		t.Errorf("volumes counted by quota = %+v", got.volumes)
	}
	bytes, inodes := hosttest.Naive(t, filepath.Join(pod, "volumes", emptyDirPlugin, "walked"))
	if walked.UsedBytes != bytes || walked.InodesUsed != inodes {
		t.Errorf("walked volume = %+v, want %d bytes, %d inodes", walked, bytes, inodes)
	}
	// One project for two volumes counts once: both together have twice the content of one.
	if sum := again.UsedBytes + counted.UsedBytes; sum != 2*walked.UsedBytes || again.InodesUsed+counted.InodesUsed != 2*walked.InodesUsed {
		t.Errorf("two volumes of one project = %+v and %+v; one of that size walked = %+v", again, counted, walked)
	}
}

func setProject(t *testing.T, dir string, id uint32) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	attr := struct { // fsxattr (include/uapi/linux/fs.h)
		xflags, extsize, nextents, projid, cowextsize uint32
		_                                             [8]byte
	}{xflags: 0x200, projid: id} // FS_XFLAG_PROJINHERIT
	const fsIocFsSetXattr = 0x401c5820 // include/uapi/linux/fs.h
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFsSetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
		t.Fatal(errno)
	}
}
