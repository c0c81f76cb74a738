package squeeze

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// swap calls swapon(2) or swapoff(2), for which x/sys has no function.
func swap(call uintptr, device *byte) error {
	if _, _, errno := unix.Syscall(call, uintptr(unsafe.Pointer(device)), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
