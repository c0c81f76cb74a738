package eviction

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"jettison/stats"
)

// fillPod is a pod of a filling disk. Amounts are in MiB, or in inodes.
type fillPod struct {
	uid                string
	qos                stats.QOSClass
	holds              uint64
	fills, overwrites  uint64 // per second
	how                string // why it is not measured completely; empty: it is
	uncounted          bool   // the kernel does not count what it writes
	silent             bool   // another process writes what it fills
	elsewhere          uint64 // written to another disk per second
	reads              uint64 // files read per second, which slab memory holds too
	slab               uint64 // inodes that slab memory holds before it is reclaimed; 0: all
	wrote, other, read uint64
	measured           uint64
	walked, dead, gone time.Time
}

// fillingDisk is a node whose disk fills, second by second. Victims die within a second, and their
// files are removed within two.
type fillingDisk struct {
	m        *Manager
	pods     []*fillPod
	inodes   bool
	soft     bool   // a soft threshold is met earlier
	grace    string // of the soft threshold; empty: 30s
	left     uint64 // MiB, or inodes
	outside  uint64 // what something else takes per second
	demanded time.Time
	relieved time.Time // end of the garbage collection in progress
	victims  []fillVictim
	lives    map[*fillPod]*Life
}

type fillVictim struct {
	uid  string
	at   time.Duration
	left uint64 // when it was dead
}

// The disk has 100 GiB or 102,400 inodes; the threshold is a tenth.
const (
	fillCapacity = 100 << 10
	fillLimit    = 10 << 10
	fillQuiet    = 30 << 10
	fillDisk     = 7 // device
)

func newFillingDisk(t *testing.T, inodes, soft bool, pods ...*fillPod) *fillingDisk {
	f := &fillingDisk{pods: pods, inodes: inodes, soft: soft, left: fillQuiet, lives: map[*fillPod]*Life{}}
	f.m = f.manager(t)
	return f
}

func (f *fillingDisk) manager(t *testing.T) *Manager {
	setting := "hard nodefs.available 10Gi"
	if f.inodes {
		setting = fmt.Sprintf("hard nodefs.inodesFree %d", fillLimit)
	}
	settings := []string{"own x", setting}
	if f.soft && f.inodes {
		settings = append(settings, fmt.Sprintf("soft nodefs.inodesFree %d", fillLimit*3/2), "grace nodefs.inodesFree "+cmp.Or(f.grace, "30s"))
	} else if f.soft {
		settings = append(settings, "soft nodefs.available 15Gi", "grace nodefs.available "+cmp.Or(f.grace, "30s"))
	}
	m := managerOf(t, 5*time.Minute, settings...)
	m.config.Replay, m.config.Explain, m.config.Breaker = false, true, true
	return m
}

// restart replaces the manager by one that resumes its state.
func (f *fillingDisk) restart(t *testing.T, now time.Time) {
	saved := throughFile(t, f.m.Save())
	if f.m = f.manager(t); len(f.m.Resume(now, saved)) > 0 {
		t.Fatal("Resume dropped saved state, want nothing dropped")
	}
}

func (f *fillingDisk) unit() uint64 {
	if f.inodes {
		return 1
	}
	return mib
}

