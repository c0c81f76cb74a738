package openfiles

import (
	"slices"

	"golang.org/x/sys/unix"
)

// fileSets holds one thread for each descriptor table, in the kernel's order of these tables.
type fileSets []int

// has reports whether a thread shares the descriptor table of a thread in the list; if not, it adds
// the thread. same is sameFiles; ok is false if the comparison was not made. If the kernel does not
// compare (kcmp(2) is denied, or a thread has ended), the thread is added, because reading a table
// twice is better than missing files.
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

// sameFiles compares the descriptor tables of two threads with kcmp(2), and returns -1 if that
// is denied.
func sameFiles(one, other int) int {
	const files = 2 // KCMP_FILES (include/uapi/linux/kcmp.h)
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(one), uintptr(other), files, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(order)
}
