package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// maxPath is the longest path of a unix socket in bytes (sun_path in include/uapi/linux/un.h, less
// the ending 0).
const maxPath = 107

// private is the pattern of the directory that a socket is made in. The number that takes the place
// of * has up to 10 digits.
const private = ".j*"

// dialLimit is how long an agent that runs already may take to accept a connection; the kernel does
// that for it.
const dialLimit = time.Second

// bound is a socket that listens at its path.
type bound struct {
	*net.UnixListener
	path string
	lock *os.File    // held as long as the socket is there
	info os.FileInfo // of the socket
}

// bind makes the socket at path, in place of one at which no process answers. It is never there
// with another mode or group than it is to have. gid -1: only root, 0600; else 0660 for that group.
func bind(path string, gid int) (*bound, error) {
	dir := filepath.Dir(path)
	switch {
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("socket %q: want an absolute path", path)
	case len(path) > maxPath || len(dir)+len("/.j0123456789/s") > maxPath:
		return nil, fmt.Errorf("socket %s: the path is too long: the kernel takes %d bytes", path,
			maxPath)
	}
	b := &bound{path: path}
	if err := b.acquire(dir, gid); err != nil {
		b.release()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return b, nil
}

func (b *bound) acquire(dir string, gid int) (err error) {
	if err := makeDir(dir); err != nil {
		return err
	}
	if b.lock, err = lock(b.path + ".lock"); err != nil {
		return err
	}
	if err := free(b.path); err != nil {
		return err
	}
	return b.listen(dir, gid)
}

// listen makes the socket in a directory that only its owner may enter, and moves it to its place
// when it is ready.
func (b *bound) listen(dir string, gid int) error {
	own, err := os.MkdirTemp(dir, private)
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	first := filepath.Join(own, "s")
	if b.UnixListener, err = net.ListenUnix("unix",
		&net.UnixAddr{Name: first, Net: "unix"}); err != nil {
		return err
	}
	b.SetUnlinkOnClose(false) // it will have another name
	mode := os.FileMode(0o600)
	if gid >= 0 {
		mode = 0o660
		if err := os.Chown(first, -1, gid); err != nil {
			return err
		}
	}
	if err := os.Chmod(first, mode); err != nil {
		return err
	}
	if b.info, err = os.Lstat(first); err != nil {
		return err
	}
	return os.Rename(first, b.path)
}

// makeDir makes the socket's directory. In one that every user may write to, another socket could
// be put in its place.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("%s may be written to by every user (mode %04o): choose another directory", dir,
			info.Mode().Perm())
	}
	return nil
}

// another is what a second agent gets; pid is the first one's, 0: not known.
func another(pid int) error {
	who := "another agent"
	if pid > 0 {
		who = fmt.Sprintf("another agent (pid %d)", pid)
	}
	return fmt.Errorf("%s answers there: stop it, or give this one another socket", who)
}

// lock keeps two agents from taking each other's socket for a stale one.
func lock(path string) (*os.File, error) {
	f, err := atomicfile.Lock(path)
	if locked := (*atomicfile.LockedError)(nil); errors.As(err, &locked) {
		return nil, another(locked.PID)
	}
	return f, err
}

// free reports whether the path may be taken: nothing is there, or a socket at which no process
// answers.
func free(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errors.New("there is something else at this path: remove it, or choose another one")
	}
	conn, err := net.DialTimeout("unix", path, dialLimit)
	switch {
	case err == nil:
		defer conn.Close()
		return another(pidOf(conn))
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil // no process listens any more
	case errors.Is(err, unix.EAGAIN): // a process listens and does not keep up
		return another(0)
	}
	return err
}

// pidOf is the process that listens at the other end of a connection; 0: not known.
func pidOf(c net.Conn) (pid int) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// release removes the socket, if it is still the one that was made, and lets another agent have its
// place.
func (b *bound) release() {
	if b.UnixListener != nil {
		b.UnixListener.Close()
	}
	if b.info != nil {
		if now, err := os.Lstat(b.path); err == nil && os.SameFile(now, b.info) {
			os.Remove(b.path)
		}
	}
	if b.lock != nil {
		b.lock.Close()
	}
}
