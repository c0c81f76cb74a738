package walk

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// step is called for each entry, and calls pace once in bounds.Steps calls. Its error ends the
// walk.
func (w *Walker) step(ctx context.Context) error {
	if w.entries++; w.entries < w.bounds.Steps {
		return nil
	}
	w.entries = 0
	err := w.pace(ctx)
	w.ended = w.ended || err != nil
	return err
}

// list counts the entries of a directory from the position where its listing stopped, until it
// has found enough directories. An error ends the listing.
func (w *Walker) list(ctx context.Context, l *level, u *Usage) error {
	l.more = false
	if l.next != 0 {
		if _, err := unix.Seek(l.fd, l.next, unix.SEEK_SET); err != nil {
			return fmt.Errorf("continue directory listing: %w", err)
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
			e, rest, ok := Dirent(b)
			if !ok {
				return fmt.Errorf("list directory: %w record", errMalformed)
			}
			b, l.next = rest, e.Next
			one, isDir, err := w.entry(l.fd, e.Name, l.device)
			w.noteFault(err)
			u.Add(one)
			w.seen++
			if err := w.step(ctx); err != nil {
				return err
			}
			if !isDir {
				continue
			}
			l.dirs.Add(one)
			l.below = append(l.below, e.Name)
			if w.names++; len(l.below) >= batch {
				l.more = true
				return nil
			}
		}
	}
}

// entry returns the usage of one entry; isDir: it is a directory of the same file system.
func (w *Walker) entry(dir int, name string, device uint64) (u Usage, isDir bool, err error) {
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
		if len(w.links) >= w.linkRoom {
			return w.shares.add(&st), false, nil
		}
		w.links[id] = true
	}
	return Allocated(&st), isDir, nil
}
