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
	fillMemory  = 16 << 20       // mapped temporarily: the agent's container has 64 MiB
	fillThreads = 4              // maximum
	unknownFill = minFillPerCore // per core, used if the measurement fails
)

// MeasureFill measures how many bytes per second the processes of this machine can fill together.
//
// Up to four threads fill one huge page each at the same time, or normal pages if the kernel
// provides those. Cores share the memory bandwidth, so all cores together fill less than one core
// times their number. For more than four cores the rate is scaled up, which overestimates it.
//
// The best of several rounds counts, because disturbances only slow a round down. No page is filled
// twice: a page that was just freed is still in the CPU cache, which gave 97 GB/s on two cores. So
// all pages stay mapped until the end, and the first round, which may get such pages, is ignored.
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
	// an error leaves 4 KiB pages, which other processes then get, too
	_ = unix.Madvise(page, unix.MADV_HUGEPAGE)
	return page, func() { _ = unix.Munmap(memory) }, nil
}

// fillConcurrently writes to every 4 KiB of the given memory areas, one goroutine for each, and
// returns the sum of their rates in bytes per second; 0 if an area is missing.
func fillConcurrently(pages [][]byte) float64 {
	var ready atomic.Int64
	var all sync.WaitGroup
	took := make([]time.Duration, len(pages))
	if slices.ContainsFunc(pages, func(page []byte) bool { return page == nil }) {
		return 0
	}
	for i, page := range pages {
		all.Go(func() {
			for ready.Add(1); ready.Load() < int64(len(pages)); { // wait for the other goroutines, which takes microseconds
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
// Offline cores do not count: a virtual machine may list a hundred hot-pluggable ones.
func Cores() int {
	if text, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n := countCPUs(string(text)); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs counts the CPUs in a kernel's list such as 0-3,8,10-11; 0 if the list is malformed.
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
