package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// compress compresses NAME.STAMP to NAME.STAMP.gz. Until that is completely on disk it has another
// name, and the log stays.
func (l *log) compress(ctx context.Context, stamp string) error {
	name, tmp := l.file(stamp, ""), l.file(stamp, tmpSuffix)
	freed, err := l.pack(ctx, name, tmp)
	if err == nil {
		err = rename(l.dir, tmp, l.file(stamp, compressSuffix))
	}
	if err != nil {
		_ = unix.Unlinkat(l.dir, tmp, 0) // a partial file, if any
		return fmt.Errorf("compress %.256q: %w", name, err)
	}
	if err := unix.Unlinkat(l.dir, name, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %.256q after compression: %w", name, err)
	}
	l.result.Compressed++
	l.result.Freed += freed
	return nil
}

// pack writes a compressed copy of a file, with the same mode and owner. freed is the difference of
// their disk usage.
func (l *log) pack(ctx context.Context, from, to string) (freed uint64, err error) {
	// a pipe does not block it
	in, st, err := open(l.dir, from, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, errNotPlain
	}
	out, _, err := open(l.dir, to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	fd := int(out.Fd())
	if err := errors.Join(unix.Fchown(fd, int(st.Uid), int(st.Gid)),
		unix.Fchmod(fd, st.Mode&0o777)); err != nil {
		return 0, err
	}
	w := gzip.NewWriter(out)
	if _, err := io.Copy(w, untilDone{ctx, in}); err != nil {
		return 0, err
	}
	if err := errors.Join(w.Close(), unix.Fdatasync(fd)); err != nil { // before the log is removed
		return 0, err
	}
	var packed unix.Stat_t
	if err := unix.Fstat(fd, &packed); err != nil {
		return 0, err
	}
	if st.Nlink > 1 {
		return 0, nil
	}
	return allocated(st) - min(allocated(&packed), allocated(st)), nil
}

// open opens an entry of a directory.
func open(dir int, name string, flags int) (*os.File, *unix.Stat_t, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o600)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return nil, nil, err
		}
		return os.NewFile(uintptr(fd), name), &st, nil
	}
}

// untilDone is a reader that fails when ctx ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}
