package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hangMount mounts a FUSE file system on dir and never answers the kernel's requests, like an
// unreachable storage server. A process that calls statfs on it, or opens its root or a file,
// blocks until this process is killed, and then gets ENOTCONN.
func hangMount(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Not os.Open: its finalizer or poller may close or drain the file. The mount lives as long as
	// the descriptor.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("hang", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	for {
		_ = unix.Pause()
	}
}
