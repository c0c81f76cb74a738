package read

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a directory tree takes: allocated bytes (st_blocks), and inodes, the directories' own included, as cAdvisor
// counts them (fs/fs.go GetDirUsage). partial: a part was not reached, it is a lower bound.
type usage struct {
	bytes, inodes uint64
	partial       bool
}

func (u *usage) add(o usage) {
	u.bytes, u.inodes, u.partial = u.bytes+o.bytes, u.inodes+o.inodes, u.partial || o.partial
}

// What a tenant decides - how many directories, how deep - must not decide how much memory and how many descriptors a walk needs.
const (
	maxLinks  = 1 << 16 // inodes with several names that are remembered of one tree; beyond, each name counts for its share
	maxBatch  = 1024    // names of directories kept of one level; the rest is listed when those are done
	minBatch  = 4       // the same, where the levels above keep maxNames already
	maxNames  = 8192    // names kept of all levels together, but for the minBatch of each
	openAbove = 64      // levels whose descriptors stay open
	maxLevels = 10000   // that are kept; beyond, the walk goes on with less (walkdeep.go)
	walkTries = 3       // for a tree that changes
)

// walker measures directory trees. It follows no symbolic link, leaves no device, and needs neither more descriptors nor, but
// for a few hundred bytes a level, more memory for a large tree than for a small one.
//
// From a directory of the first openAbove levels it returns to the one above by that one's descriptor, whatever was renamed in
// between. Deeper ones return by "..". Where that leads elsewhere, the directory was moved, and the walk goes on above it, which it
// finds by name from the last descriptor on. Of levels that are not where they were, what is left is given up, and after walkTries
// walks that met this the largest counts, as a lower bound. What is nested deeper than maxDepth, or cannot be read, is left out, and
// the rest counts, as a lower bound too: a part must not take a whole tree out of its pod's account. As with du(1), what is moved from
// one place of a tree to another while it is walked may be counted twice or not at all.
type walker struct {
	buf     []byte             // directory entries
	links   map[[2]uint64]bool // inodes with several names that were counted, room of them at most
	room    int
	shares  linkShares                  // of those for which there was no room in links
	pace    func(context.Context) error // called now and then; may sleep; its error ends the walk
	entries int                         // since pace was last called
	seen    uint64                      // entries looked at since the walker was made
	levels  []level                     // from the top of the tree to where the walk is
	names   int                         // in below of all levels
	moved   bool                        // the walk met a directory that was moved away
	fault   error                       // the first that made it leave something out
	ended   bool                        // pace ended it
	bounds  walkBounds
}

func newWalker(pace func(context.Context) error) *walker {
	return &walker{buf: make([]byte, 32<<10), links: map[[2]uint64]bool{}, room: maxLinks, pace: pace,
		bounds: walkBounds{maxLevels, maxPlaces, maxDepth}}
}

// level is a directory that was gone into: what is left to go into, and how to know it again.
type level struct {
	device, inode uint64
	name          string   // in the level above; empty: the top
	fd            int      // -1: closed, for it is deep and a deeper one is open
	below         []string // directories in it that were listed and not gone into yet
	next          int64    // where in the directory listing goes on
	more          bool     // it does
	dirs          usage    // that was counted of the directories listed: their own inodes
}

// tree measures the directory behind a descriptor, which stays open. Beside an error is what was counted all the same, a lower bound.
func (w *walker) tree(ctx context.Context, dir int) (most usage, err error) {
	for range walkTries {
		u, err := w.once(ctx, dir)
		u.partial = u.partial || err != nil
		if u.bytes, u.inodes = max(u.bytes, most.bytes), max(u.inodes, most.inodes); err != nil || !w.moved {
			return u, err
		}
		most = u
	}
	return most, nil
}

// once walks a tree once.
func (w *walker) once(ctx context.Context, dir int) (u usage, err error) {
	clear(w.links)
	w.shares = linkShares{}
	w.levels, w.names, w.moved, w.fault, w.ended = w.levels[:0], 0, false, nil, false
	defer w.leave(0)
	top, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return u, fmt.Errorf("open directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(top, &st); err != nil {
		unix.Close(top)
		return u, fmt.Errorf("stat directory: %w", err)
	}
	u.add(allocated(&st))
	for w.leaveOut(w.enter(ctx, top, "", &st, &u)); len(w.levels) > 0 && !w.ended; {
		l := &w.levels[len(w.levels)-1]
		switch n := len(l.below); {
		case n > 0:
			name := l.below[n-1]
			l.below[n-1] = ""
			l.below = l.below[:n-1]
			w.names--
			err = w.descend(ctx, name, &u)
		case l.more:
			err = w.list(ctx, l, &u)
		default:
			err = w.ascend(ctx, &u)
		}
		w.leaveOut(err)
	}
	return u, w.fault
}

