// Package quota reads the usage of a project from the file system (project quotas).
package quota

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"jettison/stats/read/walk"
)

// Project quotas: if a kubelet has given a volume its own project, the file system counts the
// volume's usage (kubelet pkg/volume/util/fsquota; Documentation/filesystems/quota.rst).
const (
	fsIocFsGetXattr = 0x801c581f // FS_IOC_FSGETXATTR (include/uapi/linux/fs.h)
	// FS_XFLAG_PROJINHERIT: new entries below inherit the project
	fsXflagProjInh    = 0x200
	prjQuota          = 2        // PRJQUOTA (include/uapi/linux/quota.h)
	qGetQuota         = 0x800007 // Q_GETQUOTA; XFS answers it too (fs/quota/quota.c quota_getquota)
	quotaCommandShift = 8        // QCMD
)

// fsXattr is struct fsxattr.
type fsXattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqBlk is struct if_dqblk; curSpace is in bytes.
type dqBlk struct {
	bHardLimit, bSoftLimit, curSpace, iHardLimit, iSoftLimit, curInodes, bTime, iTime uint64
	valid                                                                             uint32
	_                                                                                 [4]byte
}

// Project is a quota project of one file system.
type Project struct {
	Device uint64
	ID     uint32
}

// maxProbes is the number of entries of a volume that are checked for their project.
const maxProbes = 16

// OfVolume reads the usage of the project that a volume belongs to. ok is false if no project or no
// count exists, or if the kubelet did not give the project to this volume: the parent directory has
// the same project (an administrator gave one project to all of /var/lib/kubelet), or an entry has
// another project. The volume must then be walked.
//
// The check is not complete. In the initial user namespace the owner of a file may change its
// project (fs/file_attr.c fileattr_set_prepare). On a file system with project quotas, a tenant
// that may set attributes can therefore remove files from its account, if they are deeper in the
// volume or after the checked entries.
func OfVolume(dir int) (p Project, u walk.Usage, ok bool) {
	attr, ok := xattrOf(dir)
	if !ok || attr.projid == 0 || attr.xflags&fsXflagProjInh == 0 {
		return p, u, false
	}
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || inheritedProject(dir, attr.projid) ||
		!entriesOf(dir, attr.projid) {
		return p, u, false
	}
	var q dqBlk
	// quotactl_fd(2), since v5.14.
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(dir),
		qGetQuota<<quotaCommandShift|prjQuota, uintptr(attr.projid),
		uintptr(unsafe.Pointer(&q)), 0, 0); errno != 0 {
		return p, u, false
	}
	return Project{st.Dev, attr.projid}, walk.Usage{Bytes: q.curSpace, Inodes: q.curInodes}, true
}

func xattrOf(fd int) (attr fsXattr, ok bool) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFsGetXattr,
		uintptr(unsafe.Pointer(&attr)))
	return attr, errno == 0
}

// inheritedProject reports whether the parent directory has the same project, or cannot be
// read.
func inheritedProject(dir int, id uint32) bool {
	fd, err := unix.Openat(dir, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	attr, ok := xattrOf(fd)
	return !ok || attr.projid == id
}

// entriesOf reports whether the first entries of a directory all belong to a project.
func entriesOf(dir int, id uint32) bool {
	own, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(own)
	buf := make([]byte, 4<<10)
	for probes := 0; probes < maxProbes; {
		// a signal may end the call after a few entries (v6.12 fs/readdir.c filldir64)
		n, err := unix.Getdents(own, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		if n <= 0 {
			return true
		}
		for b := buf[:n]; len(b) > 0 && probes < maxProbes; probes++ {
			e, rest, ok := walk.Dirent(b)
			if !ok {
				return false
			}
			if b = rest; e.Name != "." && e.Name != ".." && !isOf(own, e.Name, id) {
				return false
			}
		}
	}
	return true
}

// isOf reports whether an entry belongs to a project. It checks only regular files and directories,
// because opening them has no side effects. It determines the type first, and skips devices, pipes
// and links.
func isOf(dir int, name string, id uint32) bool {
	path, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err == unix.ENOENT
	}
	defer unix.Close(path)
	var st unix.Stat_t
	if unix.Fstat(path, &st) != nil {
		return false
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return true
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	attr, ok := xattrOf(fd)
	return ok && attr.projid == id
}

// OfFile returns the project that a file belongs to. A lease on the file does not block the call.
func OfFile(dir int, name string) (id uint32, ok bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	attr, ok := xattrOf(fd)
	return attr.projid, ok
}
