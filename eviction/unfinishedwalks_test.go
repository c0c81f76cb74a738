package eviction

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"jettison/stats"
)

// walks measures pods one after the other, concurrently with the manager, as package read does: in
// turns of its lengths, cut off at their end, one of these after each round of the others.
type walks struct {
	pods        []*walked
	speed       float64 // inodes per second, while a disk is short; a twentieth otherwise
	hurry       bool
	whole       time.Time
	next        int
	of          *walked // in progress; nil: none
	began, ends time.Time
	all         float64 // what it will find
	cut         bool    // it will be cut off
}

// walked is one pod.
type walked struct {
	uid         string
	holds       float64
	wrote       float64
	rate        float64 // what it takes per second
	from, until time.Time
	found       float64
	time        time.Time // of the walk; zero: it was never walked
	cut         bool
	turn        time.Duration
	known       time.Time // since when everything that it took is known
}

// pass ends the walk that is over, and begins the next one.
func (s *walks) pass(now time.Time) {
	if p := s.of; p != nil {
		if now.Before(s.ends) {
			return
		}
		if p.found = max(p.found, s.all); !s.cut {
			p.found = s.all
		}
		p.time, p.cut, s.of = s.began, s.cut, nil
		if !p.cut && p.known.IsZero() && s.began.After(p.until) {
			p.known = now
		}
	}
	p := s.pods[s.next%len(s.pods)]
	s.next++
	first, longest := time.Minute, 10*time.Minute
	if s.hurry {
		first, longest = 5*time.Second, time.Minute
	}
	turn := first
	switch {
	case p.cut && p.time.Before(s.whole):
		turn = longest
	case p.cut:
		turn = min(2*p.turn, longest)
	}
	long := time.Duration(p.holds / s.pace() * float64(time.Second))
	p.turn = turn
	s.of, s.cut, s.all, s.began, s.ends = p, long > turn, p.holds, now, now.Add(min(long, turn))
	if s.cut {
		s.all = s.pace() * turn.Seconds()
	}
}

func (s *walks) pace() float64 {
	if s.hurry {
		return s.speed
	}
	return s.speed / 20
}

// hurries reports whether the disk is short, or near it: a walk that began before is cut off after
// a first turn.
func (s *walks) hurries(now time.Time, on bool) {
	if first := s.began.Add(5 * time.Second); on && !s.hurry && s.of != nil && s.ends.After(first) {
		s.cut, s.all = true, s.pace()*max(now.Sub(s.began).Seconds(), 5)
		if s.ends = first; now.After(first) {
			s.ends = now
		}
	}
	s.hurry = on
}

// filling is a random node: one of its pods fills a disk, or something else does.
type filling struct {
	walks
	m       *Manager
	signal  string
	unit    uint64 // of an inode
	size    float64
	filler  *walked
	outside float64
	from    time.Time // growth outside of pods begins
	rate    float64
	until   time.Time
}

// fillingAt is the earliest time at which the disk fills: the pods' usage on the quiet disk is
// known by then.
const fillingAt = 5 * time.Minute

func newFilling(t *testing.T, seed uint64, ofPods bool) *filling {
	d := dice{rand.New(rand.NewPCG(seed, 23))}
	f := &filling{signal: pick(d, "nodefs.inodesFree", "nodefs.available"), unit: 1}
	f.speed = float64(d.between(10_000, 200_000))
	takes := f.speed * float64(d.between(2, 45)) // less than the longest turn finds
	over := time.Duration(d.between(1, 60)) * time.Second
	from := epoch.Add(fillingAt).Add(d.ms(0, 60_000))
	for i := range d.between(1, 8) {
		f.pods = append(f.pods, &walked{uid: fmt.Sprintf("pod-%d", i), holds: float64(d.between(1, int(takes)/20))})
	}
	if d.one(2) { // a pod that no walk on the quiet disk finds completely
		f.pods[0].holds = f.speed * float64(d.between(31, 90))
	}
	f.from, f.until = from, from.Add(over)
	if ofPods {
		f.filler = &walked{uid: "filler", holds: float64(d.between(1, 1000)), rate: takes / over.Seconds(), from: from, until: from.Add(over)}
		f.pods[0].holds = min(f.pods[0].holds, takes/20)
		f.pods = append(f.pods, f.filler)
	} else {
		f.rate = takes / over.Seconds()
	}
	if f.signal == "nodefs.available" {
		f.unit = 4096
	}
	limit := takes * float64(d.between(5, 40)) / 100 // so that the disk is not near it while quiet
	f.size = f.held() + takes + limit*float64(d.between(0, 90))/100
	other := "hard nodefs.inodesFree 1"
	if f.unit == 1 {
		other = "hard nodefs.available 1"
	}
	f.m = managerOf(t, 5*time.Minute, "own x", fmt.Sprintf("hard %s %d", f.signal, uint64(limit)*f.unit), other)
	f.m.config.Replay, f.m.config.Explain = false, true
	return f
}

func (f *filling) held() (all float64) {
	for _, p := range f.pods {
		all += p.holds
	}
	return all + f.outside
}

