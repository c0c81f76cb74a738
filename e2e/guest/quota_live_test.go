package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quotaFolder is the mount point of the file system with project quotas
// (vm.Node.MountProjectQuota).
const quotaFolder = "/mnt/quota"

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk of linux/quota.h.
type dqblk struct {
	hardBlocks, softBlocks, space, hardInodes, softInodes, inodes, btime, itime uint64
	valid                                                                       uint32
}

// From linux/fs.h and linux/quota.h; golang.org/x/sys/unix does not have them.
const (
	fsIocFSSetXattr = 0x401c5820
	xflagProjectID  = 0x200 // FS_XFLAG_PROJINHERIT
	qGetQuota       = 0x800007
	qSetQuota       = 0x800008
	prjQuota        = 2
	qifBlockLimits  = 1
)

func quotactl(command int, dir *os.File, id uint32, q *dqblk) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), uintptr(command<<8|prjQuota), uintptr(id), uintptr(unsafe.Pointer(q)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// withoutSysResource removes CAP_SYS_RESOURCE from the test's thread: with it a process may exceed
// hard limits (fs/quota/dquot.c, ignore_hardlimit).
func withoutSysResource(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
}

// The file system that the harness mounts for tests counts a project's bytes and enforces its limit.
func TestLiveProjectQuotaIsEnforced(t *testing.T) {
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("needs a file system with project quotas: run make e2e RUN=ProjectQuotas")
	}
	const project, limit = 4711, 1 << 20
	path := filepath.Join(quotaFolder, "project")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	attr := fsxattr{xflags: xflagProjectID, projid: project}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), fsIocFSSetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
		t.Fatal("set the project of the folder: ", errno)
	}
	// Limits are in blocks of 1 KiB.
	if err := quotactl(qSetQuota, dir, project, &dqblk{hardBlocks: limit >> 10, valid: qifBlockLimits}); err != nil {
		t.Fatal("set the project's quota limit: ", err)
	}
	withoutSysResource(t)
	err = os.WriteFile(filepath.Join(path, "file"), make([]byte, 2*limit), 0o644)
	if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write of twice the limit = %v, want EDQUOT or ENOSPC", err)
	}
	var q dqblk
	if err := quotactl(qGetQuota, dir, project, &q); err != nil || q.space == 0 || q.space > limit || q.inodes != 2 {
		t.Errorf("the project uses %d bytes, %d inodes (%v), want at most %d and 2", q.space, q.inodes, err, limit)
	}
}
