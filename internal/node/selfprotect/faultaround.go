package selfprotect

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/userfaultfd.h.
const (
	userModeOnly       = 1       // UFFD_USER_MODE_ONLY: needs no privilege
	userfaultVersion   = 0xaa    // UFFD_API
	featureAsync       = 1 << 15 // UFFD_FEATURE_WP_ASYNC: the kernel resolves the faults itself
	modeWriteProtect   = 2       // UFFDIO_REGISTER_MODE_WP
	ioctlUserfaultAPI  = 0xc018aa3f
	ioctlUserfaultPart = 0xc020aa00 // UFFDIO_REGISTER
)

// faultAround is a descriptor that keeps the kernel from mapping the neighbors of a page that is
// used first: by default it maps up to 16 pages in one step, so that twice as much of the program
// would be mapped, and locked, as was ever used. The kernel does that in no memory that is
// registered for write protection (v6.7 mm/memory.c uffd_disable_fault_around). Nothing is ever
// write-protected.
type faultAround struct{ fd uintptr }

// newFaultAround returns an error on kernels before 6.7, or if seccomp forbids userfaultfd(2).
func newFaultAround() (f faultAround, err error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		return f, os.NewSyscallError("userfaultfd", errno)
	}
	api := struct{ version, features, ioctls uint64 }{version: userfaultVersion, features: featureAsync}
	if _, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, ioctlUserfaultAPI,
		uintptr(unsafe.Pointer(&api))); errno != 0 {
		_ = unix.Close(int(fd))
		return f, fmt.Errorf("userfaultfd without WP_ASYNC: %w", errno)
	}
	return faultAround{fd}, nil
}

// disable covers one mapping until the descriptor is closed, which the agent never does.
func (f faultAround) disable(begin, end uint64) error {
	part := struct{ begin, length, mode, ioctls uint64 }{begin, end - begin, modeWriteProtect, 0}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.fd, ioctlUserfaultPart, uintptr(unsafe.Pointer(&part)))
	if errno != 0 {
		return os.NewSyscallError("register mapping", errno)
	}
	return nil
}