// input returns what a look finds.
func (f *filling) input(now time.Time) Input {
	s := &stats.Summary{Time: now}
	left := uint64(max(f.size-f.held(), 0))
	s.Node.Layout = stats.Some(stats.Layout{})
	s.Node.Fs = stats.Some(stats.FsStats{
		Time: now, CapacityBytes: stats.Some(uint64(f.size) << 12), AvailableBytes: stats.Some(left << 12),
		Inodes: stats.Some(uint64(f.size)), InodesFree: stats.Some(left),
	})
	for _, p := range f.pods {
		o := stats.PodStats{PodRef: stats.PodReference{UID: p.uid}, Announced: true, Populated: stats.Some(true), StartTime: epoch}
		o.Written = stats.WrittenStats{Bytes: stats.Some(uint64(p.wrote) << 12), Inodes: stats.Some(uint64(p.wrote))}
		if !p.time.IsZero() {
			found := uint64(p.found)
			u := stats.FsUsage{Time: p.time, UsedBytes: found << 12, InodesUsed: found, Partial: p.cut}
			o.Containers = []stats.ContainerStats{{Name: "c", Rootfs: stats.Some(u)}}
			st := &o.EphemeralStorage
			st.Time, st.UsedBytes, st.InodesUsed, st.Partial, st.Cut = p.time, stats.Some(u.UsedBytes), stats.Some(found), p.cut, p.cut
		}
		s.Pods = append(s.Pods, o)
	}
	return Input{Summary: s}
}

// step is one second. It returns the victim.
func (f *filling) step(now time.Time) string {
	for _, p := range f.pods {
		if p.rate > 0 && now.After(p.from) && !now.After(p.until) {
			p.holds, p.wrote = p.holds+p.rate, p.wrote+p.rate
		}
	}
	if f.rate > 0 && now.After(f.from) && !now.After(f.until) {
		f.outside += f.rate
	}
	f.pass(now)
	in := f.input(now)
	r := f.m.Observe(now, &in.Summary.Node, Situation{})
	f.hurries(now, r.DisksShort)
	if r.Look != LookFull {
		return ""
	}
	if r.DiskWalkedSince.After(f.whole) {
		f.whole = r.DiskWalkedSince
	}
	for _, p := range f.pods {
		in.Measuring = in.Measuring || p.time.IsZero() || p.time.Before(r.DiskMeasuredSince) && !p.cut
	}
	in.Measuring = in.Measuring && !r.DiskMeasuredSince.IsZero()
	d := f.m.Step(now, in)
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 {
		d = f.m.StepAfterReclaim(now, in)
	}
	if len(d.Evictions) > 0 {
		return d.Evictions[0].Pod.PodRef.UID
	}
	return ""
}

// nearlyFull reports whether the disk is full soon, so that no threshold waits for an explanation.
func (f *filling) nearlyFull(now time.Time) bool {
	left := f.size - f.held()
	return left < float64(f.m.watch.all[0].limit/f.unit)/(4*dip) || now.Before(f.until) && left < f.rate*(urgentLeft+rateOver+2*time.Second).Seconds()
}

// Whatever the walks find at first, and however late: the pod that fills a disk is evicted within a
// minute of the end of a walk that finds all of it. No pod is evicted for files outside of pods
// within the delay, unless the disk is nearly full, however much more of a pod a longer walk finds.
func TestFiguresThatComeLate(t *testing.T) {
	short, cuts := 0, 0
	for i := range uint64(*diskTimelines / 6) {
		seed := *timelineSeed + i
		for _, ofPods := range []bool{true, false} {
			f := newFilling(t, seed, ofPods)
			uid := ""
			now, crossed := epoch, time.Time{}
			for ; uid == "" && now.Sub(f.until) < 9*time.Minute; now = now.Add(time.Second) {
				uid = f.step(now)
				if crossed.IsZero() && f.m.watch.short(stats.Signal(f.signal)) {
					crossed = now
				}
				if !ofPods && !crossed.IsZero() && (f.nearlyFull(now) || now.Sub(crossed) >= suspectDelay-time.Second) {
					break
				}
				if ofPods && !f.filler.known.IsZero() && now.Sub(f.filler.known) > time.Minute {
					break
				}
			}
			if f.m.watch.short(stats.Signal(f.signal)) {
				short++
			}
			for _, p := range f.pods {
				if p.cut {
					cuts++
					break
				}
			}
			want := ""
			if ofPods {
				want = "filler"
			}
			if uid != want && !(!ofPods && f.nearlyFull(now)) {
				t.Fatalf("seed %d, filled by pods %v: victim = %q %v after the disk was filled, want %q; %q", seed, ofPods, uid, now.Sub(f.until), want, f.m.Unexplained())
			}
		}
	}
	if most := *diskTimelines / 3; short < most*3/4 || cuts < most/10 {
		t.Errorf("%d of %d disks were short, with %d last walks cut off, want three quarters and a tenth", short, most, cuts)
	}
}
