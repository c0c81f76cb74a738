package openfiles

import (
	"context"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/stats/read/walk"
)

// mapped counts the files without a name that a process maps, because their descriptors may be
// closed. A thread that has ended shows no mappings, and the first thread may end before the
// others. In that case mapped reads another thread, because all threads of a process share its
// mappings (clone(2), CLONE_THREAD).
func (f *Finder) mapped(ctx context.Context, dir, pid int) error {
	found, err := f.mappings(ctx, dir, pid)
	if found || err != nil {
		return err
	}
	return f.entries(ctx, dir, "task", pid, func(threads int, name string) (bool, error) {
		tid, err := strconv.Atoi(name)
		if err != nil || tid == pid {
			return true, nil
		}
		// map_files is in /proc/TID only, not in /proc/PID/task/TID (v6.12 fs/proc/base.c
		// tid_base_stuff).
		thread, err := unix.Open(f.proc+"/"+name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			f.noteUnread(err, tid)
			return true, nil
		}
		defer unix.Close(thread)
		var st unix.Stat_t
		// process IDs are reused: the opened directory is this process' thread, or gone
		if unix.Fstatat(threads, name, &st, 0) != nil {
			return true, nil
		}
		found, err := f.mappings(ctx, thread, tid)
		return !found, err
	})
}

// mappings counts the files that a process or thread maps, and its program, which may no longer be
// mapped. found: the process maps any file. It reads links instead of /proc/PID/maps: the kernel
// builds that file from whole paths of any length (package seqfile), but a link from no more than a
// page.
func (f *Finder) mappings(ctx context.Context, dir, tid int) (found bool, err error) {
	if isDeleted(dir, "exe") {
		f.countLink(dir, "exe")
	}
	opened := new(struct {
		file *os.File
		err  error
	})
	if !f.guarded(func() {
		fd, err := unix.Openat(dir, "map_files", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if opened.err = err; err == nil {
			// so that it is closed even after the wait was abandoned
			opened.file = os.NewFile(uintptr(fd), "map_files")
		}
	}) {
		return true, f.step(ctx) // the call would block for another thread, too
	}
	file := opened.file
	if file == nil {
		f.noteUnread(opened.err, tid)
		return false, f.step(ctx)
	}
	defer file.Close() // closes after a call in flight returns
	for buf := make([]byte, 32<<10); ; found = true {
		next := new(mappedFiles)
		if !f.guarded(func() { next.read(file, buf) }) {
			return true, nil
		}
		if next.all == 0 { // the end, or the process is gone
			return found, nil
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
			f.countLink(int(file.Fd()), name)
		}
	}
}

// mappedFiles is a batch of the files that a process maps: their number, and the links in
// map_files of those that may have no name.
type mappedFiles struct {
	all     int
	deleted []string
}

// read reads the next batch of map_files. An empty batch means the end. Both the list and each link
// take the process' mmap_lock (v6.12 fs/proc/base.c proc_map_files_readdir, map_files_get_link).
func (m *mappedFiles) read(file *os.File, buf []byte) {
	conn, err := file.SyscallConn()
	if err != nil {
		return
	}
	// an error means that the file is closed, because the wait was abandoned
	_ = conn.Control(func(fd uintptr) {
		for {
			n, err := unix.Getdents(int(fd), buf)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				return
			}
			for b := buf[:n]; len(b) > 0; {
				e, rest, ok := walk.Dirent(b)
				if !ok {
					return
				}
				if b = rest; e.Name == "." || e.Name == ".." {
					continue
				}
				if m.all++; isDeleted(int(fd), e.Name) {
					m.deleted = append(m.deleted, strings.Clone(e.Name))
				}
			}
			if m.all > 0 {
				return
			}
		}
	})
}
