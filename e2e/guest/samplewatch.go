package main

import (
	"fmt"
	"math"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"jettison/e2e/guestapi"
)

// probe samples memory and one cgroup. It does not allocate after its creation.
type probe struct {
	req    guestapi.SampleRequest
	mem    *memoryFiles
	events int // cgroup.events of the victim

	workingSet, lists estimate

	out        guestapi.Sample
	last       int64 // time of the last sample; 0: none yet
	cost       int64 // of all samples
	gaps       [gapBuckets]int32
	gapSamples int32
}

// Gaps between samples are counted in buckets, for their p99.
const (
	gapBucket  = 50 * time.Microsecond
	gapBuckets = 2000
)

// estimate corrects a cheap value by the last exact value of an expensive file, memory.stat or
// zoneinfo.
type estimate struct {
	drift int64 // exact - cheap
	read  int64 // when both were last read; 0: never
	side  int   // of the compared levels, as last read exactly
}

// An expensive file is read when the estimate is so near a compared level that it could be on the
// wrong side. The error is what the kernel has not summed up yet (mm/vmstat.c,
// calculate_normal_threshold: at most 125 pages per counter and CPU). The file is read again after
// a while when that may happen. No estimate alone moves a level to the other side: while a process
// ends, tens of MiB are neither its own nor free (mm/mmu_gather.c).
const (
	near       = 512 << 10
	nearing    = 16 << 20
	correction = int64(10 * time.Millisecond)
	stale      = int64(50 * time.Millisecond)
)

func newProbe(req guestapi.SampleRequest, proc, cgroups string) (*probe, error) {
	if req.Every <= 0 {
		req.Every = time.Millisecond
	}
	switch req.By {
	case guestapi.Lower, guestapi.WorkingSet, guestapi.Kernel, guestapi.MemAvailable:
	case "":
		req.By = guestapi.Lower
	default:
		return nil, fmt.Errorf("sample by %q: want one of %q", req.By, []string{guestapi.Lower, guestapi.WorkingSet, guestapi.Kernel, guestapi.MemAvailable})
	}
	mem, err := openMemory(proc, cgroups)
	if err != nil {
		return nil, err
	}
	path := cgroups + "/" + req.Cgroup + "/cgroup.events"
	events, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		mem.close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	p := &probe{req: req, mem: mem, events: events}
	p.reset()
	return p, nil
}

// reset drops all samples.
func (p *probe) reset() {
	p.out = guestapi.Sample{Lowest: math.MaxInt64}
	p.last, p.cost, p.gapSamples = 0, 0, 0
	p.workingSet, p.lists = estimate{}, estimate{}
	clear(p.gaps[:])
}