// stats returns a pod as a look finds it.
func (p *fillPod) stats(f *fillingDisk) stats.PodStats {
	s := stats.PodStats{PodRef: stats.PodReference{UID: p.uid, Name: p.uid}, QOSClass: p.qos, Announced: true,
		Populated: stats.Some(p.dead.IsZero()), StartTime: epoch.Add(-time.Hour), SandboxIDs: []string{"s"}}
	if !p.uncounted { // the file system is on a stacked device
		v, other := p.wrote*f.unit(), p.other*f.unit()
		s.Written = stats.WrittenStats{Bytes: stats.Some(2*v + other), Inodes: stats.Some(v + p.read),
			Devices: []stats.DeviceWrites{{Device: fillDisk, Bytes: v}, {Device: fillDisk + 1, Bytes: v}, {Device: fillDisk + 2, Bytes: other}}}
		if p.slab > 0 {
			s.Written.Inodes.V %= p.slab
		}
	}
	if p.walked.IsZero() {
		return s
	}
	found := stats.Some(stats.FsUsage{Time: p.walked, UsedBytes: p.measured * f.unit(), InodesUsed: p.measured})
	st := &s.EphemeralStorage
	st.Time = p.walked
	switch p.how {
	case "unmeasured":
		st.Time = time.Time{}
		return s
	case "no layers": // only its logs were measured
		st.Logs = stats.Some(stats.FsUsage{Time: p.walked, UsedBytes: 1, InodesUsed: 1})
		return s
	case "hung volume":
		found.V.UsedBytes, found.V.InodesUsed = 1, 1
		st.Volumes = []stats.VolumeStats{{Name: "fuse", FsUsage: stats.FsUsage{Time: p.walked, Partial: true}}}
	case "cut", "cut at rest":
		found.V.Partial, st.Partial, st.Cut = true, true, true
		found.V.UsedBytes, found.V.InodesUsed = found.V.UsedBytes/20, found.V.InodesUsed/20
	}
	s.Containers = []stats.ContainerStats{{Name: "c", Rootfs: found}}
	st.UsedBytes, st.InodesUsed = stats.Some(found.V.UsedBytes), stats.Some(found.V.InodesUsed)
	return s
}

func (f *fillingDisk) input(now time.Time) Input {
	s := &stats.Summary{Time: now}
	s.Node.Layout = stats.Some(stats.Layout{})
	s.Node.Fs = stats.Some(stats.FsStats{Time: now, Disk: fillDisk, CapacityBytes: stats.Some(uint64(fillCapacity * mib)), AvailableBytes: stats.Some(uint64(fillQuiet * mib)),
		Inodes: stats.Some(uint64(fillCapacity)), InodesFree: stats.Some(f.left)})
	if !f.inodes {
		s.Node.Fs.V.AvailableBytes = stats.Some(f.left * mib)
	}
	for _, p := range f.pods {
		if p.gone.IsZero() || now.Before(p.gone) {
			s.Pods = append(s.Pods, p.stats(f))
		}
	}
	return Input{Summary: s}
}

// pass lets a second pass.
func (f *fillingDisk) pass(now time.Time) {
	for _, p := range f.pods {
		switch l := f.lives[p]; {
		case l == nil:
			more := min(p.fills, f.left)
			if p.holds, p.wrote, f.left = p.holds+more, p.wrote+p.overwrites, f.left-more; !p.silent {
				p.wrote += more
			}
			p.other, p.read = p.other+p.elsewhere, p.read+p.reads
		case p.gone.IsZero():
		case !p.dead.IsZero() && !now.Before(p.gone) && !l.cleanedUp:
			f.left, p.holds = f.left+p.holds, 0
			f.m.Cleaned(Stamp{Time: now}, l)
		}
	}
	f.left -= min(f.outside, f.left)
	if !f.relieved.IsZero() && !now.Before(f.relieved) {
		f.relieved = time.Time{}
		f.m.Relieved(now)
	}
	if !f.demanded.IsZero() && now.Sub(f.demanded) >= 2*time.Second { // the walks
		for _, p := range f.pods {
			p.walked, p.measured = f.demanded, p.holds
		}
		f.demanded = time.Time{}
	}
}

