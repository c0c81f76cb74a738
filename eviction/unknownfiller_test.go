package eviction

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

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

// A pod that wrote a large part of the loss comes before one that wrote nothing, also if both are not
// completely measured and something else caused the rest.
func TestPartialWriterComesBeforeIdleUnknownPods(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "giant", qos: stats.BestEffort, how: "cut", holds: 60 << 10},
		&fillPod{uid: "writer", qos: stats.Burstable, how: "cut", holds: 100})
	f.measureAll()
	f.run(20*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 60*time.Second {
			f.outside, f.pods[1].fills = 30, 20
		}
	})
	if len(f.victims) == 0 || f.victims[0].uid != "writer" {
		t.Errorf("victims = %+v, want writer first", f.victims)
	}
}

// A pod that writes where no measurement looks comes before pods whose logs grew a little
// (kubernetes#127548).
func TestHiddenWriterComesBeforeLoggers(t *testing.T) {
	f := newFillingDisk(t, false, false)
	for i := range 6 {
		f.pods = append(f.pods, &fillPod{uid: "logger-" + string(rune('a'+i)), qos: stats.BestEffort, holds: 100})
	}
	writer := &fillPod{uid: "writer", qos: stats.Burstable, holds: 1 << 10}
	f.pods = append(f.pods, writer)
	f.measureAll()
	full := time.Duration(0)
	f.run(30*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 60*time.Second {
			for _, p := range f.pods[:6] {
				p.fills = 1
			}
		}
		if f.outside, writer.overwrites = 0, 0; since >= 60*time.Second && f.lives[writer] == nil {
			f.outside, writer.overwrites = 200, 200
		}
		if f.left == 0 {
			full += time.Second
		}
	})
	if len(f.victims) == 0 || f.victims[0].uid != "writer" || full > 0 {
		t.Errorf("victims = %+v, the disk is full for %v, want writer first, while something is left", f.victims, full)
	}
}

// Several pods fill the disk together, and use up what victims return. The evictions help, so their
// delay does not grow.
func TestDelayDoesNotGrowWhileEvictionsHelp(t *testing.T) {
	for _, how := range []string{"cut", ""} {
		f := newFillingDisk(t, false, false)
		for i := range 7 {
			f.pods = append(f.pods, &fillPod{uid: "build-" + string(rune('a'+i)), qos: stats.Burstable, how: how, holds: 1 << 10})
		}
		f.measureAll()
		full := time.Duration(0)
		f.run(30*time.Minute, func(_ time.Time, since time.Duration) {
			if since == 60*time.Second {
				for _, p := range f.pods {
					p.fills = 60
				}
			}
			if f.left == 0 {
				full += time.Second
			}
		})
		if full > 3*time.Minute || how == "" && full > 0 {
			t.Errorf("%q: victims = %+v, the disk is full for %v, want at most 3m, and never if all is measured", how, f.victims, full)
		}
	}
}

// A pod whose walk was cut off while the disk was quiet, and that was completely measured before the
// shortage, is shown idle by that, whatever it wrote in between.
func TestCompletedBeforeTheShortageIsIdle(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "database", qos: stats.BestEffort, how: "cut", holds: 20 << 10, overwrites: 2},
		&fillPod{uid: "other", qos: stats.Burstable, how: "cut", holds: 3 << 10})
	f.measureAll()
	f.run(15*time.Minute, func(_ time.Time, since time.Duration) {
		if since == 440*time.Second { // after the last look at the quiet disk
			f.pods[0].how, f.outside = "", 100
		}
	})
	if len(f.victims) == 0 || f.victims[0].uid != "other" {
		t.Errorf("victims = %+v, want other first: the growth of database is known", f.victims)
	}
}

// Replicas that were not completely measured die before a pod that writes where no measurement looks.
// The circuit breaker, which opens then, does not protect that pod.
func TestBreakerDoesNotProtectAHiddenWriter(t *testing.T) {
	f := newFillingDisk(t, false, false)
	for i := range 8 {
		f.pods = append(f.pods, &fillPod{uid: fmt.Sprint("web-", i), qos: stats.BestEffort, how: "cut", holds: 64})
	}
	writer := &fillPod{uid: "writer", qos: stats.Guaranteed, holds: 64}
	f.pods = append(f.pods, writer)
	f.measureAll()
	f.run(40*time.Minute, func(_ time.Time, since time.Duration) {
		if f.outside, writer.overwrites = 0, 0; since >= 60*time.Second && f.lives[writer] == nil {
			f.outside, writer.overwrites = 200, 200
		}
	})
	if len(f.victims) < 4 || f.victims[3].uid != "writer" {
		t.Errorf("victims = %+v, want the writer after three others", f.victims)
	}
}

// What a pod wrote counts if it may have written to a hostPath volume, which is not measured: it comes
// before pods that wrote nothing and are not completely measured. Without writes it does not.
func TestHostPathWriterComesBeforeIdleUnknownPods(t *testing.T) {
	for _, c := range []struct {
		name    string
		writes  bool
		outside uint64 // something else takes per second
		want    string
	}{{"writes", true, 200, "host"}, {"writes little", true, 2000, "giant"}, {"no writes", false, 200, "giant"}} {
		f := newFillingDisk(t, false, false, &fillPod{uid: "giant", qos: stats.BestEffort, how: "cut", holds: 20 << 10},
			&fillPod{uid: "host", qos: stats.Burstable, holds: 1 << 10, hostPath: true})
		f.measureAll()
		f.run(10*time.Minute, func(_ time.Time, since time.Duration) {
			f.outside, f.pods[1].overwrites = 0, 0
			if since >= 60*time.Second && f.lives[f.pods[1]] == nil {
				if f.outside = c.outside; c.writes {
					f.pods[1].overwrites = 200
				}
			}
		})
		if len(f.victims) == 0 || f.victims[0].uid != c.want {
			t.Errorf("%s: victims = %+v, want %s first", c.name, f.victims, c.want)
		}
	}
}