// leaveOut takes that a part was not measured, if there was an error. The walk goes on with the rest.
func (w *walker) leaveOut(err error) {
	if err != nil && (w.fault == nil || w.ended) { // its end is what matters most
		w.fault = err
	}
}

// own measures a directory without those in it, and names them.
func (w *walker) own(ctx context.Context, dir int) (u usage, below []string, err error) {
	clear(w.links)
	w.shares = linkShares{}
	w.names = 0
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return u, nil, fmt.Errorf("stat directory: %w", err)
	}
	l := level{device: st.Dev, fd: dir, more: true}
	w.fault, w.ended = nil, false
	for l.more && !w.ended {
		w.leaveOut(w.list(ctx, &l, &u))
		below = append(below, l.below...)
		w.names = 0
	}
	// What is in them counts with them, their own inodes too.
	u.add(allocated(&st))
	u.bytes, u.inodes, u.partial = u.bytes-l.dirs.bytes, u.inodes-l.dirs.inodes, w.fault != nil
	return u, below, w.fault
}

// enter makes an open directory the lowest level and counts what is in it. The walker closes the descriptor.
func (w *walker) enter(ctx context.Context, fd int, name string, st *unix.Stat_t, u *usage) error {
	if n := len(w.levels); n >= w.bounds.depth {
		unix.Close(fd)
		return errTooDeep
	} else if n >= w.bounds.levels {
		return w.beneath(ctx, fd, st, u)
	}
	if n := len(w.levels); n > openAbove {
		unix.Close(w.levels[n-1].fd)
		w.levels[n-1].fd = -1
	}
	w.levels = append(w.levels, level{device: st.Dev, inode: st.Ino, name: name, fd: fd, more: true})
	return w.list(ctx, &w.levels[len(w.levels)-1], u)
}

// leave forgets all levels from one on.
func (w *walker) leave(from int) {
	for i := from; i < len(w.levels); i++ {
		if l := &w.levels[i]; l.fd >= 0 {
			unix.Close(l.fd)
		}
		w.names -= len(w.levels[i].below)
		w.levels[i] = level{}
	}
	w.levels = w.levels[:from]
}

// descend goes into a directory of the lowest level, unless it is gone or another file system is mounted there.
func (w *walker) descend(ctx context.Context, name string, u *usage) error {
	l := &w.levels[len(w.levels)-1]
	fd, err := unix.Openat(l.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // removed or replaced since it was listed
		return nil
	default:
		return fmt.Errorf("open directory %.255q: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != l.device {
		unix.Close(fd)
		return err
	}
	return w.enter(ctx, fd, name, &st, u)
}

// ascend leaves the lowest level for the one above; if that is not there any more, for the nearest that is.
func (w *walker) ascend(ctx context.Context, u *usage) error {
	n := len(w.levels) - 1
	if n == 0 || w.levels[n-1].fd >= 0 {
		w.leave(n)
		return nil
	}
	above := &w.levels[n-1]
	fd, err := w.openLevel(w.levels[n].fd, "..", above)
	if err == nil {
		above.fd = fd
		w.leave(n)
		return nil
	}
	return w.again(ctx, n, u)
}

// errElsewhere: a name leads to another directory than it did.
var errElsewhere = errors.New("the directory was moved")

// openLevel opens the directory of a level by a name in another directory, if it is that one still.
func (w *walker) openLevel(dir int, name string, l *level) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != l.device || st.Ino != l.inode {
		unix.Close(fd)
		return -1, cmp.Or(err, errElsewhere)
	}
	return fd, nil
}

// again leaves the n-th level for the lowest above it that is found by name. What was to be gone into of those in between is given up.
func (w *walker) again(ctx context.Context, n int, u *usage) error {
	at := openAbove - 1
	fd, failed := w.levels[at].fd, error(nil)
	for at < n-1 {
		if err := w.step(ctx); err != nil {
			failed = err
			break
		}
		next, err := w.openLevel(fd, w.levels[at+1].name, &w.levels[at+1])
		if err != nil {
			if err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP && err != errElsewhere {
				failed = fmt.Errorf("open directory above: %w", err)
			}
			break
		}
		if at >= openAbove {
			unix.Close(fd)
		}
		at, fd = at+1, next
	}
	if at < n-1 {
		u.partial, w.moved = true, true
	}
	w.leave(at + 1)
	w.levels[at].fd = fd
	return failed
}

// step is taken for each entry. Its error is the end of the walk.
func (w *walker) step(ctx context.Context) error {
	if w.entries++; w.entries < 64 {
		return nil
	}
	w.entries = 0
	err := w.pace(ctx)
	w.ended = w.ended || err != nil
	return err
}

