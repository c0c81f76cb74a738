package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// deleted is what the kernel writes behind the path of a file without a name (v6.12 fs/d_path.c path_with_deleted). A file may be named so
// too: this saves asking for the others, which may lie on a network file system whose server is gone.
const deleted = " (deleted)"

// guarded makes a call about the process at hand that may be held up (guard). ok: it was made; else what is found is a lower bound.
func (f *unnamedFiles) guarded(call func()) (ok bool) {
	if f.onDisk {
		ok = f.guard.do(f.uid+" on disks", -f.pid, call) == nil
	} else {
		ok = f.guard.do(f.uid, f.pid, call) == nil
	}
	f.out.cut = f.out.cut || !ok
	return ok
}

// written is what a process has had written to disks, in bytes; 0: unknown.
func (f *unnamedFiles) written(pid int) uint64 {
	told := new([]byte)
	if f.guard.do(f.uid, pid, func() { *told, _ = os.ReadFile(fmt.Sprintf("%s/%d/io", f.proc, pid)) }) != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(*told), "\nwrite_bytes: ")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseUint(line, 10, 64)
	return n
}

// round bounds what is looked at of one process: descriptors of a thread, and threads with descriptors of their own.
type round struct{ fds, sets int }

var (
	firstRound = round{maxFirst, maxFileSets}
	lastRound  = round{1 << 30, maxProcesses}
)

// process looks at the descriptors and mappings of one process, within a round's bounds. more: it has more. An error is the end of the
// turn; a process that is gone is none.
func (f *unnamedFiles) process(ctx context.Context, pid int, within round) (more bool, err error) {
	dir, err := unix.Open(fmt.Sprintf("%s/%d", f.proc, pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	f.pid, f.member = pid, false
	if err != nil {
		f.missed(err, pid)
		return false, f.step(ctx)
	}
	defer unix.Close(dir) // until then it is this very process, or none
	// A thread may have descriptors of its own (unshare(2), CLONE_FILES), and the first one may have ended before the others.
	var sets fileSets
	same := func(other, tid int) (order int, ok bool) {
		told := new(int)
		if ok = f.guarded(func() { *told = sameFiles(other, tid) }); ok {
			order = *told
		}
		return order, ok
	}
	err = f.entries(ctx, dir, "task", pid, func(_ int, name string) (bool, error) {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return true, nil
		}
		for _, link := range [...]string{"/cwd", "/root"} { // it may be in directories of its own (CLONE_FS)
			if link = "task/" + name + link; isDeleted(dir, link) {
				f.file(dir, link)
			}
		}
		if err := f.keptByMounts(ctx, dir, "task/"+name+"/", tid); err != nil {
			return false, err
		}
		if sets.has(tid, same) {
			return true, nil
		}
		if len(sets) > within.sets {
			more = true
			return false, nil
		}
		n := 0
		f.mounts = nil
		err = f.entries(ctx, dir, "task/"+name+"/fd", tid, func(fds int, fd string) (bool, error) {
			if n++; n > within.fds {
				more = true
				return false, nil
			}
			if isDeleted(fds, fd) {
				f.onDisk = f.guard.holds(f.uid, f.pid) && f.isOnDisk(fds, fd)
				f.file(fds, fd)
				f.onDisk = false
			}
			return true, nil
		})
		return true, err
	})
	if err != nil || len(sets) == 0 {
		return more, err
	}
	return more, f.mapped(ctx, dir, pid)
}

// missed takes that something of a thread could not be opened: unless it has ended, or that is refused, what is found is a lower bound. The
// kernel calls a file of a process absent, too, where it has no memory for its inode (v6.12 fs/proc/base.c proc_pid_instantiate,
// proc_pident_instantiate), so another system call has to say that it is gone.
func (f *unnamedFiles) missed(err error, tid int) {
	switch {
	case errors.Is(err, unix.EINVAL): // it has ended, and nobody has waited for it (v6.12 fs/proc_namespace.c mounts_open_common)
	case errors.Is(err, os.ErrPermission):
	case (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)) && unix.Tgkill(f.pid, tid, 0) == unix.ESRCH:
	default:
		f.out.cut = true
	}
}

// fileSets are threads no two of which are known to share their descriptors, in the kernel's order of what they have.
type fileSets []int

// has reports whether a thread has the descriptors of one in the list; one that has not is added. same is sameFiles; not ok: it was not
// asked. Where the kernel does not tell (kcmp(2) is refused, or a thread has ended), it has its own: to look twice is better than not to
// look.
func (s *fileSets) has(tid int, same func(other, tid int) (order int, ok bool)) bool {
	at, shared := slices.BinarySearchFunc(*s, tid, func(other, tid int) int {
		order, ok := same(other, tid)
		switch {
		case ok && order == 0:
			return 0
		case ok && order == 2: // v6.12 kernel/kcmp.c kcmp_ptr: 1 is less, 2 is greater
			return 1
		}
		return -1
	})
	if !shared {
		*s = slices.Insert(*s, at, tid)
	}
	return shared
}

