package openfiles

import (
	"golang.org/x/sys/unix"

	"jettison/stats/read/procfs"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// isUnnamed reads the metadata of a link's target and reports whether the target has no name.
// The call may block: AT_STATX_DONT_SYNC skips the server's attributes, but a network file
// system still checks that the file exists (NFS, 9p: v6.12 fs/namei.c complete_walk,
// d_weak_revalidate), and its server may be unreachable.
func isUnnamed(dir int, name string, st *unix.Statx_t) bool {
	const flags, want = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS
	return unix.Statx(dir, name, flags, want, st) == nil && st.Nlink == 0
}

// count counts a file without a name if it is on a disk. ofProject returns its quota project.
func (f *Finder) count(st *unix.Statx_t, ofProject func() (uint32, bool)) {
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	disk, ok := f.disk(device)
	id := [2]uint64{device, st.Ino}
	if !ok || f.seen[id] {
		return
	}
	before, taken := f.held[id]
	if taken && before.uid != f.uid {
		return // pods that share a file: it counts once
	}
	if f.member = f.member || f.isMember(); !f.member {
		return
	}
	if len(f.seen) < maxInodes { // above the limit, each descriptor counts
		f.seen[id] = true
	}
	if taken || len(f.held) < maxInodes {
		f.held[id] = holding{f.uid, f.out.number}
	}
	if disk == device && st.Mode&unix.S_IFMT == unix.S_IFREG && len(f.counted) > 0 {
		if id, ok := ofProject(); ok && f.counted[quota.Project{Device: device, ID: id}] {
			return
		}
	}
	sum := f.out.byDevice[disk]
	sum.Add(walk.Usage{Bytes: st.Blocks * 512, Inodes: 1})
	f.out.byDevice[disk] = sum
	if _, known := f.out.holders[f.pid]; known || len(f.out.holders) < maxHolders {
		f.out.holders[f.pid] += st.Blocks * 512
	}
}

// isMember reports whether the process is still in the pod's cgroup, because process IDs are
// reused.
func (f *Finder) isMember() bool {
	if f.Belongs != nil {
		return f.Belongs(f.pid, f.group)
	}
	member, err := procfs.InCgroup(f.proc, f.group, f.pid)
	if err != nil {
		f.noteUnread(err, f.pid)
	}
	return member
}

// disk returns the disk that holds the blocks of files on a device.
func (f *Finder) disk(device uint64) (uint64, bool) {
	if f.diskSet[device] {
		return device, true
	}
	disk, known := f.upper[device]
	if dir := f.overlay(device); !known && dir != "" {
		if fd, err := f.host.Open(dir, unix.O_PATH); err == nil {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil {
				disk = st.Dev
			}
			unix.Close(fd)
		}
		f.upper[device] = disk
	}
	return disk, f.diskSet[disk]
}

// holding records the pod that an inode counts for, and the last look at that pod that found the
// inode.
type holding struct {
	uid  string
	look int
}

// holdLooks is the number of looks for which an inode stays with its pod although they did not find
// it because they were cut off. After that, another pod may hold the inode, or the inode number was
// reused.
const holdLooks = 2

// countLink counts the target of a link in /proc/PID/fd or map_files if it is a file without a
// name on a disk.
func (f *Finder) countLink(dir int, name string) {
	st := new(unix.Statx_t)
	if f.guarded(func() {
		if !isUnnamed(dir, name, st) {
			st.Nlink = 1
		}
	}) && st.Nlink == 0 {
		f.count(st, func() (project uint32, ok bool) {
			result := new(struct {
				id uint32
				ok bool
			})
			if !f.guarded(func() { result.id, result.ok = quota.OfFile(dir, name) }) {
				return 0, false
			}
			return result.id, result.ok
		})
	}
}
