package openfiles

import (
	"golang.org/x/sys/unix"

	"jettison/stats/read/procfs"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// isUnnamed reads what a link leads to, and reports whether it is a file without a name. That may
// be held up: a network file system is not asked for what it knows, but whether its file is there
// still (NFS, 9p: v6.12 fs/namei.c complete_walk, d_weak_revalidate), and its server may be gone.
func isUnnamed(dir int, name string, st *unix.Statx_t) bool {
	const flags, want = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS
	return unix.Statx(dir, name, flags, want, st) == nil && st.Nlink == 0
}

// count counts a file without a name, if it lies on a disk. ofProject tells its quota project.
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
	if len(f.seen) < maxInodes { // beyond, each descriptor counts
		f.seen[id] = true
	}
	if taken || len(f.held) < maxInodes {
		f.held[id] = holding{f.uid, f.out.nth}
	}
	if disk == device && st.Mode&unix.S_IFMT == unix.S_IFREG && len(f.counted) > 0 {
		if id, ok := ofProject(); ok && f.counted[quota.Project{Device: device, ID: id}] {
			return
		}
	}
	sum := f.out.by[disk]
	sum.Add(walk.Usage{Bytes: st.Blocks * 512, Inodes: 1})
	f.out.by[disk] = sum
	if _, known := f.out.holders[f.pid]; known || len(f.out.holders) < maxHolders {
		f.out.holders[f.pid] += st.Blocks * 512
	}
}

// isMember reports whether the process is in the pod's cgroup still: ids are used again.
func (f *Finder) isMember() bool {
	if f.Belongs != nil {
		return f.Belongs(f.pid, f.group)
	}
	member, err := procfs.InCgroup(f.proc, f.group, f.pid)
	if err != nil {
		f.missed(err, f.pid)
	}
	return member
}

// disk is the disk that has the blocks of what lies on a device.
func (f *Finder) disk(device uint64) (uint64, bool) {
	if f.now[device] {
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
	return disk, f.now[disk]
}

// holding is which pod an inode counts for, and in which of its looks it was found last.
type holding struct {
	uid string
	nth int
}

// heldFor looks an inode counts for the pod that held it, where they are cut off and do not find
// it: by then another pod may hold it, or an inode of that number.
const heldFor = 2

// file counts what a link of /proc/PID/fd or map_files leads to, if it is a file without a name on
// a disk.
func (f *Finder) file(dir int, name string) {
	st := new(unix.Statx_t)
	if f.guarded(func() {
		if !isUnnamed(dir, name, st) {
			st.Nlink = 1
		}
	}) && st.Nlink == 0 {
		f.count(st, func() (project uint32, ok bool) {
			told := new(struct {
				id uint32
				ok bool
			})
			if !f.guarded(func() { told.id, told.ok = quota.OfFile(dir, name) }) {
				return 0, false
			}
			return told.id, told.ok
		})
	}
}
