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
	fillMemory  = 16 << 20       // for a moment: the agent's container has 64 MiB
	fillThreads = 4              // at most
	unknownFill = minFillPerCore // per core, if it cannot be measured
)

// MeasureFill measures how many bytes a second the processes of this machine can fill together.
//
// Up to four threads each fill a huge page, or the pages that the kernel provides instead, at the
// same time: cores share the memory, so together they are slower than one core times their number.
// For more cores the rate of four is scaled up, which rather overestimates.
//
// The best of a few rounds counts, because a disturbance only slows a round down. No page is filled
// twice: the lines of a page that was just freed are still in the cache, which looked like 97 GB/s
// on two cores. So all pages stay mapped until the end, and the first round, which may get such
// pages, does not count.
func MeasureFill(cores int) float64 {
	threads := max(1, min(cores, fillThreads, runtime.NumCPU()))
	if before := runtime.GOMAXPROCS(0); before < threads { // a CPU limit lowers it
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
		if rate := fillConcurrently(pages); round > 0 {
			best = max(best, rate)
		}
	}
	if best == 0 {
		return unknownFill * float64(cores)
	}
	return best * float64(cores) / float64(threads)
}

// coldPage maps untouched memory with the size and alignment of a huge page.
func coldPage() (page []byte, unmap func(), err error) {
	memory, err := unix.Mmap(-1, 0, 2*hugePage, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, err
	}
	skip := -uintptr(unsafe.Pointer(&memory[0])) & (hugePage - 1)
	page = memory[skip : skip+hugePage]
	// without huge pages other processes get 4 KiB pages, too
	_ = unix.Madvise(page, unix.MADV_HUGEPAGE)
	return page, func() { _ = unix.Munmap(memory) }, nil
}

// fillConcurrently touches every page of the given ones, each in its own thread, and returns the
// sum of their rates in bytes a second; 0 if one is missing.
func fillConcurrently(pages [][]byte) float64 {
	var ready atomic.Int64
	var all sync.WaitGroup
	took := make([]time.Duration, len(pages))
	if slices.ContainsFunc(pages, func(page []byte) bool { return page == nil }) {
		return 0
	}
	for i, page := range pages {
		all.Go(func() {
			for ready.Add(1); ready.Load() < int64(len(pages)); { // start together: it takes microseconds
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

// Cores returns the number of the node's online cores, whether or not this process may use them.
// Pluggable ones do not count: virtual machines may have a hundred of them.
func Cores() int {
	if text, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n := countCPUs(string(text)); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs counts the CPUs of a kernel's list, as 0-3,8,10-11; 0 if it is malformed.
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
