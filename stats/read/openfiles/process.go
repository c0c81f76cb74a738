package openfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
	"jettison/stats/read/mounts"
	"jettison/stats/read/walk"
)

// deleted is what the kernel writes behind the path of a file without a name (v6.12 fs/d_path.c
// path_with_deleted). A file may be named so too: this saves asking for the others, which may lie
// on a network file system whose server is gone.
const deleted = " (deleted)"

// guarded makes a call about the process at hand that may be held up (guard). ok: it was made; else
// what is found is a lower bound.
func (f *Finder) guarded(call func()) (ok bool) {
	if f.onDisk {
		ok = f.guard.do(f.uid+" on disks", -f.pid, call) == nil
	} else {
		ok = f.guard.do(f.uid, f.pid, call) == nil
	}
	f.out.cut = f.out.cut || !ok
	return ok
}

// round bounds what is looked at of one process: descriptors of a thread, and threads with
// descriptors of their own.
type round struct{ fds, sets int }

var (
	firstRound = round{maxFirst, maxFileSets}
	lastRound  = round{1 << 30, maxProcesses}
)

// process looks at the descriptors and mappings of one process, within a round's bounds. more: it
// has more. An error is the end of the turn; a process that is gone is none.
func (f *Finder) process(ctx context.Context, pid int, within round) (more bool, err error) {
	dir, err := unix.Open(fmt.Sprintf("%s/%d", f.proc, pid),
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	f.pid, f.member = pid, false
	if err != nil {
		f.missed(err, pid)
		return false, f.step(ctx)
	}
	defer unix.Close(dir) // until then it is this very process, or none
	// A thread may have descriptors of its own (unshare(2), CLONE_FILES), and the first one may have
	// ended before the others.
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
		// it may be in directories of its own (CLONE_FS)
		for _, link := range [...]string{"/cwd", "/root"} {
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

// missed takes that something of a thread could not be opened: unless it has ended, or that is
// refused, what is found is a lower bound. The kernel calls a file of a process absent, too, where
// it has no memory for its inode (v6.12 fs/proc/base.c proc_pid_instantiate,
// proc_pident_instantiate), so another system call has to say that it is gone.
func (f *Finder) missed(err error, tid int) {
	switch {
	// it has ended, and nobody has waited for it (v6.12 fs/proc_namespace.c mounts_open_common)
	case errors.Is(err, unix.EINVAL):
	case errors.Is(err, os.ErrPermission):
	case (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)) &&
		unix.Tgkill(f.pid, tid, 0) == unix.ESRCH:
	default:
		f.out.cut = true
	}
}

// isOnDisk reports whether a descriptor's file lies on a disk, by the mounts of its thread. Nobody
// can hold up a look at that, unless by giving the descriptor to another file meanwhile: it is not
// left out where the process, or its pod, holds up other calls. fdinfo has a line for each lock
// that is taken on the file (v6.12 fs/locks.c show_fd_locks), and is made as a whole.
func (f *Finder) isOnDisk(fds int, name string) bool {
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
		f.mounts = mounts.Devices(fds)
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

// isDeleted reads where a link leads, without going there. Of a path that is longer than the kernel
// tells (v6.12 fs/proc/base.c do_proc_readlink) it is not known, so that the file is asked.
func isDeleted(dir int, name string) bool {
	var text [4096]byte
	n, err := unix.Readlinkat(dir, name, text[:])
	return err == unix.ENAMETOOLONG || err == nil &&
		(n == len(text) || bytes.HasSuffix(text[:n], []byte(deleted)))
}

// entries visits what is in a directory of a thread until visit says false. One that is gone has
// nothing.
func (f *Finder) entries(ctx context.Context, at int, name string, tid int,
	visit func(dir int, name string) (bool, error)) error {
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
			e, rest, ok := walk.Dirent(b)
			if !ok {
				return nil
			}
			if b = rest; e.Name == "." || e.Name == ".." {
				continue
			}
			if err := f.step(ctx); err != nil {
				return err
			}
			if more, err := visit(dir, e.Name); err != nil || !more {
				return err
			}
		}
	}
}

// step is taken for each thing that is looked at. Its error is the end of the turn.
func (f *Finder) step(ctx context.Context) error {
	if f.steps++; f.steps < 64 {
		return nil
	}
	f.steps = 0
	return f.pace(ctx)
}
