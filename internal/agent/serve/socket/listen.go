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

// private is the pattern of the directory in which a socket is created. MkdirTemp replaces * with
// up to 10 digits.
const private = ".j*"

// dialLimit is the time within which a running agent must accept a connection; its kernel does
// that.
const dialLimit = time.Second

// bound is a socket that listens at its path.
type bound struct {
	*net.UnixListener
	path string
	lock *os.File    // held while the socket exists
	info os.FileInfo // of the socket
}

// bind creates the socket at path. It replaces one on which no process listens. The socket appears
// with its final mode and group. gid -1: only root, 0600; otherwise 0660 for that group.
func bind(path string, gid int) (*bound, error) {
	dir := filepath.Dir(path)
	switch {
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("socket %q: want an absolute path", path)
	case len(path) > maxPath || len(dir)+len("/.j0123456789/s") > maxPath:
		return nil, fmt.Errorf("socket %s: path too long: the kernel allows %d bytes", path,
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

// listen creates the socket in a directory that only its owner may enter, and moves it to its path
// when it is ready.
func (b *bound) listen(dir string, gid int) error {
	tmp, err := os.MkdirTemp(dir, private)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	first := filepath.Join(tmp, "s")
	if b.UnixListener, err = net.ListenUnix("unix",
		&net.UnixAddr{Name: first, Net: "unix"}); err != nil {
		return err
	}
	b.SetUnlinkOnClose(false) // it is renamed
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

// makeDir creates the socket's directory. It rejects one that every user may write to, where
// another socket could replace it.
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
		return fmt.Errorf("every user may write to %s (mode %04o): choose another directory", dir,
			info.Mode().Perm())
	}
	return nil
}

// another returns the error of a second agent; pid is the process of the first, 0 if unknown.
func another(pid int) error {
	owner := "another agent"
	if pid > 0 {
		owner = fmt.Sprintf("another agent (pid %d)", pid)
	}
	return fmt.Errorf("%s listens on it: stop that agent, or configure another socket", owner)
}

// lock takes the lock file, so that two agents cannot replace each other's socket as stale.
func lock(path string) (*os.File, error) {
	f, err := atomicfile.Lock(path)
	if locked := (*atomicfile.LockedError)(nil); errors.As(err, &locked) {
		return nil, another(locked.PID)
	}
	return f, err
}

// free removes nothing; it returns an error unless path does not exist or is a socket on which no
// process listens.
func free(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errors.New("the path exists and is not a socket: remove it, or choose another path")
	}
	conn, err := net.DialTimeout("unix", path, dialLimit)
	switch {
	case err == nil:
		defer conn.Close()
		return another(pidOf(conn))
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil // no process listens any more
	case errors.Is(err, unix.EAGAIN): // a process listens, with a full backlog
		return another(0)
	}
	return err
}

// pidOf returns the process at the other end of a connection; 0: unknown.
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

// release removes the socket, unless another has replaced it, and releases the lock.
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
