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

// deleted is the suffix that the kernel appends to the path of a file without a name (v6.12
// fs/d_path.c path_with_deleted). The name of an existing file may have this suffix too. Checking
// the suffix avoids a statx of all other files, which may be on a network file system with an
// unreachable server.
const deleted = " (deleted)"

// guarded makes a call about the current process that may block (guard). ok: the call returned.
// Otherwise guarded marks the look as cut off.
func (f *Finder) guarded(call func()) (ok bool) {
	if f.onDisk {
		ok = f.guard.do(f.uid+" on disks", -f.pid, call) == nil
	} else {
		ok = f.guard.do(f.uid, f.pid, call) == nil
	}
	f.out.cut = f.out.cut || !ok
	return ok
}

// round limits the part of one process that is read: the descriptors per thread, and the number of
// separate descriptor tables.
type round struct{ fds, sets int }

var (
	firstRound = round{maxFirst, maxFileSets}
	lastRound  = round{1 << 30, maxProcesses}
)

// process searches the descriptors and mappings of one process, within the limits of a round. more:
// some descriptors were left out. An error ends the turn; a process that is gone is no error.
func (f *Finder) process(ctx context.Context, pid int, within round) (more bool, err error) {
	dir, err := unix.Open(fmt.Sprintf("%s/%d", f.proc, pid),
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	f.pid, f.member = pid, false
	if err != nil {
		f.noteUnread(err, pid)
		return false, f.step(ctx)
	}
	defer unix.Close(dir) // while dir is open, it refers to this process, or to no process
	// A thread may have a separate descriptor table (unshare(2), CLONE_FILES), and the first
	// one may end before the others.
	var sets fileSets
	same := func(other, tid int) (order int, ok bool) {
		result := new(int)
		if ok = f.guarded(func() { *result = sameFiles(other, tid) }); ok {
			order = *result
		}
		return order, ok
	}
	err = f.entries(ctx, dir, "task", pid, func(_ int, name string) (bool, error) {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return true, nil
		}
		// the thread may have its own directories (CLONE_FS)
		for _, link := range [...]string{"/cwd", "/root"} {
			if link = "task/" + name + link; isDeleted(dir, link) {
				f.countLink(dir, link)
			}
		}
		if err := f.countMounts(ctx, dir, "task/"+name+"/", tid); err != nil {
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
				f.onDisk = f.guard.isStuck(f.uid, f.pid) && f.isOnDisk(fds, fd)
				f.countLink(fds, fd)
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

// noteUnread records that a file of a thread could not be opened. The result is then a lower bound,
// unless the thread has ended or access is denied. The kernel also reports such a file as absent if
// it has no memory for the inode (v6.12 fs/proc/base.c proc_pid_instantiate,
// proc_pident_instantiate), so a second system call must confirm that the thread is gone.
func (f *Finder) noteUnread(err error, tid int) {
	switch {
	// the thread has ended and was not reaped yet (v6.12 fs/proc_namespace.c
	// mounts_open_common)
	case errors.Is(err, unix.EINVAL):
	case errors.Is(err, os.ErrPermission):
	case (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)) &&
		unix.Tgkill(f.pid, tid, 0) == unix.ESRCH:
	default:
		f.out.cut = true
	}
}

// isOnDisk reports whether a descriptor's file is on a disk, by the mounts of its thread. A pod
// cannot block this call, unless it replaces the file behind the descriptor meanwhile. Such files
// are therefore counted even if the process, or its pod, blocks other calls. The kernel builds
// fdinfo as a whole, with a line for each lock on the file (v6.12 fs/locks.c show_fd_locks).
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
	return known && (f.diskSet[device] || f.overlay(device) != "")
}

// readAt reads the beginning of a file of a process; 0: the process is gone.
func readAt(dir int, name string, buf []byte) int {
	file, err := seqfile.OpenAt(dir, name)
	if err != nil {
		return 0
	}
	defer file.Close()
	n, _ := file.Read(buf) // 0 after an error
	return n
}

// isDeleted reads the path of a link without following it. If the path is longer than the
// kernel reports (v6.12 fs/proc/base.c do_proc_readlink), it returns true, so that the file
// itself is checked.
func isDeleted(dir int, name string) bool {
	var text [4096]byte
	n, err := unix.Readlinkat(dir, name, text[:])
	return err == unix.ENAMETOOLONG || err == nil &&
		(n == len(text) || bytes.HasSuffix(text[:n], []byte(deleted)))
}

// entries visits the entries of a directory of a thread until visit returns false. A missing
// directory counts as empty.
func (f *Finder) entries(ctx context.Context, at int, name string, tid int,
	visit func(dir int, name string) (bool, error)) error {
	dir, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		f.noteUnread(err, tid)
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

// step is called for each item that is read, and calls pace once in 64 calls. Its error ends the
// turn.
func (f *Finder) step(ctx context.Context) error {
	if f.steps++; f.steps < 64 {
		return nil
	}
	f.steps = 0
	return f.pace(ctx)
}
