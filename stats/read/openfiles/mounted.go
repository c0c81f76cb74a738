package openfiles

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
	"jettison/stats/read/mounts"
	"jettison/stats/read/quota"
)

// mountSpace is what decides which mounts a thread sees: its namespace, and where in that its root
// is. That is a mount and a directory of it, and no path: something else may be mounted over one,
// with another thread's root on it.
type mountSpace struct {
	namespace           string
	device, inode, root uint64 // root: the id of the mount; 0: not known (before Linux 5.8)
}

// spaceOf finds that of a thread. ok: it is known, which it is not where it is held up.
func (f *Finder) spaceOf(dir int, thread string) (space mountSpace, ok bool) {
	var text [64]byte
	n, err := unix.Readlinkat(dir, thread+"ns/mnt", text[:])
	if err != nil {
		return space, false // it is gone
	}
	told := new(struct {
		st unix.Statx_t
		ok bool
	})
	if !f.guarded(func() {
		const flags, want = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT,
			unix.STATX_INO | unix.STATX_MNT_ID
		told.ok = unix.Statx(dir, thread+"root", flags, want, &told.st) == nil
	}) || !told.ok {
		return space, false
	}
	space = mountSpace{namespace: string(text[:n]), device: unix.Mkdev(told.st.Dev_major,
		told.st.Dev_minor), inode: told.st.Ino}
	if told.st.Mask&unix.STATX_MNT_ID != 0 {
		space.root = told.st.Mnt_id
	}
	return space, true
}

// keptByMounts counts the files without a name that a thread has mounted: a volumeMount whose
// subPath is a file is a mount of it, and who has namespaces of its own may mount what it likes.
// Threads that have the same mounted, from the same root, are asked once.
func (f *Finder) keptByMounts(ctx context.Context, dir int, thread string, tid int) error {
	if space, ok := f.spaceOf(dir, thread); ok && f.spaces[space] {
		return nil
	} else if ok && len(f.spaces) < maxInodes {
		f.spaces[space] = true
	}
	file, err := seqfile.OpenAt(dir, thread+"mountinfo")
	if err != nil {
		f.missed(err, tid)
		return f.step(ctx)
	}
	found, all, whole := mounts.Unnamed(file)
	file.Close()
	f.out.cut = f.out.cut || !whole
	for range all {
		if err := f.step(ctx); err != nil {
			return err
		}
	}
	for i := range found {
		if err := f.step(ctx); err != nil {
			return err
		}
		if st, project := f.mountedFile(dir, thread+"root", &found[i]); st != nil &&
			!f.isHosts(&found[i], st) {
			f.count(st, project)
		}
	}
	return nil
}

// mountedFile looks at a file without a name on a disk that is mounted somewhere below a root; nil:
// there is none. One that is not found there, for something else was mounted over it, may take any
// room.
func (f *Finder) mountedFile(dir int, root string, m *mounts.Mount) (st *unix.Statx_t,
	ofProject func() (uint32, bool)) {
	if !f.now[m.Device] && f.overlay(m.Device) == "" {
		return nil, nil
	}
	type told struct {
		st      unix.Statx_t
		ok      bool
		project uint32
		known   bool
	}
	got := new(told)
	counted := len(f.counted) > 0
	if !f.guarded(func() {
		fd, err := openBelow(dir, root, m.Point)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		const want = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, want, &got.st)
		if got.ok = err == nil && got.st.Mnt_id == m.ID; got.ok && counted {
			got.project, got.known = quota.OfFile(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd))
		}
	}) {
		return nil, nil
	}
	if f.out.cut = f.out.cut || !got.ok; !got.ok || got.st.Nlink > 0 {
		return nil, nil
	}
	return &got.st, func() (uint32, bool) { return got.project, got.known }
}

// openBelow opens a path of any length below a root for its metadata. It goes through no link: a
// mountinfo has none.
func openBelow(dir int, root, name string) (fd int, err error) {
	const atOnce = 15 // names, of 255 bytes at most: with fewer than PATH_MAX together
	if fd, err = unix.Openat(dir, root, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	for names := strings.Split(strings.Trim(name, "/"), "/"); len(names) > 0; {
		n := min(atOnce, len(names))
		next, err := unix.Openat2(fd, strings.Join(names[:n], "/"), &how)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd, names = next, names[n:]
	}
	return fd, nil
}
