package pace

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	hugePage    = 2 << 20
	fillMemory  = 16 << 20  // that MeasureFill takes, for a moment: the agent's container has 64 MiB
	fillThreads = 4         // at most
	unknownFill = leastFill // of a core, where it cannot be measured
)

// MeasureFill finds out how many bytes a second the processes of this machine can take together. Up
// to four threads fill a huge page each, or what the kernel gives instead, at the same time:
// together cores are slower than one times their number, for they share the memory. Of more cores
// the rate is what four take of it, times the rest, which is rather too much. The best of a few
// rounds counts, for a disturbance only makes one slower, but no page counts twice: the lines of
// one that was just given back are in the cache still, and on two cores that looked like 97 GB/s.
// So all stays mapped until the end, and the first round, which may get such pages, does not count.
func MeasureFill(cores int) float64 {
	threads := max(1, min(cores, fillThreads, runtime.NumCPU()))
	if before := runtime.GOMAXPROCS(0); before < threads { // a limit of CPU time makes it smaller
		runtime.GOMAXPROCS(threads)
		defer runtime.GOMAXPROCS(before)
	}
	best := 0.0
	for round := range fillMemory / hugePage / threads {
		pages := make([][]byte, threads)
		for i := range pages {
			page, unmap, err := coldPage()
			if err != nil {
				break
			}
			defer unmap()
			pages[i] = page
		}
		if rate := fillTogether(pages); round > 0 {
			best = max(best, rate)
		}
	}
	if best == 0 {
		return unknownFill * float64(cores)
	}
	return best * float64(cores) / float64(threads)
}

// coldPage maps memory of the size of a huge page and placed as one, untouched.
func coldPage() (page []byte, unmap func(), err error) {
	memory, err := unix.Mmap(-1, 0, 2*hugePage, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, err
	}
	skip := -uintptr(unsafe.Pointer(&memory[0])) & (hugePage - 1)
	page = memory[skip : skip+hugePage]
	// where there are none, 4 KiB pages are what others get too
	_ = unix.Madvise(page, unix.MADV_HUGEPAGE)
	return page, func() { _ = unix.Munmap(memory) }, nil
}

// fillTogether touches every page, each of the given ones in a thread of its own, and returns the
// sum of their rates in bytes a second; 0: one is missing.
func fillTogether(pages [][]byte) float64 {
	var ready atomic.Int64
	var all sync.WaitGroup
	took := make([]time.Duration, len(pages))
	if slices.ContainsFunc(pages, func(page []byte) bool { return page == nil }) {
		return 0
	}
	for i, page := range pages {
		all.Go(func() {
			for ready.Add(1); ready.Load() < int64(len(pages)); { // to begin together: it takes microseconds
				runtime.Gosched()
			}
			start := time.Now()
			for at := 0; at < len(page); at += 4 << 10 {
				page[at] = 1
			}
			took[i] = time.Since(start)
		})
	}
	all.Wait()
	sum := 0.0
	for i, t := range took {
		sum += float64(len(pages[i])) / max(t, time.Microsecond).Seconds()
	}
	return sum
}

// Cores of the node, whatever of them this process may use. Those that might be plugged in do not
// count: virtual machines have room for a hundred more than they have.
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