// look makes one look, and kills its victim.
func (f *fillingDisk) look(now time.Time, since time.Duration) {
	in := f.input(now)
	r := f.m.Observe(now, &in.Summary.Node, Situation{})
	if r.Look != LookFull {
		return
	}
	if f.m.watch.all[0].met {
		for _, p := range f.pods { // longer walks find all
			if p.how == "cut at rest" && f.m.explain.remeasureSince.Before(now) && !f.m.explain.remeasureSince.IsZero() {
				p.how = ""
			}
		}
	}
	for _, p := range f.pods { // as disk.Loop.Fresh
		unmeasurable := p.how == "unmeasured" || p.how == "hung volume"
		if wanted := r.DiskMeasuredSince; !wanted.IsZero() && (unmeasurable || p.walked.Before(wanted) && p.how != "cut" && p.how != "cut at rest") && f.lives[p] == nil {
			in.Measuring = true
		}
	}
	if hurries := r.DisksShort && now.Sub(f.pods[0].walked) >= 5*time.Second; (in.Measuring || hurries) && f.demanded.IsZero() {
		f.demanded = now
	}
	d := f.m.Step(now, in)
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 {
		switch f.m.Relief(now, &d) {
		case ReliefBegin:
			f.relieved = now.Add(3 * time.Second)
			return
		case ReliefBeginNow:
			f.relieved = now.Add(3 * time.Second)
		case ReliefWait:
			return
		}
		d = f.m.StepAfterReclaim(now, in)
	}
	if len(d.Evictions) == 0 {
		return
	}
	for _, p := range f.pods {
		if p.uid == d.Evictions[0].Pod.PodRef.UID {
			l := f.m.Begin(Stamp{Time: now}, d.Evictions[0], d.Signal)
			f.lives[p], p.dead, p.gone = l, now, now.Add(2*time.Second)
			f.m.Emptied(Stamp{Time: now}, l)
			f.victims = append(f.victims, fillVictim{p.uid, since, f.left})
		}
	}
}

// run lets time pass until then. It calls each before every second.
func (f *fillingDisk) run(long time.Duration, each func(now time.Time, since time.Duration)) {
	for since := time.Duration(0); since <= long; since += time.Second {
		now := epoch.Add(since)
		each(now, since)
		f.pass(now)
		f.look(now, since)
		f.m.Acknowledge()
	}
}

// A pod whose usage is not known, or only in part, fills the disk. It is evicted before the disk is
// full, and no other pod is, although others hold more, or write more to files that they overwrite.
func TestUnknownPodThatFillsTheDiskIsEvicted(t *testing.T) {
	const begins = 60 * time.Second
	for _, c := range []struct {
		name    string
		how     string
		rate    uint64
		restart time.Duration // zero: none
		also    *fillPod
		counted bool
		largest bool // by the kubelet's order
		forgets bool // the restart loses the measurements
		soft    bool
		slab    uint64
	}{
		{name: "walk cut off", how: "cut", rate: 200, counted: true},
		{name: "walk cut off, like that of an idle pod", how: "cut", rate: 200, counted: true, also: &fillPod{uid: "giant", how: "cut", holds: 20 << 10}},
		{name: "walk cut off, writes not counted", how: "cut", rate: 200},
		{name: "longer walks find all, writes not counted", how: "cut at rest", rate: 200, also: &fillPod{uid: "giant", how: "cut at rest", holds: 42 << 10, uncounted: true}},
		{name: "walk cut off, fast", how: "cut", rate: 2500, counted: true},
		{name: "walk cut off, fast, like that of an idle pod", how: "cut", rate: 2500, counted: true, also: &fillPod{uid: "giant", how: "cut", holds: 20 << 10}},
		{name: "walk cut off, fast, writes not counted", how: "cut", rate: 2500},
		{name: "measured, fast", rate: 2500, counted: true, largest: true}, // measurements explain it: as a kubelet

		{name: "never measured", how: "unmeasured", rate: 200, counted: true},
		{name: "no figures of layers", how: "no layers", rate: 200, counted: true},
		{name: "hung volume", how: "hung volume", rate: 200, counted: true},
		{name: "restart before the crossing", how: "cut", rate: 200, counted: true, restart: 100 * time.Second},
		{name: "restart after the crossing", how: "cut", rate: 200, counted: true, restart: 165 * time.Second},
		{name: "restart after the crossing, fast", how: "cut", rate: 1000, counted: true, restart: 81 * time.Second},
		{name: "restart after the crossing, nothing measured", how: "cut", rate: 200, counted: true, restart: 165 * time.Second, forgets: true},
		{name: "restart after the crossing, fast, nothing measured", how: "cut", rate: 1000, counted: true, restart: 81 * time.Second, forgets: true},
		{name: "slow", how: "cut", rate: 20, counted: true},
		{name: "very slow, beside an idle pod that holds much", how: "cut", rate: 2, counted: true, also: &fillPod{uid: "giant", how: "cut", holds: 40 << 10}},
		{name: "soft threshold", how: "cut", rate: 200, counted: true, soft: true},
		{name: "soft threshold, slow", how: "cut", rate: 20, counted: true, soft: true},
		{name: "slab memory is reclaimed", how: "cut", rate: 20, counted: true, slab: 1000},
		{name: "another unknown pod writes to another disk", how: "cut", rate: 100, counted: true, also: &fillPod{uid: "elsewhere", how: "cut", holds: 20 << 10, elsewhere: 400}},
	} {
		for _, inodes := range []bool{false, true} {
			f := newFillingDisk(t, inodes, c.soft,
				&fillPod{uid: "database", qos: stats.BestEffort, holds: 5 << 10, overwrites: 300},
				&fillPod{uid: "idle", qos: stats.BestEffort, holds: 20 << 10},
				&fillPod{uid: "filler", qos: stats.Burstable, how: c.how, holds: 1 << 10, uncounted: !c.counted, slab: c.slab})
			if c.also != nil {
				other := *c.also
				f.pods = append(f.pods, &other)
			}
			for _, p := range f.pods {
				p.walked, p.measured = epoch.Add(-time.Second), p.holds
			}
			filler := f.pods[2]
			if c.largest {
				filler.qos, filler.holds, filler.measured = stats.BestEffort, 20<<10, 20<<10
			}
			f.run(begins+fillQuiet/time.Duration(c.rate)*time.Second+30*time.Second, func(now time.Time, since time.Duration) {
				if since == begins {
					filler.fills = c.rate
				}
				if since == c.restart && since > 0 {
					f.restart(t, now)
					for _, p := range f.pods {
						if c.forgets {
							p.walked, p.measured = time.Time{}, 0
						}
					}
				}
			})
			if len(f.victims) != 1 || f.victims[0].uid != "filler" || f.victims[0].left == 0 {
				t.Errorf("%s, inodes %v: victims = %+v, want filler alone, while something is left", c.name, inodes, f.victims)
			}
		}
	}
}

