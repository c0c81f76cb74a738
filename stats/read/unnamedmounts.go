package read

import (
	"bufio"
	"bytes"
	"context"
	"hash"
	"hash/fnv"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// mount is what a line of a mountinfo says (proc_pid_mountinfo(5)).
type mount struct {
	id      uint64
	device  uint64
	point   string // where, from the root of who has it mounted
	unnamed bool   // what is mounted has no name any more
	root    uint64 // a hash of the path it had on its device, where it is unnamed
}

// maxMountPoint is how much of a mount point is kept. What is mounted may lie as far down as who may write to its directory likes, so that
// nothing of its path is kept but whether the file has it still.
const maxMountPoint = 1 << 20

// rootDeleted is what the kernel writes behind the path of a mounted file without a name: no name has a slash (v6.12 fs/d_path.c
// dentry_path).
const rootDeleted = "//deleted"

// eachMount visits the lines of a mountinfo. whole: there are no others.
func eachMount(file io.Reader, visit func(*mount)) (whole bool) {
	limit := &io.LimitedReader{R: file, N: maxMounts}
	in := bufio.NewReaderSize(limit, 16<<10)
	for line := (mountLine{root: fnv.New64a()}); ; {
		piece, err := in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return err == io.EOF && limit.N > 0
		}
		line.add(piece)
		if err != nil {
			continue // the line goes on
		}
		if m, ok := line.parse(); ok {
			visit(&m)
		}
		line.root.Reset()
		line = mountLine{root: line.root}
	}
}

// mountLine is what is needed of a line that comes in pieces:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
type mountLine struct {
	field  int
	fields [5][]byte // of that of the root the end
	root   hash.Hash64
}

func (l *mountLine) add(piece []byte) {
	for len(piece) > 0 && l.field < len(l.fields) {
		part, rest, ended := bytes.Cut(piece, []byte(" "))
		text := &l.fields[l.field]
		if l.field == 3 {
			_, _ = l.root.Write(part) // it cannot fail
			*text = append(*text, part[max(0, len(part)-len(rootDeleted)):]...)
			*text = (*text)[max(0, len(*text)-len(rootDeleted)):]
		} else {
			*text = append(*text, part[:min(len(part), maxMountPoint-len(*text))]...)
		}
		if piece = rest; ended {
			l.field++
		}
	}
}

func (l *mountLine) parse() (m mount, ok bool) {
	major, minor, _ := strings.Cut(string(l.fields[2]), ":")
	id, err := strconv.ParseUint(string(l.fields[0]), 10, 64)
	x, err1 := strconv.ParseUint(major, 10, 32)
	y, err2 := strconv.ParseUint(minor, 10, 32)
	if l.field < len(l.fields) || err != nil || err1 != nil || err2 != nil {
		return m, false
	}
	m = mount{id: id, device: unix.Mkdev(uint32(x), uint32(y)), unnamed: string(l.fields[3]) == rootDeleted}
	if m.unnamed {
		m.point, m.root = unescape.Replace(string(l.fields[4])), l.root.Sum64()
	}
	return m, true
}

// unnamedMounts are those of files without a name in a mountinfo, and how many mounts there are in all. whole: there are no others.
func (f *unnamedFiles) unnamedMounts(file io.Reader) (found []mount, all int, whole bool) {
	room := 4 * maxMountPoint
	left := false
	whole = eachMount(file, func(m *mount) {
		if all++; !m.unnamed {
			return
		}
		if room -= len(m.point); room < 0 || len(found) >= maxLinks {
			left = true
			return
		}
		found = append(found, *m)
	})
	return found, all, whole && !left
}

// mountsOf is what a thread has mounted: devices by the ids of mounts.
func mountsOf(fds int) map[uint64]uint64 {
	found := map[uint64]uint64{}
	file, err := seqfile.OpenAt(fds, "../mountinfo")
	if err != nil {
		return found
	}
	defer file.Close()
	eachMount(file, func(m *mount) { found[m.id] = m.device })
	return found
}

// mountSpace is what decides which mounts a thread sees: its namespace, and where in that its root is. That is a mount and a directory of
// it, and no path: something else may be mounted over one, with another thread's root on it.
type mountSpace struct {
	namespace           string
	device, inode, root uint64 // root: the id of the mount; 0: not known (before Linux 5.8)
}

