package walk

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// level is a directory on the path of the walk: the subdirectories left to enter, and its
// identity.
type level struct {
	device, inode uint64
	name          string   // in the level above; empty: the top
	fd            int      // -1: closed, because it is deep and a deeper one is open
	below         []string // subdirectories listed and not entered yet
	next          int64    // position in the listing
	more          bool     // the listing has more entries
	dirs          Usage    // counted for the listed subdirectories: their own inodes
}

// enter makes an open directory the lowest level and counts its entries. The walker closes the
// descriptor.
func (w *Walker) enter(ctx context.Context, fd int, name string, st *unix.Stat_t, u *Usage) error {
	if n := len(w.levels); n >= w.bounds.Depth {
		unix.Close(fd)
		return ErrTooDeep
	} else if n >= w.bounds.Levels {
		return w.walkDeep(ctx, fd, st, u)
	}
	if n := len(w.levels); n > openAbove {
		unix.Close(w.levels[n-1].fd)
		w.levels[n-1].fd = -1
	}
	w.levels = append(w.levels, level{device: st.Dev, inode: st.Ino, name: name, fd: fd, more: true})
	return w.list(ctx, &w.levels[len(w.levels)-1], u)
}

// leave removes all levels from an index on.
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

// descend enters a subdirectory of the lowest level, unless it is gone or another file system
// is mounted there.
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

// ascend returns from the lowest level to its parent or, if that no longer exists, to the
// nearest ancestor that does.
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
	return w.reopenAbove(ctx, n, u)
}

// errMoved: a name leads to a different directory than before.
var errMoved = errors.New("the directory was moved")

// openLevel opens the directory of a level by a name in another directory, if it is still the
// same directory.
func (w *Walker) openLevel(dir int, name string, l *level) (int, error) {
	fd, err := unix.Openat(dir, name,
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != l.device || st.Ino != l.inode {
		unix.Close(fd)
		return -1, cmp.Or(err, errMoved)
	}
	return fd, nil
}

// reopenAbove leaves the n-th level for the lowest ancestor that it finds by name. The
// remaining entries of the levels in between are abandoned.
func (w *Walker) reopenAbove(ctx context.Context, n int, u *Usage) error {
	at := openAbove - 1
	fd, failed := w.levels[at].fd, error(nil)
	for at < n-1 {
		if err := w.step(ctx); err != nil {
			failed = err
			break
		}
		next, err := w.openLevel(fd, w.levels[at+1].name, &w.levels[at+1])
		if err != nil {
			if err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP && err != errMoved {
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
