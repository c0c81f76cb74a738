package wholefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked: another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// Lock takes a lock that one process at a time has, which a file stands for that is made if there is none. To close the file gives it back;
// the kernel does when the process ends, whatever its end (flock(2)). It does not wait: where another process has it, the error is
// ErrLocked.
func Lock(path string) (*os.File, error) {
	f, err := Open(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", path, ErrLocked)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}
