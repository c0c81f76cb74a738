package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AddFile has an event descriptor (eventfd(2)) tell under a key of the caller's what pids.events
// would: tests of the loop have no cgroup that tells anything. The descriptor stays the caller's.
// What was watched under the key before is not any more.
func (w *Watcher) AddFile(key string, fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watch a descriptor: %w", err)
	}
	_, err = w.put(&watched{key: key},
		[]opening{{fd: own, kind: PIDsEventsChanged, events: unix.EPOLLIN | unix.EPOLLET}})
	return err
}
