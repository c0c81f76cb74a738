package walk

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Directories deeper than maxLevels are walked without keeping the whole path from the top, only
// its lowest part: the walk enters one directory after the other, and returns through "..". It
// finds its position in the parent's listing by the inode of the directory that it returns from.
const (
	maxDepth  = 1 << 20 // levels of a tree; deeper directories are not walked
	maxPlaces = 4096    // positions kept of the path
)

// Bounds bound a walk: see maxLevels, maxPlaces, maxDepth. Steps is the number of entries
// between two calls of pace.
type Bounds struct{ Levels, Places, Depth, Steps int }

// DefaultBounds returns the bounds of New.
func DefaultBounds() Bounds { return Bounds{maxLevels, maxPlaces, maxDepth, 64} }

// ErrTooDeep: a tree has more than maxDepth levels.
var ErrTooDeep = fmt.Errorf("directories nested deeper than %d levels are not walked", maxDepth)

// place is a directory on the path and the position in its listing.
type place struct {
	inode uint64
	next  int64
}

// deepWalk is a walk below a directory that is deeper than the kept levels.
type deepWalk struct {
	*Walker
	device uint64
	top    uint64 // inode of the start
	here   uint64 // inode of the current directory
	fd     int    // of the current directory
	depth  int
	places []place // the lowest part of the path
	next   int64   // position in the listing
	// skip entries up to this inode, because the position is not known; 0: continue at next
	after uint64
}

// walkDeep measures the content of an open directory and closes it. If a directory on the path
// was moved, the walk of the rest is abandoned.
func (w *Walker) walkDeep(ctx context.Context, fd int, st *unix.Stat_t, u *Usage) error {
	d := &deepWalk{Walker: w, device: st.Dev, top: st.Ino, here: st.Ino, fd: fd}
	defer func() { unix.Close(d.fd) }()
	for !w.ended {
		name, err := d.subdirectory(ctx, u)
		w.noteFault(err)
		switch {
		case w.ended:
		case name != "":
			w.noteFault(d.down(name))
		case d.depth == 0 && d.here == d.top:
			return nil
		case d.depth == 0 || !d.up():
			u.Partial, w.moved = true, true
			return nil
		}
	}
	return nil // noteFault has stored the error
}

// subdirectory continues the listing up to the next directory, and counts the entries on the way.
// It returns "" at the end of the listing.
func (d *deepWalk) subdirectory(ctx context.Context, u *Usage) (string, error) {
	if _, err := unix.Seek(d.fd, d.next, unix.SEEK_SET); err != nil {
		return "", fmt.Errorf("continue directory listing: %w", err)
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
			if d.after != 0 { // the directory that the walk returned from no longer exists
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
			d.noteFault(err)
			u.Add(one)
			if d.seen++; isDir {
				return e.Name, nil
			}
		}
	}
}

// down enters a directory, unless it is gone or another file system is mounted there.
func (d *deepWalk) down(name string) error {
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

// up returns to the parent directory; false: the directory was moved. The top of the tree cannot be
// the parent at this depth.
func (d *deepWalk) up() bool {
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
