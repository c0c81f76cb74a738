package pace

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"jettison/eviction"
	"jettison/stats"
)

const gib = 1 << 30

func TestPace(t *testing.T) {
	for _, c := range []struct {
		name     string
		floor    float64
		headroom uint64
		want     time.Duration
	}{
		{"far from the threshold", gib, 100 * gib, maxInterval},
		{"no threshold", gib, math.MaxUint64, maxInterval},
		{"half a second from the threshold", gib, gib / 2, 500 * time.Millisecond},
		{"at the threshold", gib, 1, MinInterval},
		{"unknown floor", 0, gib, MinInterval},
		{"floor is not a number", math.NaN(), gib, MinInterval},
	} {
		p := pace{floor: c.floor}
		if got := p.next(c.headroom); got != c.want {
			t.Errorf("%s: next look in %v, want %v", c.name, got, c.want)
		}
	}
}

// At any rate up to the floor, a look is due before the crossing, or after it within the shortest
// interval (10 ms for a slow leak). A quiet node is read rarely.
func TestLeakIsSeenInTime(t *testing.T) {
	const threshold = 100 << 20
	for _, rate := range []float64{10 << 20, 100 << 20, gib, 3 * gib} { // bytes a second
		p, now, looks := pace{floor: 3 * gib}, time.Unix(1000, 0), 0
		start, at := now, func(now time.Time) float64 { return 4*gib - rate*now.Sub(time.Unix(1000, 0)).Seconds() }
		for at(now) > threshold {
			p.observe(stats.Observation{OK: true, Time: now, Value: uint64(at(now))})
			now = now.Add(p.next(uint64(at(now)) - threshold))
			looks++
		}
		crossed := start.Add(time.Duration((4*gib - threshold) / rate * float64(time.Second)))
		if late := now.Sub(crossed); late > pollQuiet+time.Millisecond || rate > 3*gib/100 && late > MinInterval+time.Millisecond {
			t.Errorf("leak of %v bytes a second: seen %v after the crossing", rate, late)
		}
		if took := now.Sub(start); looks > 50 && looks > int(took/(5*time.Millisecond)) {
			t.Errorf("leak of %v bytes a second: %d looks in %v", rate, looks, took)
		}
	}
}

// A rate above the floor counts after it was observed, and decays when it ends.
func TestSlopeDecays(t *testing.T) {
	p, now := pace{floor: 100 << 20}, time.Unix(1000, 0)
	see := func(available uint64) { p.observe(stats.Observation{OK: true, Time: now, Value: available}) }
	see(4 * gib)
	now = now.Add(time.Second)
	see(3 * gib)
	if got := p.next(gib); got != time.Second {
		t.Errorf("next look with 1 GiB left at 1 GiB/s = %v, want 1s", got)
	}
	if got := p.next(gib / 4); got != 250*time.Millisecond {
		t.Errorf("next look with 256 MiB left at 1 GiB/s = %v, want 250ms", got)
	}
	p.observe(stats.Observation{}) // an absent observation changes nothing
	now = now.Add(4 * time.Second)
	see(3 * gib)
	if got := p.next(gib / 16); got < 600*time.Millisecond || got > 700*time.Millisecond {
		t.Errorf("next look 4 s later = %v, want that of the floor", got)
	}
}

// A trend is the fall over at least half a second, regardless of the interval of looks and of the
// way in which memory is used: in pieces, in one step, or no longer.
func TestTrend(t *testing.T) {
	const step = 5 * time.Millisecond
	trends := func(taken func(since time.Duration) float64, seconds float64) (highest, last float64) {
		r, p := eviction.Ready{}, New(gib, 2)
		for since := time.Duration(0); since.Seconds() <= seconds; since += step {
			r.Headroom[0].Observed = stats.Observation{OK: true, Time: time.Unix(1000, 0).Add(since), Value: uint64(64*gib - taken(since))}
			p.Observe(&r)
			last = p.Trend(0)
			highest = max(highest, last)
		}
		return highest, last
	}
	inPieces := func(since time.Duration) float64 { return math.Floor(since.Seconds()*10) * (1 << 20) }
	if highest, last := trends(inPieces, 5); highest > 12<<20 || last < 8<<20 {
		t.Errorf("a MiB each tenth of a second: trend at most %.1f MiB a second, finally %.1f", highest/(1<<20), last/(1<<20))
	}
	steadily := func(since time.Duration) float64 { return since.Seconds() * gib }
	if _, last := trends(steadily, 2); last < 0.99*gib || last > 1.01*gib {
		t.Errorf("1 GiB a second: trend %v", last)
	}
	if _, last := trends(steadily, 0.02); last < 0.9*gib || last > 1.1*gib {
		t.Errorf("1 GiB a second for 20 ms: trend %v", last)
	}
	begins := func(since time.Duration) float64 { return max(0, since.Seconds()-0.4) * 4 * gib }
	if _, last := trends(begins, 0.42); last < 3*gib || last > 5*gib { // the remaining time is too short to reclaim
		t.Errorf("4 GiB a second for the last 20 ms: trend %v", last)
	}
	over := func(since time.Duration) float64 { return min(1, since.Seconds()) * gib }
	if _, last := trends(over, 4); last < 0.1*gib || last > 0.15*gib {
		t.Errorf("1 GiB a second until 3 s ago: trend %v", last)
	}
	once := func(since time.Duration) float64 { return math.Floor(min(1, since.Seconds()*2)) * (20 << 20) }
	if _, last := trends(once, 0.6); last > 41<<20 {
		t.Errorf("20 MiB in one step a tenth of a second ago: trend %v", last)
	}
	rises := func(since time.Duration) float64 { return -since.Seconds() * gib }
	if highest, _ := trends(rises, 2); highest != 0 {
		t.Errorf("a rising signal has the trend %v, want 0", highest)
	}
	var one trend
	one.observe(stats.Observation{})
	one.observe(stats.Observation{OK: true, Time: time.Unix(1000, 0), Value: gib})
	one.observe(stats.Observation{OK: true, Time: time.Unix(999, 0), Value: gib / 2})
	if got := one.perSecond(); got != 0 {
		t.Errorf("trend after the clock went back = %v, want 0", got)
	}
}

