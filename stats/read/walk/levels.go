package walk

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// level is a directory that was gone into: what is left to go into, and how to know it again.
type level struct {
	device, inode uint64
	name          string   // in the level above; empty: the top
	fd            int      // -1: closed, for it is deep and a deeper one is open
	below         []string // directories in it that were listed and not gone into yet
	next          int64    // where in the directory listing goes on
	more          bool     // it does
	dirs          Usage    // that was counted of the directories listed: their own inodes
}

// enter makes an open directory the lowest level and counts what is in it. The walker closes the
// descriptor.
func (w *Walker) enter(ctx context.Context, fd int, name string, st *unix.Stat_t, u *Usage) error {
	if n := len(w.levels); n >= w.bounds.Depth {
		unix.Close(fd)
		return ErrTooDeep
	} else if n >= w.bounds.Levels {
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
func (w *Walker) leave(from int) {
	for i := from; i < len(w.levels); i++ {
		if l := &w.levels[i]; l.fd >= 0 {
			unix.Close(l.fd)
		}
		w.names -= len(w.levels[i].below)
		w.levels[i] = level{}
	}
	w.levels = w.levels[:from]
}

// descend goes into a directory of the lowest level, unless it is gone or another file system is
// mounted there.
func (w *Walker) descend(ctx context.Context, name string, u *Usage) error {
	l := &w.levels[len(w.levels)-1]
	fd, err := unix.Openat(l.fd, name,
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
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

// ascend leaves the lowest level for the one above; if that is not there any more, for the nearest
// that is.
func (w *Walker) ascend(ctx context.Context, u *Usage) error {
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
func (w *Walker) openLevel(dir int, name string, l *level) (int, error) {
	fd, err := unix.Openat(dir, name,
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
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

// again leaves the n-th level for the lowest above it that is found by name. What was to be gone
// into of those in between is given up.
func (w *Walker) again(ctx context.Context, n int, u *Usage) error {
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
		u.Partial, w.moved = true, true
	}
	w.leave(at + 1)
	w.levels[at].fd = fd
	return failed
}
