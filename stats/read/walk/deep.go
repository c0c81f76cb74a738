package walk

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// What lies deeper than maxLevels is walked without the way there being kept, but for the lowest
// part of it: one directory after the other, and back by "..". Where a directory's listing goes on
// is found by the inode that the walk comes from.
const (
	maxDepth  = 1 << 20 // levels of a tree; more are not walked
	maxPlaces = 4096    // kept of the way
)

// Bounds bound a walk: see maxLevels, maxPlaces, maxDepth. steps is how many entries are looked at
// between two calls of pace.
type Bounds struct{ Levels, Places, Depth, Steps int }

// DefaultBounds are those of New.
func DefaultBounds() Bounds { return Bounds{maxLevels, maxPlaces, maxDepth, 64} }

// ErrTooDeep: a tree has more levels than are walked.
var ErrTooDeep = fmt.Errorf("directories nested deeper than %d levels are not walked", maxDepth)

// place is a directory on the way, and where its listing goes on.
type place struct {
	inode uint64
	next  int64
}

// depths is a walk from a directory down.
type depths struct {
	*Walker
	device uint64
	top    uint64 // inodes: where it began
	here   uint64 // and where it is
	fd     int    // that
	depth  int
	places []place // the lowest of the way
	next   int64   // where the listing goes on
	after  uint64  // behind this inode, whose place is not kept; 0: at next
}

// beneath measures what is in an open directory and below it, and closes it. Where one on the way
// was moved, what is left is given up.
func (w *Walker) beneath(ctx context.Context, fd int, st *unix.Stat_t, u *Usage) error {
	d := &depths{Walker: w, device: st.Dev, top: st.Ino, here: st.Ino, fd: fd}
	defer func() { unix.Close(d.fd) }()
	for !w.ended {
		name, err := d.subdirectory(ctx, u)
		w.leaveOut(err)
		switch {
		case w.ended:
		case name != "":
			w.leaveOut(d.down(name))
		case d.depth == 0 && d.here == d.top:
			return nil
		case d.depth == 0 || !d.up():
			u.Partial, w.moved = true, true
			return nil
		}
	}
	return nil // its end is left out already
}

// subdirectory goes on with the listing to the next directory and counts what is in between; empty:
// there is no more.
func (d *depths) subdirectory(ctx context.Context, u *Usage) (string, error) {
	if _, err := unix.Seek(d.fd, d.next, unix.SEEK_SET); err != nil {
		return "", fmt.Errorf("list directory on: %w", err)
	}
	for {
		n, err := unix.Getdents(d.fd, d.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.ENOENT { // removed while it was read
			return "", fmt.Errorf("list directory: %w", err)
		}
		if n <= 0 {
			if d.after != 0 { // what it comes from is not there any more
				u.Partial, d.moved = true, true
			}
			return "", nil
		}
		for b := d.buf[:n]; len(b) > 0; {
			e, rest, ok := Dirent(b)
			if !ok {
				return "", fmt.Errorf("list directory: %w record", errMalformed)
			}
			b, d.next = rest, e.Next
			if err := d.step(ctx); err != nil {
				return "", err
			}
			if d.after != 0 { // counted before
				if e.Inode == d.after {
					d.after = 0
				}
				continue
			}
			one, isDir, err := d.entry(d.fd, e.Name, d.device)
			d.leaveOut(err)
			u.Add(one)
			if d.seen++; isDir {
				return e.Name, nil
			}
		}
	}
}

// down goes into a directory, unless it is gone or another file system is mounted there.
func (d *depths) down(name string) error {
	fd, err := unix.Openat(d.fd, name,
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // removed or replaced since it was listed
		return nil
	default:
		return fmt.Errorf("open directory %.255q: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != d.device {
		unix.Close(fd)
		return err
	}
	if len(d.levels)+d.depth+1 >= d.bounds.Depth {
		unix.Close(fd)
		return ErrTooDeep
	}
	if half := d.bounds.Places / 2; len(d.places) >= 2*half {
		d.places = append(d.places[:0], d.places[half:]...)
	}
	d.places = append(d.places, place{d.here, d.next})
	unix.Close(d.fd)
	d.fd, d.here, d.next, d.depth = fd, st.Ino, 0, d.depth+1
	return nil
}

// up goes to the directory above; false: it was moved. The top of the tree is above none that is so
// deep.
func (d *depths) up() bool {
	fd, err := unix.Openat(d.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK,
		0)
	if err != nil {
		return false
	}
	unix.Close(d.fd)
	d.fd = fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != d.device || st.Ino == d.levels[0].inode {
		return false
	}
	d.next, d.after = 0, d.here
	if n := len(d.places) - 1; n >= 0 {
		at := d.places[n]
		if at.inode != st.Ino {
			return false
		}
		d.places, d.next, d.after = d.places[:n], at.next, 0
	}
	d.here, d.depth = st.Ino, d.depth-1
	return true
}
