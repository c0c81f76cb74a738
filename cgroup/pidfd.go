package cgroup

import "golang.org/x/sys/unix"

// OpenPidfd opens a descriptor of a process (since v5.3), which refers to that process even after
// its ID was reused. Errors are plain errnos. ESRCH: the process is gone. EINVAL, ENOENT: the ID is
// not that of a thread group leader.
func OpenPidfd(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// Mrelease frees the private memory of a process that was sent SIGKILL. It does so in the calling
// thread, with that thread's priority instead of the dying process's (process_mrelease, since
// v5.15, mm/oom_kill.c). It does not free shared memory (tmpfs, page cache). Errors are plain
// errnos:
//
//	ESRCH   the process or its memory is gone
//	EAGAIN  part of the memory could not be freed now: call again
//	EINVAL  the process is not dying, or shares its memory with one that is not
//	ENOSYS  not in this kernel; EPERM: denied by a seccomp filter
func Mrelease(pidfd int) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_PROCESS_MRELEASE, uintptr(pidfd), 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}