// watch samples until stdin ends.
func (p *probe) watch() (guestapi.Sample, error) {
	every := int64(p.req.Every)
	var b [1]byte
	for due, i := monotonic(), 0; ; i++ {
		now, err := p.step(monotonic())
		if err != nil {
			return p.out, err
		}
		// Polled rarely: the end may wait 16 samples.
		if i%16 == 0 {
			if n, _, errno := syscall.RawSyscall(syscall.SYS_READ, 0, uintptr(unsafe.Pointer(&b[0])), 1); errno == 0 && n == 0 {
				break
			}
		}
		due += every
		if now > due { // late: skip the missed samples
			due = now + every/4
		}
		at := unix.NsecToTimespec(due)
		_, _, _ = syscall.RawSyscall6(syscall.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	}
	p.finish()
	return p.out, nil
}

// finish computes the figures that need all samples.
func (p *probe) finish() {
	if p.out.Samples > 0 {
		p.out.MeanCost = p.cost / p.out.Samples
	}
	var seen int32
	for i, n := range p.gaps {
		if seen += n; n > 0 && float64(seen) >= 0.99*float64(p.gapSamples) {
			p.out.GapP99 = min(int64(i+1)*int64(gapBucket), p.out.MaxGap)
			break
		}
	}
}

// step takes one sample, at now, and returns the time of its end.
func (p *probe) step(now int64) (done int64, err error) {
	available, err := p.available(now)
	if err != nil {
		return 0, err
	}
	p.count(now)
	p.judge(now, available)
	if p.out.Crossed != 0 && p.out.Empty == 0 && !p.populated() {
		p.out.Empty = monotonic()
	}
	done = monotonic()
	p.cost += done - now
	p.out.MaxCost = max(p.out.MaxCost, done-now)
	return done, nil
}

// count records the time since the previous sample.
func (p *probe) count(now int64) {
	p.out.Samples++
	if p.last != 0 {
		gap := now - p.last
		p.out.MaxGap = max(p.out.MaxGap, gap)
		p.gaps[min(gap/int64(gapBucket), gapBuckets-1)]++
		p.gapSamples++
	}
	p.last = now
}

// judge compares a sample with the levels of the request.
func (p *probe) judge(now, available int64) {
	o := &p.out
	o.Lowest = min(o.Lowest, available)
	switch {
	case o.Crossed == 0:
		if available < p.req.Threshold {
			o.Crossed = now
		}
		return
	case available < p.req.Threshold:
		if o.Empty == 0 { // a dip that ended by itself is no return of the victim's memory
			o.Back = 0
		}
	case o.Back == 0:
		o.Back = now
	}
	if p.req.Whole > 0 && o.Whole == 0 && available >= p.req.Whole {
		o.Whole = now
	}
}

// available returns the signal that is judged, in bytes.
func (p *probe) available(now int64) (int64, error) {
	if err := p.mem.readInfo(); err != nil {
		return 0, err
	}
	switch p.req.By {
	case guestapi.MemAvailable:
		return p.mem.info[memAvailable].value, nil
	case guestapi.Kernel:
		return p.kernel(now)
	case guestapi.WorkingSet:
		return p.kubelet(now)
	}
	kubelet, err := p.kubelet(now)
	if err != nil {
		return 0, err
	}
	kernel, err := p.kernel(now)
	return min(kernel, kubelet), err
}

// kubelet returns MemTotal without the working set.
func (p *probe) kubelet(now int64) (int64, error) {
	m := p.mem
	v := m.info[memTotal].value - m.estimate() - p.workingSet.drift
	if !p.due(&p.workingSet, now, v) {
		return v, nil
	}
	exact, err := m.workingSet()
	p.corrected(&p.workingSet, v-(m.info[memTotal].value-exact))
	v = m.info[memTotal].value - exact
	p.workingSet = estimate{drift: exact - m.estimate(), read: now, side: p.side(v)}
	return v, err
}

// kernel returns MemAvailable plus the free pages on per-CPU lists, if those matter.
func (p *probe) kernel(now int64) (int64, error) {
	m := p.mem
	v := m.info[memAvailable].value
	if v >= max(p.req.Threshold, p.req.Whole)+nearing {
		return v, nil
	}
	lists := p.lists.drift - m.accounted()
	// Read while a process ends, the lists seem to include memory that is no longer the process's
	// and not free yet. When that memory is free, they seem to have lost it.
	wrong := lists < 0 || p.out.Crossed != 0 && now-p.lists.read > stale
	if !wrong && !p.due(&p.lists, now, v+lists) {
		return v + lists, nil
	}
	exact, err := m.perCPUFree()
	p.corrected(&p.lists, lists-exact)
	p.lists = estimate{drift: exact + m.accounted(), read: now, side: p.side(v + exact)}
	return v + exact, err
}

// corrected records an exact read, and the error of the estimate.
func (p *probe) corrected(e *estimate, off int64) {
	p.out.Dear++
	if e.read != 0 {
		p.out.MaxOff = max(p.out.MaxOff, abs(off))
	}
}

// due reports whether the estimate of a level is too inexact to tell its side of the compared
// levels.
func (p *probe) due(e *estimate, now, level int64) bool {
	return e.read == 0 || p.side(level) != e.side || p.isNear(level, near) || now-e.read > correction && p.isNear(level, nearing)
}

// side returns the number of compared levels that a level has reached.
func (p *probe) side(level int64) (n int) {
	if level >= p.req.Threshold {
		n++
	}
	if p.req.Whole > 0 && level >= p.req.Whole {
		n++
	}
	return n
}

// isNear reports whether a level is within this distance of a compared one.
func (p *probe) isNear(v, within int64) bool {
	return abs(v-p.req.Threshold) < within || p.req.Whole > 0 && p.out.Whole == 0 && abs(v-p.req.Whole) < within
}

func abs(v int64) int64 { return max(v, -v) }

// populated returns false for a cgroup without processes and for a removed one (ENODEV).
func (p *probe) populated() bool {
	b := p.mem.buf[:256]
	n, errno := pread(p.events, b)
	if errno != 0 {
		return false
	}
	at := find(b[:n], "populated ")
	if at < 0 {
		return true // unknown
	}
	v, ok := number(b[at+len("populated ") : n])
	return !ok || v != 0
}
