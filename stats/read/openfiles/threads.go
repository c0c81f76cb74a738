package openfiles

import (
	"slices"

	"golang.org/x/sys/unix"
)

// fileSets are threads no two of which are known to share their descriptors, in the kernel's order
// of what they have.
type fileSets []int

// has reports whether a thread has the descriptors of one in the list; one that has not is added.
// same is sameFiles; not ok: it was not asked. Where the kernel does not tell (kcmp(2) is refused,
// or a thread has ended), it has its own: to look twice is better than not to look.
func (s *fileSets) has(tid int, same func(other, tid int) (order int, ok bool)) bool {
	at, shared := slices.BinarySearchFunc(*s, tid, func(other, tid int) int {
		order, ok := same(other, tid)
		switch {
		case ok && order == 0:
			return 0
		case ok && order == 2: // v6.12 kernel/kcmp.c kcmp_ptr: 1 is less, 2 is greater
			return 1
		}
		return -1
	})
	if !shared {
		*s = slices.Insert(*s, at, tid)
	}
	return shared
}

// sameFiles compares what descriptors two threads have: as kcmp(2), or -1 where that is refused.
func sameFiles(one, other int) int {
	const files = 2 // KCMP_FILES (include/uapi/linux/kcmp.h)
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(one), uintptr(other), files, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(order)
}