func TestMeasureFill(t *testing.T) {
	for _, cores := range []int{1, 2, 100} {
		if fill := MeasureFill(cores); fill < 1<<20 || fill > float64(cores)*(1<<38) {
			t.Errorf("fill rate of %d cores = %v bytes a second", cores, fill)
		}
	}
	if Cores() < 1 {
		t.Errorf("Cores() = %d, want at least one", Cores())
	}
	slow, fast := New(gib, 2), New(40*gib, 2)
	if slow.Fill() != gib || slow.paces[0].floor != 2*minFillPerCore || fast.Fill() != 40*gib || fast.paces[0].floor != 40*gib {
		t.Errorf("floors of a slow and a fast machine: %+v, %+v", slow, fast)
	}
}

// Each page is a new mapping while all earlier ones stay mapped, so that no page is in the cache.
func TestColdPagesAreNew(t *testing.T) {
	seen := map[*byte]bool{}
	for range fillMemory / hugePage {
		page, unmap, err := coldPage()
		if err != nil {
			t.Fatal(err)
		}
		defer unmap()
		if len(page) != hugePage || uintptr(unsafe.Pointer(&page[0]))%hugePage != 0 || seen[&page[0]] {
			t.Errorf("cold page of %d bytes at %p, seen before: %v", len(page), &page[0], seen[&page[0]])
		}
		seen[&page[0]] = true
	}
	if fillConcurrently([][]byte{nil, make([]byte, hugePage)}) != 0 {
		t.Error("a fill rate was measured with a missing page")
	}
}

// A real leak at full speed: every core fills memory with huge pages, on a separate node. The
// measurement is within a factor of two of the leak's best undisturbed stretch that is as long as a
// measurement.
func TestLiveFillIsThatOfALeak(t *testing.T) {
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("needs a machine of its own: make e2e RUN=FullSpeed")
	}
	const all = 256 << 20
	cores := Cores()
	leak := func() (best float64) {
		memory, err := unix.Mmap(-1, 0, all+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(memory) }()
		// Each stretch consists of whole huge pages: part of another page would have been filled by the
		// stretch before, which looked up to 27 times as fast (6.1 aligns no mapping, 6.7 does).
		skip := -uintptr(unsafe.Pointer(&memory[0])) & (hugePage - 1)
		aligned := memory[skip : skip+all]
		_ = unix.Madvise(aligned, unix.MADV_HUGEPAGE)
		for left := aligned; len(left) >= cores*hugePage; left = left[cores*hugePage:] {
			pages := make([][]byte, cores)
			for i := range pages {
				pages[i] = left[i*hugePage : (i+1)*hugePage]
			}
			best = max(best, fillConcurrently(pages))
		}
		return best
	}
	first := leak() // the host of a virtual machine may have to find the memory first
	real, measured := leak(), 0.0
	for range 5 {
		measured = max(measured, MeasureFill(cores))
	}
	fmt.Printf("cores %d first %.0f leak %.0f measured %.0f\n", cores, first, real, measured)
	if measured > 2*real || measured < real/2 {
		t.Errorf("measured %.3f GB/s, a leak on %d cores takes %.3f", measured/1e9, cores, real/1e9)
	}
}

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0-7\n": 8, "0\n": 1, "0-3,8,10-11": 7, "": 0, "x": 0, "3-1": 0, "0-": 0} {
		if got := countCPUs(list); got != want {
			t.Errorf("countCPUs(%q) = %d, want %d", list, got, want)
		}
	}
}

// A node that stays just above a threshold is not read five hundred times a second, until the
// signal falls again.
func TestLongNearAThreshold(t *testing.T) {
	p, now := pace{floor: 1 << 30}, time.Unix(1000, 0)
	see := func(available uint64) {
		now = now.Add(10 * time.Millisecond)
		p.observe(stats.Observation{OK: true, Time: now, Value: available})
	}
	see(20 << 20)
	see(10 << 20)
	if got := p.next(1 << 20); got != MinInterval {
		t.Errorf("next look while the signal falls = %v, want %v", got, MinInterval)
	}
	for range 600 {
		see(10 << 20)
	}
	if got := p.next(1 << 20); got != pollQuiet {
		t.Errorf("next look after 6 quiet seconds = %v, want %v", got, pollQuiet)
	}
	see(5 << 20)
	if got := p.next(1 << 20); got != MinInterval {
		t.Errorf("next look when the signal falls again = %v, want %v", got, MinInterval)
	}
}
