package cgroup

import "golang.org/x/sys/unix"

// OpenPidfd opens a descriptor of a process (since v5.3): whatever becomes of its number, the
// descriptor stands for that very process. Errors are plain errnos: ESRCH it is gone, EINVAL or
// ENOENT the id is that of a thread that leads no process.
func OpenPidfd(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// Mrelease frees the private memory of a process that was sent SIGKILL, in the calling thread: at
// its pace and priority, not at those of the dying (process_mrelease, since v5.15, mm/oom_kill.c).
// Memory that is shared (tmpfs, page cache) is not freed. Errors are plain errnos:
//
//	ESRCH   it is gone, or its memory is
//	EAGAIN  part of it could not be freed now: ask again
//	EINVAL  it is not dying, or shares its memory with a process that is not
//	ENOSYS  not in this kernel; EPERM: a seccomp filter refuses
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