// list counts the entries of a directory from where its listing stopped, until enough directories are found among them. After an
// error there is no more of it.
func (w *walker) list(ctx context.Context, l *level, u *usage) error {
	l.more = false
	if l.next != 0 {
		if _, err := unix.Seek(l.fd, l.next, unix.SEEK_SET); err != nil {
			return fmt.Errorf("list directory on: %w", err)
		}
	}
	l.below = nil
	batch := max(minBatch, min(maxBatch, maxNames-w.names))
	for {
		n, err := unix.Getdents(l.fd, w.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.ENOENT { // removed while it was read
			return fmt.Errorf("list directory: %w", err)
		}
		if n <= 0 {
			return nil
		}
		for b := w.buf[:n]; len(b) > 0; {
			e, rest, ok := dirent(b)
			if !ok {
				return fmt.Errorf("list directory: %w record", ErrMalformed)
			}
			b, l.next = rest, e.next
			one, isDir, err := w.entry(l.fd, e.name, l.device)
			w.leaveOut(err)
			u.add(one)
			w.seen++
			if err := w.step(ctx); err != nil {
				return err
			}
			if !isDir {
				continue
			}
			l.dirs.add(one)
			l.below = append(l.below, e.name)
			if w.names++; len(l.below) >= batch {
				l.more = true
				return nil
			}
		}
	}
}

// entry is what one entry takes; isDir: it is a directory of the same file system.
func (w *walker) entry(dir int, name string, device uint64) (u usage, isDir bool, err error) {
	if name == "." || name == ".." {
		return u, false, nil
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err {
	case nil:
	case unix.ENOENT:
		return u, false, nil
	default:
		return u, false, fmt.Errorf("stat %.255q: %w", name, err)
	}
	if st.Dev != device {
		return u, false, nil
	}
	if isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR; !isDir && st.Nlink > 1 {
		id := [2]uint64{st.Dev, st.Ino}
		if w.links[id] {
			return u, false, nil
		}
		if len(w.links) >= w.room {
			return w.shares.add(&st), false, nil
		}
		w.links[id] = true
	}
	return allocated(&st), isDir, nil
}

// linkShares adds up what names of files are of them: a file with n names is counted at each by an n-th, so that all of them make one.
type linkShares struct{ bytes, inodes uint64 } // what is less than a byte or an inode, in 1/linkUnit

const linkUnit = 1 << 32

// add counts one name, and returns what is whole by now.
func (s *linkShares) add(st *unix.Stat_t) usage {
	all, names := allocated(st), uint64(st.Nlink)
	share := (linkUnit + names - 1) / names // all of them are one at least
	s.bytes += all.bytes % names * share
	s.inodes += share
	u := usage{bytes: all.bytes/names + s.bytes/linkUnit, inodes: s.inodes / linkUnit}
	s.bytes, s.inodes = s.bytes%linkUnit, s.inodes%linkUnit
	return u
}

func allocated(st *unix.Stat_t) usage { return usage{bytes: uint64(st.Blocks) * 512, inodes: 1} }

// dirEntry is one record of a directory.
type dirEntry struct {
	name  string
	next  int64 // position of the record after it
	kind  byte  // DT_DIR and such; DT_UNKNOWN where the file system does not tell
	inode uint64
}

// dirent takes the first record of what getdents64(2) returned: inode (8 bytes), position of the next (8), length (2), type (1),
// name.
func dirent(b []byte) (e dirEntry, rest []byte, ok bool) {
	const nameOffset = 19
	if len(b) <= nameOffset {
		return e, nil, false
	}
	length := int(b[16]) | int(b[17])<<8
	if length <= nameOffset || length > len(b) {
		return e, nil, false
	}
	raw := b[nameOffset:length]
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return dirEntry{string(raw), int64(binary.NativeEndian.Uint64(b[8:])), b[18], binary.NativeEndian.Uint64(b)}, b[length:], true
}

// share returns a pace that keeps the calling thread below a share of one core, 0 to 1, by the CPU time it has used (clock). The
// goroutine must be locked to its thread.
func share(of func() float64, clock func() time.Duration) func(context.Context) error {
	const slice = 2 * time.Millisecond // of CPU time between two pauses
	last := clock()
	return func(ctx context.Context) error {
		used := clock() - last
		if used < slice {
			return ctx.Err()
		}
		of := of()
		timer := time.NewTimer(time.Duration(float64(used) * (1 - of) / of))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		last = clock()
		return nil
	}
}

// threadCPU is the CPU time that the calling thread has used.
func threadCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// yieldDisk locks the goroutine to a thread of its own whose disk accesses come after all others. The thread ends with
// the goroutine.
func yieldDisk() {
	runtime.LockOSThread()
	const ioprioWhoProcess, ioprioClassIdle = 1, 3 << 13 // include/uapi/linux/ioprio.h; process 0: this thread
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, ioprioClassIdle)
}