// A persistent volume may be a directory of the node's disk, as a local-path provisioner makes them.
// Only writes that are known to be on that disk count.
func TestWriterToALocalClaimComesBeforeIdleUnknownPods(t *testing.T) {
	for _, c := range []struct {
		name      string
		elsewhere bool // the volume is on another disk
		inodes    bool // writes are not known by disk
		want      string
	}{{"the node's disk", false, false, "claim"}, {"another disk", true, false, "giant"}, {"inodes", false, true, "giant"}} {
		f := newFillingDisk(t, c.inodes, false, &fillPod{uid: "giant", qos: stats.BestEffort, how: "cut", holds: 20 << 10},
			&fillPod{uid: "claim", qos: stats.Burstable, holds: 1 << 10, claim: true})
		f.measureAll()
		f.run(10*time.Minute, func(_ time.Time, since time.Duration) {
			p := f.pods[1]
			f.outside, p.overwrites, p.elsewhere = 0, 0, 0
			if since >= 60*time.Second && f.lives[p] == nil {
				if f.outside = 200; c.elsewhere {
					p.elsewhere = 200
				} else {
					p.overwrites = 200
				}
			}
		})
		if len(f.victims) == 0 || f.victims[0].uid != c.want {
			t.Errorf("%s: victims = %+v, want %s first", c.name, f.victims, c.want)
		}
	}
}

// A pod whose walk was cut off while the disk was quiet, and that was completely measured before the
// shortage, is suspect by what it writes to a hostPath volume since.
func TestCompletedHostPathWriterIsSuspect(t *testing.T) {
	f := newFillingDisk(t, false, false, &fillPod{uid: "other", qos: stats.BestEffort, how: "cut", holds: 20 << 10},
		&fillPod{uid: "host", qos: stats.Burstable, how: "cut", holds: 3 << 10, hostPath: true})
	f.measureAll()
	f.run(15*time.Minute, func(_ time.Time, since time.Duration) {
		host := f.pods[1]
		if since >= 440*time.Second { // after the last look at the quiet disk
			host.how = ""
		}
		f.outside, host.overwrites = 0, 0
		if since >= 500*time.Second && f.lives[host] == nil {
			f.outside, host.overwrites = 100, 100
		}
	})
	if len(f.victims) == 0 || f.victims[0].uid != "host" {
		t.Errorf("victims = %+v, want host first", f.victims)
	}
}

// Something else fills the disk slowly while a database overwrites files in a volume that is not
// measured. It gets the delay in which garbage collection may end the shortage.
func TestWriterToAnUnmeasuredVolumeGetsTheDelay(t *testing.T) {
	for _, p := range []*fillPod{{uid: "host", hostPath: true}, {uid: "claim", claim: true}, {uid: "neither"}} {
		p.qos, p.holds = stats.Burstable, 1<<10
		f := newFillingDisk(t, false, false, p)
		f.measureAll()
		met := time.Duration(0)
		f.run(30*time.Minute, func(_ time.Time, since time.Duration) {
			if f.outside, p.overwrites = 0, 50; since >= 60*time.Second {
				f.outside = 20
			}
			if met == 0 && f.left < fillLimit {
				met = since
			}
		})
		if len(f.victims) == 0 || f.victims[0].at < met+suspectDelay*9/10 {
			t.Errorf("%s: victims = %+v, want one about %v after %v", p.uid, f.victims, suspectDelay, met)
		}
	}
}

// Whether a pod may write to a hostPath volume depends on its mounts.
func TestWritesHost(t *testing.T) {
	host := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}
	for _, c := range []struct {
		name string
		spec v1.PodSpec
		want bool
	}{
		{"read-only", v1.PodSpec{Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v", ReadOnly: true}}}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: host}}}, false},
		{"by an init container", v1.PodSpec{InitContainers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: host}}}, true},
		{"not mounted", v1.PodSpec{Containers: []v1.Container{{}}, Volumes: []v1.Volume{{Name: "v", VolumeSource: host}}}, false},
		{"another volume", v1.PodSpec{Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}}, false},
	} {
		if got := NewPod(&v1.Pod{Spec: c.spec}).writesHost; got != c.want {
			t.Errorf("%s: writes to a hostPath volume = %v, want %v", c.name, got, c.want)
		}
	}
}

// Pods with equal suspicion are ranked by their usage over the request: a pod that holds far more,
// without a known request, comes first, although the small growth of the two differs.
func TestSmallGrowthDoesNotHidePods(t *testing.T) {
	k := func(part uint16, usage uint64, request stats.Opt[stats.Range]) Keys {
		return Keys{suspicion: suspicion{part: part, idle: true}, Requests: true, Measured: true, Usage: usage, Request: request}
	}
	large, small := k(3, 90<<30, stats.Opt[stats.Range]{}), k(5, 1<<20, stats.Some(stats.Range{}))
	if !large.outweighs(&small) {
		t.Error("90 GiB without a known request do not outweigh 1 MiB over the request, want the larger pod first")
	}
}
