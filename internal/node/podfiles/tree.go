package podfiles

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// What a tenant decides - how many files, how deep - must not decide how much memory and how many
// descriptors it takes.
const (
	maxLevels = 48   // directories open at a time; deeper ones are moved to the top of what is removed
	maxBatch  = 1024 // names of directories kept of one level; the rest is listed when those are gone
	minBatch  = 4    // the same, where the levels above keep maxNames already
	maxNames  = 8192 // names kept of all levels together, but for the minBatch of each
	maxPasses = 100  // through one directory that something still writes to
	// entries remembered as not to be removed; beyond, they are tried, and counted, again
	maxStuck = 4096
)

var (
	errMounted = errors.New("a file system is mounted there")
	errBusy    = errors.New("something writes to it")
	errForeign = errors.New("not a directory")
	errOld     = errors.New("this kernel does not tell mount points (5.8 does)")
)

// tree removes directories and keeps the account of it.
type tree struct {
	result  Result
	path    string // where the names in errors begin
	levels  []level
	names   int // in below of all levels
	buf     []byte
	stuck   map[id]bool // could not be removed
	first   error       // what was the matter with the first of them
	others  int         // how many more there were
	hoisted int
	each    func(dir int, name string) // tests: called before each entry; nil: nothing is
	// unmount takes away what is mounted on an entry of the top directory; nil: nothing may be.
	unmount func(dir int, name string) error
}

// id tells one inode of this removal from another.
type id struct {
	major, minor uint32
	ino          uint64
}

// level is a directory that was gone into.
type level struct {
	name    string // in the level above
	id      id
	fd      int
	below   []string // directories in it that were listed and not gone into yet
	next    int64    // where in the directory listing goes on
	more    bool     // it does
	removed bool     // something, in this pass
	kept    bool     // something in it cannot be removed
	passes  int
}

func newTree(path string) *tree {
	return &tree{path: path, buf: make([]byte, 32<<10), stuck: map[id]bool{}}
}

// into puts a name before those in errors, until the function that it returns is called (more than
// once does not matter).
func (t *tree) into(name string) func() {
	before := t.path
	t.path += "/" + name
	return func() { t.path = before }
}

// error is what the whole removal ends with.
func (t *tree) error(err error) error {
	switch {
	case err != nil:
		return err
	case t.others > 0:
		return fmt.Errorf("%w (and %d more)", t.first, t.others)
	}
	return t.first
}

// keep notes that an entry of the lowest level stays, and why.
func (t *tree) keep(l *level, of id, name string, err error) {
	if l != nil {
		l.kept = true
	}
	if of != (id{}) && len(t.stuck) < maxStuck {
		t.stuck[of] = true
	}
	if t.first != nil {
		t.others++
		return
	}
	path := t.path
	for i := range t.levels {
		path += "/" + t.levels[i].name
	}
	if path += "/" + name; len(path) > 1000 {
		path = path[:500] + "..." + path[len(path)-500:]
	}
	t.first = fmt.Errorf("%q: %w", path, err)
}

// look asks what an entry is, without following it if it is a symbolic link.
func look(dir int, name string) (st unix.Statx_t, of id, err error) {
	for {
		err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
			unix.STATX_TYPE|unix.STATX_NLINK|unix.STATX_INO|unix.STATX_BLOCKS, &st)
		if err != unix.EINTR {
			break
		}
	}
	if err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = errOld
	}
	return st, id{st.Dev_major, st.Dev_minor, st.Ino}, err
}

func mounted(st *unix.Statx_t) bool { return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }

func isDir(st *unix.Statx_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// open opens a directory in a directory, and nothing else: EXDEV: it is a mount point (a btrfs
// subvolume is none); ELOOP or ENOTDIR: it is no directory.
func open(dir int, name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		// EAGAIN: a rename raced with it (openat2(2))
		if err == nil || err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// openDir opens a directory that is to be there, or not: -1. What else there is stays, and is
// noted.
func (t *tree) openDir(dir int, name string) int {
	fd, err := open(dir, name)
	switch err {
	case nil:
		return fd
	case unix.ENOENT:
	case unix.EXDEV:
		t.keep(nil, id{}, name, errMounted)
	case unix.ENOTDIR, unix.ELOOP:
		t.keep(nil, id{}, name, errForeign)
	default:
		t.keep(nil, id{}, name, err)
	}
	return -1
}

// remove removes a directory with all that is in it. Its error, ctx's for the most part, ends the
// removal; what stays is only noted.
func (t *tree) remove(ctx context.Context, dir int, name string) (err error) {
	fd := t.openDir(dir, name)
	if fd < 0 {
		return nil
	}
	t.levels = append(t.levels[:0], level{name: name, fd: fd, more: true})
	defer func() { t.leave(0) }()
	for {
		l := &t.levels[len(t.levels)-1]
		switch n := len(l.below); {
		case n > 0:
			below := l.below[n-1]
			l.below[n-1] = ""
			l.below = l.below[:n-1]
			t.names--
			t.descend(l, below)
		case l.more:
			err = t.list(ctx, l)
		// some file systems skip entries when others are removed
		case l.kept && l.removed && l.passes < maxPasses:
			l.again()
		default:
			above := dir
			if n := len(t.levels); n > 1 {
				above = t.levels[n-2].fd
			}
			if done := t.ascend(above); done {
				return nil
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// again has a directory listed from its start.
func (l *level) again() { l.next, l.more, l.removed, l.passes = 0, true, false, l.passes+1 }

// leave forgets all levels from one on.
func (t *tree) leave(from int) {
	for i := from; i < len(t.levels); i++ {
		unix.Close(t.levels[i].fd)
		t.names -= len(t.levels[i].below)
		t.levels[i] = level{}
	}
	t.levels = t.levels[:from]
}

// descend goes into a directory of the lowest level. One too deep is moved to the top instead: no
// file system on which emptyDirs or logs lie refuses that, and within what is removed it does no
// harm.
func (t *tree) descend(l *level, name string) {
	st, of, err := look(l.fd, name)
	if err == unix.ENOENT || err == nil && t.stuck[of] {
		l.kept = l.kept || err == nil
		return
	}
	fd := -1
	switch {
	case err != nil || mounted(&st):
	case len(t.levels) == maxLevels:
		t.hoist(l, name, of)
		return
	default:
		fd, err = open(l.fd, name)
	}
	switch {
	case err == unix.ENOENT:
	case err == unix.ENOTDIR || err == unix.ELOOP: // replaced since it was listed: list it again
		l.removed = true
	case err == unix.EXDEV || err == nil && fd < 0:
		t.keep(l, of, name, errMounted)
	case err != nil:
		t.keep(l, of, name, err)
	default:
		t.levels = append(t.levels, level{name: name, id: of, fd: fd, more: true})
	}
}

// hoist moves a directory of the lowest level to the top.
func (t *tree) hoist(l *level, name string, of id) {
	t.hoisted++
	top := &t.levels[0]
	switch err := unix.Renameat(l.fd, name, top.fd, fmt.Sprintf(".jettison-removes-%d",
		t.hoisted)); err {
	case nil:
		l.removed, top.removed, top.passes = true, true, 0
	case unix.ENOENT:
	// that name is taken; the next pass takes the next one
	case unix.ENOTEMPTY, unix.EEXIST, unix.ENOTDIR:
		l.removed = true
	default:
		t.keep(l, of, name, fmt.Errorf("move up: %w", err))
	}
}

// ascend removes the lowest level, which was emptied, from the directory above, unless something in
// it stays. done: that was the top.
func (t *tree) ascend(above int) (done bool) {
	n := len(t.levels) - 1
	l := t.levels[n]
	var up *level
	if n > 0 {
		up = &t.levels[n-1]
	}
	var err error
	if !l.kept {
		var st unix.Statx_t
		if st, _, err = look(above, l.name); err == nil && mounted(&st) {
			err = errMounted
		}
		if err == nil {
			err = unix.Unlinkat(above, l.name, unix.AT_REMOVEDIR)
		}
	}
	if (err == unix.ENOTEMPTY || err == unix.EEXIST) && l.passes < maxPasses {
		t.levels[n].again()
		return false
	}
	t.leave(n)
	switch {
	case l.kept:
		if up != nil {
			up.kept = true
			if len(t.stuck) < maxStuck {
				t.stuck[l.id] = true
			}
		}
	case err == nil:
		t.result.Entries++
		if up != nil {
			up.removed = true
		}
	case err == unix.ENOTDIR && up != nil: // moved away, and replaced: that is listed again
		up.removed = true
	case err == unix.ENOTEMPTY || err == unix.EEXIST:
		t.keep(up, l.id, l.name, errBusy)
	case err != unix.ENOENT:
		t.keep(up, l.id, l.name, err)
	}
	return n == 0
}

// list removes the files of a directory, from where its listing stopped, until enough directories
// are found among them.
func (t *tree) list(ctx context.Context, l *level) error {
	if _, err := unix.Seek(l.fd, l.next, unix.SEEK_SET); err != nil {
		t.keep(l, l.id, "", fmt.Errorf("list: %w", err))
		l.more = false
		return nil
	}
	l.below = nil
	batch := max(minBatch, min(maxBatch, maxNames-t.names))
	for {
		n, err := unix.Getdents(l.fd, t.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.ENOENT { // ENOENT: removed by another process
			t.keep(l, l.id, "", fmt.Errorf("list: %w", err))
		}
		if n <= 0 || err != nil {
			l.more = false
			return nil
		}
		for b := t.buf[:n]; len(b) > 0; {
			name, next, rest, err := dirent(b)
			if err != nil {
				return fmt.Errorf("list %q: %w", t.path, err)
			}
			b, l.next = rest, next
			if name == "." || name == ".." {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := t.entry(l, name); err != nil {
				return err
			}
			if len(l.below) >= batch {
				return nil
			}
		}
	}
}

// entry removes a file, or notes a directory for later.
func (t *tree) entry(l *level, name string) error {
	if t.each != nil {
		t.each(l.fd, name)
	}
	st, of, err := look(l.fd, name)
	for tries := 0; err == nil && mounted(&st) && t.unmount != nil && len(t.levels) == 1 &&
		tries < 16; tries++ {
		if err := t.unmount(l.fd, name); err != nil {
			t.keep(l, of, name, err)
			return nil
		}
		st, of, err = look(l.fd, name)
	}
	switch {
	case err == unix.ENOENT:
	case err == errOld:
		return err
	case err != nil:
		t.keep(l, id{}, name, err)
	case t.stuck[of]:
		l.kept = true
	case mounted(&st):
		t.keep(l, of, name, errMounted)
	case isDir(&st):
		l.below = append(l.below, name)
		t.names++
	default:
		return t.unlink(l, name, &st, of)
	}
	return nil
}

// unlink removes what is no directory.
func (t *tree) unlink(l *level, name string, st *unix.Statx_t, of id) error {
	switch err := unix.Unlinkat(l.fd, name, 0); err {
	case nil:
		l.removed = true
		t.result.Entries++
		if st.Nlink == 1 {
			t.result.Bytes += st.Blocks * 512
		}
	case unix.ENOENT:
	case unix.EISDIR: // replaced since it was looked at
		l.removed = true
	case unix.EROFS: // nothing else will go either
		return fmt.Errorf("%s: %w", t.path, err)
	default:
		t.keep(l, of, name, err)
	}
	return nil
}

// removeFile removes a regular file, if it is there.
func (t *tree) removeFile(dir int, name string) error {
	st, of, err := look(dir, name)
	switch {
	case err == unix.ENOENT:
		return nil
	case err == errOld:
		return err
	case err != nil:
	case mounted(&st):
		err = errMounted
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("not a file")
	default:
		return t.unlink(&level{fd: dir}, name, &st, of)
	}
	t.keep(nil, of, name, err)
	return nil
}

// removeDir removes a directory if it is empty. One that is not stays, without a word.
func (t *tree) removeDir(dir int, name string) error {
	st, of, err := look(dir, name)
	if err == nil && mounted(&st) {
		err = errMounted
	}
	if err == nil {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	switch err {
	case nil:
		t.result.Entries++
	case unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.ENOTDIR:
	case errOld:
		return err
	default:
		t.keep(nil, of, name, err)
	}
	return nil
}

// removeEmpty removes the empty directories in a directory, and puts the names of the others with a
// prefix into Left. Only the node's administrator writes there: more than maxBatch entries are left
// as they are.
func (t *tree) removeEmpty(dir int, prefix string) error {
	if _, err := unix.Seek(dir, 0, unix.SEEK_SET); err != nil {
		return fmt.Errorf("list %q: %w", t.path, err)
	}
	for seen := 0; seen < maxBatch; {
		// A signal, the Go scheduler's too, ends a listing before its buffer is full (v6.12 fs/readdir.c
		// filldir64).
		n, err := unix.Getdents(dir, t.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.ENOENT {
			return fmt.Errorf("list %q: %w", t.path, err)
		}
		if n <= 0 {
			return nil
		}
		for b := t.buf[:n]; len(b) > 0; seen++ {
			name, _, rest, err := dirent(b)
			if err != nil {
				return fmt.Errorf("list %q: %w", t.path, err)
			}
			if b = rest; name == "." || name == ".." {
				continue
			}
			if err := t.removeDir(dir, name); err != nil {
				return err
			}
			_, own := asideNumber(name)
			// said already, if anything stays
			own = own || name == volumes || name == plugins || name == emptyDirPlugin || name == containers
			if _, _, err := look(dir, name); err == nil && !own {
				t.result.leave(strings.TrimPrefix(prefix+"/"+name, "/"))
			}
		}
	}
	return nil
}