// Something outside of pods fills the disk, as far as it goes, and takes what victims return. A pod
// is evicted after a minute, or when the disk is nearly full, and at most one a minute. If the
// evictions free nothing, they become ever rarer. The pod that is not shown idle is first.
func TestOutsideFillerCostsOnePodAMinute(t *testing.T) {
	for _, c := range []struct {
		name    string
		rate    uint64
		holds   uint64
		unknown int           // pods
		first   time.Duration // after the crossing
		futile  bool
		breaker bool
	}{
		{"slow", 10, 3 << 10, 1, suspectDelay, false, false},
		{"slow, with the breaker", 10, 3 << 10, 1, suspectDelay, false, true},
		{"fast", 500, 3 << 10, 1, 0, false, false},
		{"fast, unknown pods that hold little", 500, 64, 8, 0, true, false},
		{"fast, unknown pods that hold little, with the breaker", 500, 64, 8, 0, true, true},
	} {
		f := newFillingDisk(t, false, false)
		f.m.config.Breaker = c.breaker
		for i := range 8 {
			f.pods = append(f.pods, &fillPod{uid: fmt.Sprint("pod-", i), qos: stats.BestEffort, holds: c.holds, walked: epoch, measured: c.holds})
			if i >= 8-c.unknown {
				f.pods[i].how = "cut"
			}
		}
		crossed := time.Duration(-1)
		f.run(3*time.Hour, func(_ time.Time, since time.Duration) {
			if since == 60*time.Second {
				f.outside = c.rate
			}
			if crossed < 0 && f.left <= fillLimit {
				crossed = since
			}
		})
		if len(f.victims) < 3 || !c.breaker && len(f.victims) < 4 || c.unknown == 1 && f.victims[0].uid != "pod-7" {
			t.Fatalf("%s: victims = %+v, want at least four (three with the breaker), and the one that is not known first", c.name, f.victims)
		}
		if after := f.victims[0].at - crossed; after < c.first {
			t.Errorf("%s: first eviction %v after the crossing, want %v", c.name, after, c.first)
		}
		for i, v := range f.victims[1:] {
			want := suspectDelay
			if c.futile {
				want = min(suspectDelay<<min(i+1, 4), suspectDelayMax)
			}
			if apart := v.at - f.victims[i].at; apart < want || c.futile && apart > want+10*time.Second {
				t.Errorf("%s: eviction %d follows after %v, want %v", c.name, i+2, apart, want)
			}
		}
	}
}

