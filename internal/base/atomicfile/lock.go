package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrLocked: another process holds the lock. Such an error is a *LockedError.
var ErrLocked = errors.New("another process holds the lock")

// LockedError says which process holds a lock.
type LockedError struct {
	Path string
	PID  int // as it saw itself, in its own PID namespace; 0: not known
}

// Error names it.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: %v", e.Path, ErrLocked)
	}
	return fmt.Sprintf("lock %s: %v: pid %d", e.Path, ErrLocked, e.PID)
}

// Is tells that it is an ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Lock takes a lock that one process at a time has, which a file stands for that is made if there
// is none, and writes its PID there. To close the file gives it back; the kernel does when the
// process ends, whatever its end (flock(2)). It does not wait: where another process has it, the
// error is ErrLocked.
func Lock(path string) (*os.File, error) {
	f, err := Open(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		// A disk that is full keeps nobody from the lock: then it is not known whose it is.
		_ = f.Truncate(0)
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		return f, nil
	}
	defer f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &LockedError{Path: path, PID: holder(f)}
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// holder is the PID that the file of a lock has; 0: none.
func holder(f *os.File) int {
	text := make([]byte, 16)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
