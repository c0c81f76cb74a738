package squeeze

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// swap is swapon(2) or swapoff(2), which x/sys has no function for.
func swap(call uintptr, device *byte) error {
	if _, _, errno := unix.Syscall(call, uintptr(unsafe.Pointer(device)), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