// Pods that together fill the disk come before one that holds more and wrote nothing, however little
// each of them wrote.
func TestManyWritersComeBeforeIdlePods(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "giant", qos: stats.BestEffort, how: "cut", holds: 20 << 10})
	for i := range 12 {
		f.pods = append(f.pods, &fillPod{uid: fmt.Sprint("writer-", i), qos: stats.Burstable, how: "cut", holds: 100})
	}
	f.fillLater(t, 60*time.Second, 20)
	if len(f.victims) == 0 || f.victims[0].uid == "giant" || f.victims[0].left == 0 {
		t.Errorf("victims = %+v, want a writer first, while something is left", f.victims)
	}
}

// A pod may write where no measurement looks, as to a hostPath volume. It comes before pods that
// wrote nothing.
func TestHiddenWriterComesBeforeIdlePods(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "idle", qos: stats.BestEffort, holds: 20 << 10},
		&fillPod{uid: "writer", qos: stats.Burstable, holds: 1 << 10})
	f.measureAll()
	f.run(5*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 60*time.Second {
			f.outside, f.pods[1].overwrites = 200, 200
		}
	})
	if len(f.victims) == 0 || f.victims[0].uid != "writer" || f.victims[0].left == 0 {
		t.Errorf("victims = %+v, want writer first, while something is left", f.victims)
	}
}

// While a soft threshold is met for hours, a pod that rotates its logs writes more than the disk
// loses. The pod that then fills the disk is evicted for the hard threshold.
func TestWritesBeforeTheHardThresholdCountLittle(t *testing.T) {
	f := newFillingDisk(t, false, true, &fillPod{uid: "logger", qos: stats.BestEffort, how: "cut", holds: 10 << 10, overwrites: 20},
		&fillPod{uid: "filler", qos: stats.Burstable, how: "cut", holds: 1 << 10})
	f.grace = "10h"
	f.m = f.manager(t)
	f.measureAll()
	f.run(2*time.Hour+3*time.Minute, func(_ time.Time, since time.Duration) {
		switch since {
		case 60 * time.Second:
			f.left = 14 << 10
		case 2 * time.Hour:
			f.pods[1].fills = 200
		}
	})
	f.wantAlone(t, "filler")
}

// The same if each of them wrote about a hundredth.
func TestEightyWritersComeBeforeIdlePods(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "giant", qos: stats.BestEffort, how: "cut", holds: 20 << 10})
	for i := range 80 {
		f.pods = append(f.pods, &fillPod{uid: fmt.Sprint("writer-", i), qos: stats.Burstable, how: "cut", holds: 100})
	}
	f.fillLater(t, 60*time.Second, 2)
	if len(f.victims) == 0 || f.victims[0].uid == "giant" || f.victims[0].left == 0 {
		t.Errorf("victims = %+v, want a writer first, while something is left", f.victims)
	}
}

// Pods that hold too little to end the shortage are evicted if they write: that ends its growth.
func TestHiddenWriterAmongSmallPods(t *testing.T) {
	f := newFillingDisk(t, false, false)
	for i := range 6 {
		f.pods = append(f.pods, &fillPod{uid: fmt.Sprint("pod-", i), qos: stats.BestEffort, holds: 30, walked: epoch.Add(-time.Second), measured: 30})
	}
	f.run(4*time.Minute, func(_ time.Time, since time.Duration) {
		if f.outside, f.pods[5].overwrites = 0, 0; since >= 60*time.Second && f.lives[f.pods[5]] == nil {
			f.outside, f.pods[5].overwrites = 200, 200
		}
	})
	f.wantAlone(t, "pod-5")
}

