package read

import (
	"bufio"
	"bytes"
	"context"
	"hash"
	"hash/fnv"
	"hash/maphash"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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

// mountsOf is what a thread has mounted: devices by the ids of mounts.
func mountsOf(fds int) map[uint64]uint64 {
	found := map[uint64]uint64{}
	fd, err := unix.Openat(fds, "../mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return found
	}
	file := os.NewFile(uintptr(fd), "mountinfo")
	defer file.Close()
	eachMount(file, func(m *mount) { found[m.id] = m.device })
	return found
}

// keptByMounts counts the files without a name that a thread has mounted: a volumeMount whose subPath is a file is a mount of it, and who
// has namespaces of its own may mount what it likes. Threads that have the same mounted, from the same root, are asked once.
func (f *unnamedFiles) keptByMounts(ctx context.Context, dir int, thread string) error {
	var text [2 * 4096]byte
	n, err := unix.Readlinkat(dir, thread+"ns/mnt", text[:4096])
	if err != nil {
		return nil // it is gone
	}
	more, err := unix.Readlinkat(dir, thread+"root", text[n:])
	if err != nil && err != unix.ENAMETOOLONG {
		return nil
	}
	if space := maphash.Bytes(f.seed, text[:n+max(more, 0)]); f.spaces[space] {
		return nil
	} else if len(f.spaces) < maxLinks {
		f.spaces[space] = true
	}
	fd, err := unix.Openat(dir, thread+"mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return f.step(ctx)
	}
	file := os.NewFile(uintptr(fd), "mountinfo")
	defer file.Close()
	var over error
	whole := eachMount(file, func(m *mount) {
		if over == nil {
			over = f.step(ctx)
		}
		if over != nil || !m.unnamed {
			return
		}
		if st, project := f.mountedFile(dir, thread+"root", m); st != nil && !f.isHosts(m, st) {
			f.count(st, project)
		}
	})
	f.out.cut = f.out.cut || !whole
	return over
}

// keptByHost counts those that the kubelet has mounted for the pod's volumes, for no process of it need live (pkg/volume/util/subpath
// subpath_linux.go: pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX).
func (f *unnamedFiles) keptByHost(ctx context.Context) {
	f.out.cut = f.out.cut || !f.hostsWhole && f.overlays != nil
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
// watches the node, but whose volume it is of, if any's.
func (f *unnamedFiles) isHosts(m *mount, st *unix.Statx_t) bool {
	for i := range f.hosts {
		if h := &f.hosts[i]; h.device == m.device && h.root == m.root {
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

// shortLines leaves out the lines of a mountinfo that are longer than its parser takes, which gives up all of it then. Whoever may write to
// a directory that is mounted can make one so; a container's root is no such.
type shortLines struct {
	in   *bufio.Reader
	line []byte
}

func newShortLines(r io.Reader) *shortLines {
	return &shortLines{in: bufio.NewReaderSize(r, bufio.MaxScanTokenSize-1)}
}

func (s *shortLines) Read(b []byte) (int, error) {
	for long := false; len(s.line) == 0; {
		line, err := s.in.ReadSlice('\n')
		full := err == bufio.ErrBufferFull
		if !full && !long {
			s.line = line
		}
		if long = full; err != nil && !full && len(line) == 0 {
			return 0, err
		}
	}
	n := copy(b, s.line)
	s.line = s.line[n:]
	return n, nil
}
