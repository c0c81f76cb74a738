package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// OpenKill opens cgroup.kill (since v5.14) for WriteKill, so that the kill itself is one write.
// The caller closes the descriptor. os.ErrNotExist: the kernel has no cgroup.kill; ErrVanished:
// no process is left to kill.
func (g *Group) OpenKill() (fd int, err error) { return g.openFile("cgroup.kill", unix.O_WRONLY) }

var one = []byte("1")

// WriteKill sends SIGKILL to every process of the group and its descendants, including forks in
// flight, through a descriptor of OpenKill. It returns when the signals are sent. To wait for the
// end of the processes, use WaitEmpty. EOPNOTSUPP: the group is threaded; ErrVanished: no process
// is left to kill.
func (g *Group) WriteKill(fd int) error {
	for {
		_, err := unix.Write(fd, one)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.ENODEV:
			err = ErrVanished
		}
		return fmt.Errorf("write to cgroup %s: %w", g.file("cgroup.kill"), err)
	}
}
