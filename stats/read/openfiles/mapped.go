package openfiles

import (
	"context"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/stats/read/walk"
)

// mapped counts the files without a name that a process maps: their descriptors may be closed. A
// thread that has ended tells of none, and the first may have ended before the others: then another
// is asked, for all of a process map the same (clone(2), CLONE_THREAD).
func (f *Finder) mapped(ctx context.Context, dir, pid int) error {
	told, err := f.mappings(ctx, dir, pid)
	if told || err != nil {
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
			f.missed(err, tid)
			return true, nil
		}
		defer unix.Close(thread)
		var st unix.Stat_t
		// ids are used again: what was opened is this process' thread, or gone
		if unix.Fstatat(threads, name, &st, 0) != nil {
			return true, nil
		}
		told, err := f.mappings(ctx, thread, tid)
		return !told, err
	})
}

// mappings counts those that a process or thread maps, and its program's, which it need not map any
// more. told: it maps any. Links are asked for, not /proc/PID/maps: the kernel makes that of whole
// paths, as long as they are (package seqfile), but of a link no more than a page.
func (f *Finder) mappings(ctx context.Context, dir, tid int) (told bool, err error) {
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

// mappedFiles are some of the files that a process maps: how many, and the links in map_files of
// those that may have no name.
type mappedFiles struct {
	all     int
	deleted []string
}

// read reads the next of a map_files; none: that was all. Both the list and each link take the
// process' mmap_lock (v6.12 fs/proc/base.c proc_map_files_readdir, map_files_get_link).
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
