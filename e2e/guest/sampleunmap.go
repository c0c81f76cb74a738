package main

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// unmapRounds is the number of measurements of unmap: the median counts.
const unmapRounds = 5

// unmap prints the nanoseconds that this machine needs to free so many bytes of anonymous memory in
// small pages, with its own CPU: a lower bound for every killer that does not use more CPUs.
func unmap(size string) error {
	n, err := strconv.ParseInt(size, 10, 48)
	if err != nil || n <= 0 {
		return fmt.Errorf("unmap %q: want a number of bytes", size)
	}
	runtime.LockOSThread()
	var times []int64
	for range unmapRounds {
		memory, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return fmt.Errorf("map %d bytes: %w", n, err)
		}
		_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE) // fails on a kernel without huge pages
		for i := 0; i < len(memory); i += int(pageSize) {
			memory[i] = 1
		}
		began := monotonic()
		if err := unix.Munmap(memory); err != nil {
			return fmt.Errorf("unmap %d bytes: %w", n, err)
		}
		times = append(times, monotonic()-began)
	}
	slices.Sort(times)
	_, err = fmt.Println(times[len(times)/2])
	return err
}
