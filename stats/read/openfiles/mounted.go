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

// mountSpace identifies the mounts that a thread sees: its mount namespace, and its root in that
// namespace. The root is a mount and a directory in that mount, not a path: another file system may
// be mounted over a path while another thread has its root there.
type mountSpace struct {
	namespace           string
	device, inode, root uint64 // root: the id of the mount; 0: not known (before Linux 5.8)
}

// spaceOf returns the mountSpace of a thread. ok is false if it is unknown, for example because
// the call is blocked.
func (f *Finder) spaceOf(dir int, thread string) (space mountSpace, ok bool) {
	var text [64]byte
	n, err := unix.Readlinkat(dir, thread+"ns/mnt", text[:])
	if err != nil {
		return space, false // the thread is gone
	}
	result := new(struct {
		st unix.Statx_t
		ok bool
	})
	if !f.guarded(func() {
		const flags, want = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT,
			unix.STATX_INO | unix.STATX_MNT_ID
		result.ok = unix.Statx(dir, thread+"root", flags, want, &result.st) == nil
	}) || !result.ok {
		return space, false
	}
	space = mountSpace{namespace: string(text[:n]), device: unix.Mkdev(result.st.Dev_major,
		result.st.Dev_minor), inode: result.st.Ino}
	if result.st.Mask&unix.STATX_MNT_ID != 0 {
		space.root = result.st.Mnt_id
	}
	return space, true
}

// countMounts counts the files without a name that a thread has mounted: a volumeMount with a
// file as its subPath is a mount of that file, and a process in its own namespaces may mount
// any file. Threads with the same mounts and root are read once.
func (f *Finder) countMounts(ctx context.Context, dir int, thread string, tid int) error {
	if space, ok := f.spaceOf(dir, thread); ok && f.mountSpaces[space] {
		return nil
	} else if ok && len(f.mountSpaces) < maxInodes {
		f.mountSpaces[space] = true
	}
	file, err := seqfile.OpenAt(dir, thread+"mountinfo")
	if err != nil {
		f.noteUnread(err, tid)
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
			!f.mountedOnHost(&found[i], st) {
			f.count(st, project)
		}
	}
	return nil
}

// mountedFile reads the metadata of a mounted file without a name below a root; nil: the file is
// not on a disk, or is not found. If another mount covers the file, its size is unknown and the
// look counts as cut off.
func (f *Finder) mountedFile(dir int, root string, m *mounts.Mount) (st *unix.Statx_t,
	ofProject func() (uint32, bool)) {
	if !f.diskSet[m.Device] && f.overlay(m.Device) == "" {
		return nil, nil
	}
	type answer struct {
		st      unix.Statx_t
		ok      bool
		project uint32
		known   bool
	}
	got := new(answer)
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

// openBelow opens a path of any length below a root for its metadata. It follows no link,
// because mount points contain no links.
func openBelow(dir int, root, name string) (fd int, err error) {
	const atOnce = 15 // names of at most 255 bytes, so that they are shorter than PATH_MAX together
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
