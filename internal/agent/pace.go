package agent

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
)

// Bounds of the time between two cheap looks.
const (
	soonest = 2 * time.Millisecond
	latest  = time.Second
)

// slopeHalf is how long a slope that was seen counts for half.
const slopeHalf = time.Second

// forkFloor is how many tasks a second one core can make at least.
const forkFloor = 10_000

// pace says when the next cheap look is due: before what is left above the nearest threshold can be gone, however fast it is eaten.
type pace struct {
	floor float64 // bytes, or tasks, a second that this machine can take, however fast it was seen to
	slope float64 // that it was seen to take, lately
	last  stats.Observation
	fell  time.Time // when it was last seen to fall at more than a hundredth of the floor
}

// A signal that has not fallen for quietAfter is looked at no more often than each pollQuiet, however near its threshold is.
const (
	quietAfter = 5 * time.Second
	pollQuiet  = 10 * time.Millisecond
)

// see takes an observation into account.
func (p *pace) see(o stats.Observation) {
	if !o.OK {
		return
	}
	if span := o.Time.Sub(p.last.Time); p.last.OK && span > 0 {
		p.slope *= math.Exp2(-span.Seconds() / slopeHalf.Seconds())
		if fell := float64(p.last.Value) - float64(o.Value); fell > 0 {
			p.slope = max(p.slope, fell/span.Seconds())
			if fell/span.Seconds() > p.floor/100 {
				p.fell = o.Time
			}
		}
	}
	p.last = o
}

// next is the time until the next look, with so much left above the nearest threshold.
func (p *pace) next(headroom uint64) time.Duration {
	rate := max(p.floor, p.slope)
	if !(rate > 0) {
		return soonest
	}
	seconds := float64(headroom) / rate
	if seconds >= latest.Seconds() {
		return latest
	}
	due := max(soonest, time.Duration(seconds*float64(time.Second)))
	if p.last.Time.Sub(p.fell) > quietAfter { // just above a threshold for long: a node may live there
		due = max(due, pollQuiet)
	}
	return due
}

// measureFill finds out how many bytes a second the processes of this machine can take together: it fills a little memory, as
// fast as it can, with huge pages where the kernel gives them to whoever asks, and multiplies by the cores. The best of a few
// rounds counts, for whatever disturbs one makes it slow.
func measureFill(cores int) float64 {
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

// cores of the node, whatever of them this process may use. Those that might be plugged in do not count: virtual machines have
// room for a hundred more than they have.
func cores() int {
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