// sameFiles compares what descriptors two threads have: as kcmp(2), or -1 where that is refused.
func sameFiles(one, other int) int {
	const files = 2 // KCMP_FILES (include/uapi/linux/kcmp.h)
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(one), uintptr(other), files, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(order)
}

// isOnDisk reports whether a descriptor's file lies on a disk, by the mounts of its thread. Nobody can hold up a look at that, unless by
// giving the descriptor to another file meanwhile: it is not left out where the process, or its pod, holds up other calls. fdinfo has a
// line for each lock that is taken on the file (v6.12 fs/locks.c show_fd_locks), and is made as a whole.
func (f *unnamedFiles) isOnDisk(fds int, name string) bool {
	var text [1024]byte
	n := readAt(fds, "../fdinfo/"+name, text[:])
	_, rest, ok := bytes.Cut(text[:n], []byte("\nmnt_id:\t")) // proc_pid_fdinfo(5)
	if !ok {
		return false
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	id, err := strconv.ParseUint(string(line), 10, 64)
	if err != nil {
		return false
	}
	if f.mounts == nil {
		f.mounts = mountsOf(fds)
	}
	device, known := f.mounts[id]
	return known && (f.now[device] || f.overlay(device) != "")
}

// readAt reads the beginning of a file of a process; 0: it is gone.
func readAt(dir int, name string, buf []byte) int {
	file, err := seqfile.OpenAt(dir, name)
	if err != nil {
		return 0
	}
	defer file.Close()
	n, _ := file.Read(buf) // 0: it could not be
	return n
}

// isDeleted reads where a link leads, without going there. Of a path that is longer than the kernel tells (v6.12 fs/proc/base.c
// do_proc_readlink) it is not known, so that the file is asked.
func isDeleted(dir int, name string) bool {
	var text [4096]byte
	n, err := unix.Readlinkat(dir, name, text[:])
	return err == unix.ENAMETOOLONG || err == nil && (n == len(text) || bytes.HasSuffix(text[:n], []byte(deleted)))
}

// entries visits what is in a directory of a thread until visit says false. One that is gone has nothing.
func (f *unnamedFiles) entries(ctx context.Context, at int, name string, tid int, visit func(dir int, name string) (bool, error)) error {
	dir, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		f.missed(err, tid)
		return f.step(ctx)
	}
	defer unix.Close(dir)
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.Getdents(dir, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return nil
		}
		for b := buf[:n]; len(b) > 0; {
			e, rest, ok := dirent(b)
			if !ok {
				return nil
			}
			if b = rest; e.name == "." || e.name == ".." {
				continue
			}
			if err := f.step(ctx); err != nil {
				return err
			}
			if more, err := visit(dir, e.name); err != nil || !more {
				return err
			}
		}
	}
}

// mapped counts the files without a name that a process maps: their descriptors may be closed. A thread that has ended tells of none, and
// the first may have ended before the others: then another is asked, for all of a process map the same (clone(2), CLONE_THREAD).
func (f *unnamedFiles) mapped(ctx context.Context, dir, pid int) error {
	told, err := f.mappings(ctx, dir, pid)
	if told || err != nil {
		return err
	}
	return f.entries(ctx, dir, "task", pid, func(threads int, name string) (bool, error) {
		tid, err := strconv.Atoi(name)
		if err != nil || tid == pid {
			return true, nil
		}
		// map_files is in /proc/TID only, not in /proc/PID/task/TID (v6.12 fs/proc/base.c tid_base_stuff).
		thread, err := unix.Open(f.proc+"/"+name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			f.missed(err, tid)
			return true, nil
		}
		defer unix.Close(thread)
		var st unix.Stat_t
		if unix.Fstatat(threads, name, &st, 0) != nil { // ids are used again: what was opened is this process' thread, or gone
			return true, nil
		}
		told, err := f.mappings(ctx, thread, tid)
		return !told, err
	})
}

