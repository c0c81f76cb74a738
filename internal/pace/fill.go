package pace

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MeasureFill finds out how many bytes a second the processes of this machine can take together. It fills a little memory as fast as
// it can, with huge pages where the kernel gives them, and multiplies by the cores. The best of a few rounds counts, for a disturbance
// only makes one slower.
func MeasureFill(cores int) float64 {
	const (
		size    = 8 << 20 // four huge pages
		rounds  = 4
		page    = 4 << 10
		unknown = 3 << 30 // a core, where it cannot be measured
	)
	best := 0.0
	for range rounds {
		memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			break
		}
		_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // where there are none, 4 KiB pages are what others get too
		start := time.Now()
		for i := 0; i < size; i += page {
			memory[i] = 1
		}
		if took := time.Since(start); took > 0 {
			best = max(best, size/took.Seconds())
		}
		_ = unix.Munmap(memory)
	}
	if best == 0 {
		best = unknown
	}
	return best * float64(cores)
}

// Cores of the node, whatever of them this process may use. Those that might be plugged in do not count: virtual machines have
// room for a hundred more than they have.
func Cores() int {
	if text, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n := countCPUs(string(text)); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs counts a kernel's list, as 0-3,8,10-11; 0: it is none.
func countCPUs(list string) (n int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}