// A filler that crosses the last looks before the threshold fast is found next to one that has
// overwritten its files for long.
func TestFastFillerBesideAnOverwriter(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "database", qos: stats.BestEffort, how: "cut", holds: 5 << 10, overwrites: 100},
		&fillPod{uid: "filler", qos: stats.Burstable, how: "cut", holds: 1 << 10})
	f.measureAll()
	f.run(26*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 25*time.Minute {
			f.pods[1].fills = 1500
		}
	})
	f.wantAlone(t, "filler")
}

// The runtime writes a pod's logs, so that the pod's counter shows nothing.
func TestLogFloodBesideAWriter(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "app", qos: stats.Burstable, how: "cut", holds: 1 << 10, overwrites: 2},
		&fillPod{uid: "flood", qos: stats.BestEffort, how: "cut", holds: 5 << 10, silent: true})
	f.measureAll()
	f.run(7*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 60*time.Second {
			f.pods[1].fills = 100
		}
	})
	f.wantAlone(t, "flood")
}

// Pods that are gone are forgotten while a soft threshold is met, and a counter that falls gets a new base.
func TestWrittenBasesAreBounded(t *testing.T) {
	f := newFillingDisk(t, false, true, &fillPod{uid: "logger", qos: stats.BestEffort, how: "cut", holds: 1 << 10, overwrites: 1})
	f.grace = "10h"
	f.m = f.manager(t)
	f.pods[0].walked = epoch.Add(-time.Second)
	f.run(time.Hour, func(now time.Time, since time.Duration) {
		if since == 60*time.Second {
			f.left = 14 << 10
		}
		if since%(10*time.Second) == 0 {
			f.pods = append(f.pods[:1], &fillPod{uid: fmt.Sprint("job-", since), holds: 1, walked: now, measured: 1})
		}
	})
	for key, pods := range f.m.explain.written {
		if len(pods) > 5 {
			t.Errorf("%v: %d bases of %d pods, want the others forgotten", key, len(pods), len(f.pods))
		}
	}
	f.pods[0].wrote = 0
	f.look(epoch.Add(2*time.Hour), 2*time.Hour)
	if b := f.m.explain.written[f.m.watch.all[0].key()]["logger"]; b.older.written != 0 {
		t.Errorf("base after the counter fell = %+v, want its new value", b)
	}
}

// measureAll makes the last walk find all that the pods hold.
func (f *fillingDisk) measureAll() {
	for _, p := range f.pods {
		p.walked, p.measured = epoch.Add(-time.Second), p.holds
	}
}

// wantAlone checks that one pod was evicted, while something was left of the disk.
func (f *fillingDisk) wantAlone(t *testing.T, uid string) {
	t.Helper()
	if len(f.victims) != 1 || f.victims[0].uid != uid || f.victims[0].left == 0 {
		t.Errorf("victims = %+v, want %s alone, while something is left", f.victims, uid)
	}
}

// fillLater lets all pods but the first fill the disk from a time until two minutes after the crossing.
func (f *fillingDisk) fillLater(t *testing.T, begins time.Duration, rate uint64) {
	t.Helper()
	f.measureAll()
	filling := time.Duration((fillQuiet-fillLimit)/(rate*uint64(len(f.pods)-1))) * time.Second
	f.run(begins+filling+2*time.Minute, func(_ time.Time, since time.Duration) {
		if since == begins {
			for _, p := range f.pods[1:] {
				p.fills = rate
			}
		}
	})
}

// Slab memory holds inodes of files that were read, too. It never ends the delay.
func TestReadFilesExplainNothing(t *testing.T) {
	f := newFillingDisk(t, true, false, &fillPod{uid: "reader", how: "cut", holds: 3 << 10, reads: 100}, &fillPod{uid: "idle", holds: 3 << 10})
	for _, p := range f.pods {
		p.walked, p.measured = epoch, p.holds
	}
	crossed := time.Duration(-1)
	f.run(30*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 60*time.Second {
			f.outside = 20
		}
		if crossed < 0 && f.left <= fillLimit {
			crossed = since
		}
	})
	if len(f.victims) == 0 || f.victims[0].at-crossed < suspectDelay || f.victims[0].left == 0 {
		t.Errorf("victims = %+v, threshold crossed after %v; want the first %v after that, while something is left", f.victims, crossed, suspectDelay)
	}
}
