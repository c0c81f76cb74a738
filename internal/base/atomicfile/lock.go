package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process holds the lock. The error is a *LockedError.
var ErrLocked = errors.New("another process holds the lock")

// LockedError names the process that holds a lock.
type LockedError struct {
	Path string
	PID  int // in the PID namespace of that process; 0: unknown
}

// Error returns the path and the PID.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: %v", e.Path, ErrLocked)
	}
	return fmt.Sprintf("lock %s: %v: pid %d", e.Path, ErrLocked, e.PID)
}

// Is reports that the error is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Lock takes an exclusive lock for this process. path is its file, created if missing, and gets the
// PID. Closing the file releases the lock; the kernel does so when the process ends (flock(2)).
// Lock does not block: if another process holds the lock, the error is ErrLocked.
func Lock(path string) (*os.File, error) {
	f, err := Open(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		// On a full disk the lock works without the PID.
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

// holder returns the PID in the file of a lock; 0: none.
func holder(f *os.File) int {
	text := make([]byte, 16)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
