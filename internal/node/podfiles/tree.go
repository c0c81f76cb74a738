package podfiles

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Tenants choose the number and depth of files. These limits keep the memory and the number of
// descriptors independent of that.
const (
	maxLevels = 48   // open directories; deeper ones are moved to the top of the removed tree
	maxBatch  = 1024 // names of directories kept of one level; the rest is listed after their removal
	minBatch  = 4    // the same, if the levels above keep maxNames already
	maxNames  = 8192 // names kept of all levels together, except the minBatch of each
	maxPasses = 100  // through one directory that another program still writes to
	// remembered entries that cannot be removed; beyond that they are tried and counted again
	maxStuck = 4096
)

var (
	errMounted      = errors.New("a file system is mounted there")
	errStillWritten = errors.New("another program writes to it")
	errNotDir       = errors.New("not a directory")
	errOldKernel    = errors.New("this kernel does not report mount points (needs 5.8)")
)

// tree removes directories and records the result.
type tree struct {
	result     Result
	path       string // prefix of names in errors
	levels     []level
	names      int // number of names in below of all levels
	buf        []byte
	stuck      map[id]bool // entries that cannot be removed
	first      error       // error of the first of them
	moreErrors int         // number of further errors
	hoisted    int
	each       func(dir int, name string) // tests: called before each entry; may be nil
	// unmount unmounts an entry of the top directory; nil: nothing may be unmounted.
	unmount func(dir int, name string) error
}

// id identifies an inode.
type id struct {
	major, minor uint32
	ino          uint64
}

// level is an open directory of the current path.
type level struct {
	name    string // in the level above
	id      id
	fd      int
	below   []string // listed directories that were not entered yet
	next    int64    // position at which the listing continues
	more    bool     // the listing is not complete
	removed bool     // an entry was removed in this pass
	kept    bool     // an entry in it cannot be removed
	passes  int
}

func newTree(path string) *tree {
	return &tree{path: path, buf: make([]byte, 32<<10), stuck: map[id]bool{}}
}

// enter adds a name to the prefix of names in errors, until the returned function is called, once
// or more.
func (t *tree) enter(name string) func() {
	before := t.path
	t.path += "/" + name
	return func() { t.path = before }
}

// error returns the error of the whole removal.
func (t *tree) error(err error) error {
	switch {
	case err != nil:
		return err
	case t.moreErrors > 0:
		return fmt.Errorf("%w (and %d more)", t.first, t.moreErrors)
	}
	return t.first
}

// keep records that an entry of the lowest level stays, and why.
func (t *tree) keep(l *level, of id, name string, err error) {
	if l != nil {
		l.kept = true
	}
	if of != (id{}) && len(t.stuck) < maxStuck {
		t.stuck[of] = true
	}
	if t.first != nil {
		t.moreErrors++
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

// stat returns the attributes of an entry. It does not follow symbolic links.
func stat(dir int, name string) (st unix.Statx_t, of id, err error) {
	for {
		err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
			unix.STATX_TYPE|unix.STATX_NLINK|unix.STATX_INO|unix.STATX_BLOCKS, &st)
		if err != unix.EINTR {
			break
		}
	}
	if err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = errOldKernel
	}
	return st, id{st.Dev_major, st.Dev_minor, st.Ino}, err
}

func mounted(st *unix.Statx_t) bool { return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }

func isDir(st *unix.Statx_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// open opens a directory in a directory. It returns EXDEV for a mount point (but not for a btrfs
// subvolume), and ELOOP or ENOTDIR for an entry that is not a directory.
func open(dir int, name string) (int, error) {
	how := unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS |
			unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		// EAGAIN: a rename raced with it (openat2(2))
		if err == nil || err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// openDir opens a directory. It returns -1 if the directory does not exist. For other entries and
// errors it records the error and returns -1.
func (t *tree) openDir(dir int, name string) int {
	fd, err := open(dir, name)
	switch err {
	case nil:
		return fd
	case unix.ENOENT:
	case unix.EXDEV:
		t.keep(nil, id{}, name, errMounted)
	case unix.ENOTDIR, unix.ELOOP:
		t.keep(nil, id{}, name, errNotDir)
	default:
		t.keep(nil, id{}, name, err)
	}
	return -1
}

// remove removes a directory tree. It returns errors that end the removal, mostly of ctx; entries
// that stay are recorded.
func (t *tree) remove(ctx context.Context, dir int, name string) (err error) {
	fd := t.openDir(dir, name)
	if fd < 0 {
		return nil
	}
	t.levels = append(t.levels[:0], level{name: name, fd: fd, more: true})
	defer func() { t.closeFrom(0) }()
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
			l.restart()
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

// restart makes the listing start over.
func (l *level) restart() { l.next, l.more, l.removed, l.passes = 0, true, false, l.passes+1 }

// closeFrom closes and drops all levels starting with one.
func (t *tree) closeFrom(from int) {
	for i := from; i < len(t.levels); i++ {
		unix.Close(t.levels[i].fd)
		t.names -= len(t.levels[i].below)
		t.levels[i] = level{}
	}
	t.levels = t.levels[:from]
}

// descend enters a directory of the lowest level. A directory that is too deep is moved to the top
// instead: no file system used for emptyDirs or logs rejects that, and it is harmless within the
// removed tree.
func (t *tree) descend(l *level, name string) {
	st, of, err := stat(l.fd, name)
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
	case err == unix.ENOTDIR || err == unix.ELOOP: // replaced after the listing: list it again
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
	// the name exists; the next pass uses the next one
	case unix.ENOTEMPTY, unix.EEXIST, unix.ENOTDIR:
		l.removed = true
	default:
		t.keep(l, of, name, fmt.Errorf("move up: %w", err))
	}
}

// ascend removes the emptied lowest level from the directory above, unless an entry in it stays. It
// returns true after the top level.
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
		if st, _, err = stat(above, l.name); err == nil && mounted(&st) {
			err = errMounted
		}
		if err == nil {
			err = unix.Unlinkat(above, l.name, unix.AT_REMOVEDIR)
		}
	}
	if (err == unix.ENOTEMPTY || err == unix.EEXIST) && l.passes < maxPasses {
		t.levels[n].restart()
		return false
	}
	t.closeFrom(n)
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
	case err == unix.ENOTDIR && up != nil: // moved and replaced: list it again
		up.removed = true
	case err == unix.ENOTEMPTY || err == unix.EEXIST:
		t.keep(up, l.id, l.name, errStillWritten)
	case err != unix.ENOENT:
		t.keep(up, l.id, l.name, err)
	}
	return n == 0
}

// list continues the listing of a directory and removes its files, until it has found enough
// directories for a batch.
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

// entry removes a file, or keeps the name of a directory for later.
func (t *tree) entry(l *level, name string) error {
	if t.each != nil {
		t.each(l.fd, name)
	}
	st, of, err := stat(l.fd, name)
	for tries := 0; err == nil && mounted(&st) && t.unmount != nil && len(t.levels) == 1 &&
		tries < 16; tries++ {
		if err := t.unmount(l.fd, name); err != nil {
			t.keep(l, of, name, err)
			return nil
		}
		st, of, err = stat(l.fd, name)
	}
	switch {
	case err == unix.ENOENT:
	case err == errOldKernel:
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

// unlink removes an entry that is not a directory.
func (t *tree) unlink(l *level, name string, st *unix.Statx_t, of id) error {
	switch err := unix.Unlinkat(l.fd, name, 0); err {
	case nil:
		l.removed = true
		t.result.Entries++
		if st.Nlink == 1 {
			t.result.Bytes += st.Blocks * 512
		}
	case unix.ENOENT:
	case unix.EISDIR: // replaced after the stat
		l.removed = true
	case unix.EROFS: // nothing else can be removed either
		return fmt.Errorf("%s: %w", t.path, err)
	default:
		t.keep(l, of, name, err)
	}
	return nil
}

// removeFile removes a regular file. A missing file is no error.
func (t *tree) removeFile(dir int, name string) error {
	st, of, err := stat(dir, name)
	switch {
	case err == unix.ENOENT:
		return nil
	case err == errOldKernel:
		return err
	case err != nil:
	case mounted(&st):
		err = errMounted
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("not a regular file")
	default:
		return t.unlink(&level{fd: dir}, name, &st, of)
	}
	t.keep(nil, of, name, err)
	return nil
}

// removeDir removes a directory if it is empty. A directory that is not empty is no error.
func (t *tree) removeDir(dir int, name string) error {
	st, of, err := stat(dir, name)
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
	case errOldKernel:
		return err
	default:
		t.keep(nil, of, name, err)
	}
	return nil
}

// removeEmpty removes the empty directories in a directory, and adds the names of the others with a
// prefix to Left. Only the node's administrator writes there, so entries beyond maxBatch are
// ignored.
func (t *tree) removeEmpty(dir int, prefix string) error {
	if _, err := unix.Seek(dir, 0, unix.SEEK_SET); err != nil {
		return fmt.Errorf("list %q: %w", t.path, err)
	}
	for seen := 0; seen < maxBatch; {
		// A signal, including those of the Go scheduler, ends a listing before its buffer is full (v6.12
		// fs/readdir.c filldir64).
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
			// errors for these are recorded already
			own = own || name == volumes || name == plugins || name == emptyDirPlugin || name == containers
			if _, _, err := stat(dir, name); err == nil && !own {
				t.result.addLeft(strings.TrimPrefix(prefix+"/"+name, "/"))
			}
		}
	}
	return nil
}