// mappings counts those that a process or thread maps, and its program's, which it need not map any more. told: it maps any. Links are
// asked for, not /proc/PID/maps: the kernel makes that of whole paths, as long as they are (package seqfile), but of a link no more than a
// page.
func (f *unnamedFiles) mappings(ctx context.Context, dir, tid int) (told bool, err error) {
	if isDeleted(dir, "exe") {
		f.file(dir, "exe")
	}
	opened := new(struct {
		file *os.File
		err  error
	})
	if !f.guarded(func() {
		fd, err := unix.Openat(dir, "map_files", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if opened.err = err; err == nil {
			opened.file = os.NewFile(uintptr(fd), "map_files") // which closes it where nobody waits any more
		}
	}) {
		return true, f.step(ctx) // another thread's is held up, too
	}
	file := opened.file
	if file == nil {
		f.missed(opened.err, tid)
		return false, f.step(ctx)
	}
	defer file.Close() // once a call that is under way is over
	for buf := make([]byte, 32<<10); ; told = true {
		next := new(mappedFiles)
		if !f.guarded(func() { next.read(file, buf) }) {
			return true, nil
		}
		if next.all == 0 { // its end, or the process is gone
			return told, nil
		}
		for range next.all {
			if err := f.step(ctx); err != nil {
				return true, err
			}
		}
		for _, name := range next.deleted {
			if err := f.step(ctx); err != nil {
				return true, err
			}
			f.file(int(file.Fd()), name)
		}
	}
}

// mappedFiles are some of the files that a process maps: how many, and the links in map_files of those that may have no name.
type mappedFiles struct {
	all     int
	deleted []string
}

// read reads the next of a map_files; none: that was all. Both the list and each link take the process' mmap_lock (v6.12 fs/proc/base.c
// proc_map_files_readdir, map_files_get_link).
func (m *mappedFiles) read(file *os.File, buf []byte) {
	conn, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { // an error: it is closed, and nobody waits any more
		for {
			n, err := unix.Getdents(int(fd), buf)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				return
			}
			for b := buf[:n]; len(b) > 0; {
				e, rest, ok := dirent(b)
				if !ok {
					return
				}
				if b = rest; e.name == "." || e.name == ".." {
					continue
				}
				if m.all++; isDeleted(int(fd), e.name) {
					m.deleted = append(m.deleted, strings.Clone(e.name))
				}
			}
			if m.all > 0 {
				return
			}
		}
	})
}

// file counts what a link of /proc/PID/fd or map_files leads to, if it is a file without a name on a disk.
func (f *unnamedFiles) file(dir int, name string) {
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
			if !f.guarded(func() { told.id, told.ok = projectOf(dir, name) }) {
				return 0, false
			}
			return told.id, told.ok
		})
	}
}

// step is taken for each thing that is looked at. Its error is the end of the turn.
func (f *unnamedFiles) step(ctx context.Context) error {
	if f.steps++; f.steps < 64 {
		return nil
	}
	f.steps = 0
	return f.pace(ctx)
}

// overlay is the upper directory of the overlay that a device is; empty: it is none. A container may have been started since the mounts
// were read, so they are read anew for a device of no disk (v6.12 fs/super.c get_anon_bdev) that is not among them, once in a look.
func (f *unnamedFiles) overlay(device uint64) string {
	dir := f.overlays[device]
	if dir == "" && unix.Major(device) == 0 && f.mounted.Before(f.began) {
		f.readOverlays()
		dir = f.overlays[device]
	}
	return dir
}

// readOverlays finds the host's overlays, and what it has mounted of files without a name.
func (f *unnamedFiles) readOverlays() {
	name := f.proc + "/1/mountinfo"
	f.mounted, f.hosts, f.overlays, f.lacks = time.Now(), nil, nil, true
	if file, err := seqfile.Open(name); err == nil {
		f.overlays, err = parseOverlays(&io.LimitedReader{R: file, N: maxMounts})
		file.Close()
		f.lacks = err != nil
	}
	if file, err := seqfile.Open(name); err == nil {
		var whole bool
		f.hosts, _, whole = f.unnamedMounts(file)
		file.Close()
		f.lacks = f.lacks || !whole
	} else {
		f.lacks = true
	}
}

// parseOverlays finds the upper directories of the overlays in a mountinfo, by device. One that is not absolute says nothing. With
// seqfile.ErrLong there are those that come before that line.
func parseOverlays(mounts io.Reader) (map[uint64]string, error) {
	found := map[uint64]string{}
	_, err := mountinfo.GetMountsFromReader(seqfile.Mounts(mounts), func(m *mountinfo.Info) (skip, stop bool) {
		if upper := upperOption(m.VFSOptions); m.FSType == "overlay" && strings.HasPrefix(upper, "/") && m.Major >= 0 && m.Minor >= 0 {
			found[unix.Mkdev(uint32(m.Major), uint32(m.Minor))] = upper
		}
		return true, false
	})
	if err != nil && !errors.Is(err, seqfile.ErrLong) {
		return nil, err
	}
	return found, err
}
