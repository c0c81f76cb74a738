package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AddFile watches an event descriptor (eventfd(2)) under a key, for tests of the loop without a
// real cgroup. Its events are reported as PIDsEventsChanged. The caller still owns the descriptor.
// AddFile replaces a previous watch under the key.
func (w *Watcher) AddFile(key string, fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watch a descriptor: %w", err)
	}
	_, err = w.put(&watched{key: key},
		[]opening{{fd: own, kind: PIDsEventsChanged, events: unix.EPOLLIN | unix.EPOLLET}})
	return err
}