// spaceOf finds that of a thread. ok: it is known, which it is not where it is held up.
func (f *unnamedFiles) spaceOf(dir int, thread string) (space mountSpace, ok bool) {
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
		const flags, want = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT, unix.STATX_INO | unix.STATX_MNT_ID
		told.ok = unix.Statx(dir, thread+"root", flags, want, &told.st) == nil
	}) || !told.ok {
		return space, false
	}
	space = mountSpace{namespace: string(text[:n]), device: unix.Mkdev(told.st.Dev_major, told.st.Dev_minor), inode: told.st.Ino}
	if told.st.Mask&unix.STATX_MNT_ID != 0 {
		space.root = told.st.Mnt_id
	}
	return space, true
}

// keptByMounts counts the files without a name that a thread has mounted: a volumeMount whose subPath is a file is a mount of it, and who
// has namespaces of its own may mount what it likes. Threads that have the same mounted, from the same root, are asked once.
func (f *unnamedFiles) keptByMounts(ctx context.Context, dir int, thread string, tid int) error {
	if space, ok := f.spaceOf(dir, thread); ok && f.spaces[space] {
		return nil
	} else if ok && len(f.spaces) < maxLinks {
		f.spaces[space] = true
	}
	file, err := seqfile.OpenAt(dir, thread+"mountinfo")
	if err != nil {
		f.missed(err, tid)
		return f.step(ctx)
	}
	found, all, whole := f.unnamedMounts(file)
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
		if st, project := f.mountedFile(dir, thread+"root", &found[i]); st != nil && !f.isHosts(&found[i], st) {
			f.count(st, project)
		}
	}
	return nil
}

// keptByHost counts those that the kubelet has mounted for the pod's volumes, for no process of it need live (pkg/volume/util/subpath
// subpath_linux.go: pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX).
func (f *unnamedFiles) keptByHost(ctx context.Context) {
	var of []mount
	for i := range f.hosts {
		if strings.Contains(f.hosts[i].point, "/pods/"+f.uid+"/volume-subpaths/") {
			of = append(of, f.hosts[i])
		}
	}
	if len(of) == 0 {
		return
	}
	f.pid, f.member = 1, true // it need not be a member: the path says whose it is
	for i := range of {
		if f.step(ctx) != nil {
			f.out.cut = true
			return
		}
		if st, project := f.mountedFile(unix.AT_FDCWD, f.proc+"/1/root", &of[i]); st != nil {
			f.count(st, project)
		}
	}
}

// isHosts reports whether the host has a file mounted, too. Then it is not that pod's that sees all of the host's mounts, as one does that
// watches the node, but whose volume it is of, if any's. The file may have lost its name since the host's mounts were read, so for one that
// is not among them they are read anew, once in a look.
func (f *unnamedFiles) isHosts(m *mount, st *unix.Statx_t) bool {
	if f.amongHosts(m, st) {
		return true
	}
	if f.again {
		return false
	}
	f.again = true
	f.readOverlays()
	return f.amongHosts(m, st)
}

func (f *unnamedFiles) amongHosts(m *mount, st *unix.Statx_t) bool {
	hosts := f.hosts // which a look at one may read anew
	for i := range hosts {
		if h := &hosts[i]; h.device == m.device && h.root == m.root {
			if its, _ := f.mountedFile(unix.AT_FDCWD, f.proc+"/1/root", h); its != nil && its.Ino == st.Ino {
				return true
			}
		}
	}
	return false
}

// mountedFile looks at a file without a name on a disk that is mounted somewhere below a root; nil: there is none. One that is not found
// there, for something else was mounted over it, may take any room.
func (f *unnamedFiles) mountedFile(dir int, root string, m *mount) (st *unix.Statx_t, ofProject func() (uint32, bool)) {
	if !f.now[m.device] && f.overlay(m.device) == "" {
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
		fd, err := openBelow(dir, root, m.point)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		const want = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, want, &got.st)
		if got.ok = err == nil && got.st.Mnt_id == m.id; got.ok && counted {
			got.project, got.known = projectOf(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd))
		}
	}) {
		return nil, nil
	}
	if f.out.cut = f.out.cut || !got.ok; !got.ok || got.st.Nlink > 0 {
		return nil, nil
	}
	return &got.st, func() (uint32, bool) { return got.project, got.known }
}

// openBelow opens a path of any length below a root for its metadata. It goes through no link: a mountinfo has none.
func openBelow(dir int, root, name string) (fd int, err error) {
	const atOnce = 15 // names, of 255 bytes at most: with fewer than PATH_MAX together
	if fd, err = unix.Openat(dir, root, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
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
