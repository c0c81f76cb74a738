package eviction

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var diskTimelines = flag.Int("disktimelines", 300, "how many random timelines pass on which one pod fills the disk")

// generateDisk draws a timeline on which one pod alone fills the disk, and continues while it is
// being stopped. Its end and the removal of its files take long, and not all of them may be found.
func generateDisk(seed uint64) *timeline {
	tl, d := generate(seed), dice{rand.New(rand.NewPCG(seed, 17))}
	tl.Node.Kubelet = false
	tl.Events = slices.DeleteFunc(tl.Events, func(e eventPlan) bool { return e.What == "disk" })
	for i := range tl.Pods {
		p := &tl.Pods[i]
		p.LeakDisk, p.From, p.Backs, p.Limit = 0, 0, 0, 0
	}
	p := &tl.Pods[d.IntN(len(tl.Pods))]
	p.LeakDisk, p.LeakFrom, p.LeakFor = d.between(100, 1500), d.ms(0, 5000), 0
	p.StopAfter, p.Clean = d.ms(10, 4000), d.ms(100, 60_000)
	if d.one(2) {
		p.Stuck, p.Held = d.ms(100, 6000), 0
	}
	if d.one(2) {
		p.Found = d.between(1, 99)
	}
	tl.Settings = slices.DeleteFunc(tl.Settings, func(s string) bool { return len(s) > 12 && s[5:11] == "nodefs" })
	tl.Settings = append(tl.Settings, "hard nodefs.available 2000Mi")
	// if less is found, the pod's part is unknown
	tl.Node.Explain = d.one(2) && (p.Found == 0 || p.Found > 60)
	return tl
}

// generateUnexplained draws a timeline on which no pod fills the disk, but images, logs of the
// node, or a file that is never found.
func generateUnexplained(seed uint64) *timeline {
	tl, d := generateDisk(seed), dice{rand.New(rand.NewPCG(seed, 19))}
	tl.Node.Explain, tl.Node.Disk = true, tl.Node.OutsideD+tl.Node.Trash+2000+d.between(500, 3000)
	for i := range tl.Pods {
		tl.Pods[i].LeakDisk, tl.Pods[i].Exit = 0, 0
		tl.Node.Disk += tl.Pods[i].Disk
	}
	// The wall clock is saved: setting it forward between two processes ends the wait sooner.
	tl.Events = slices.DeleteFunc(tl.Events, func(e eventPlan) bool { return e.What == "clock" })
	tl.Events = append(tl.Events, eventPlan{
		At: tl.Node.Walk + d.ms(2000, 12_000), What: "disk", By: tl.Node.Trash + d.between(3500, 5500), Over: d.ms(1, 10_000),
	})
	return tl
}

// generateUnknown draws a timeline on which one pod alone fills the disk, and its usage is unknown
// or known only in part. Others are idle, or overwrite their files. The pods' usage on the quiet
// disk is known before.
func generateUnknown(seed uint64) *timeline {
	tl, d := generateDisk(seed), dice{rand.New(rand.NewPCG(seed, 29))}
	tl.Node.Explain, tl.Node.Disk = true, tl.Node.OutsideD+tl.Node.Trash+2000
	var filler *podPlan
	calm := !d.one(3) // nothing else happens
	if calm {
		tl.Events = nil
	}
	for i := range tl.Pods {
		p := &tl.Pods[i]
		tl.Node.Disk += p.Disk
		if calm {
			p.LeakAnon, p.LeakVol, p.LeakSwap, p.LeakTasks, p.From, p.Backs, p.Limit = 0, 0, 0, 0, 0, 0, 0
		}
		if p.LeakDisk > 0 {
			filler = p
		} else if p.Exit = 0; d.one(2) {
			p.Overwrites = d.between(1, 500)
		}
		p.Found = 0
	}
	filler.Cut, filler.NoDisk, filler.NoIO = true, d.one(3), d.one(3) || filler.hidden()
	if filler.LeakFrom, filler.Exit = tl.Node.Walk+d.ms(3000, 20_000), 0; d.one(2) {
		filler.LeakDisk = d.between(10, 100)
	}
	crosses := d.between(5, 30) // seconds until the threshold
	tl.Node.Disk += crosses * filler.LeakDisk
	tl.Node.Until = filler.From + filler.LeakFrom + time.Duration(crosses)*time.Second + unknownServed + 10*time.Second
	tl.Node.Grain = max(tl.Node.Grain, 100*time.Millisecond)
	if !filler.NoIO {
		for i := range tl.Pods {
			if p := &tl.Pods[i]; p != filler && p.Overwrites == 0 {
				p.Cut = d.one(3)
			}
		}
	}
	// an event that only notes what is known when the disk begins to fill
	tl.Events = append(tl.Events, eventPlan{At: filler.From + filler.LeakFrom, What: "disk", Over: time.Millisecond})
	return tl
}

// writer checks the next victim for a disk that an earlier victim alone fills: what the earlier one
// really holds, found or not, is awaited while it dies and while its files are removed, by whatever
// signal and however little is left.
func (r *rules) writer(p *realPod, e *Eviction, left, enough float64) {
	for _, o := range r.s.pods {
		writes := o.LeakDisk > 0 || o.From > 0 || o.Backs > 0
		if writes && !slices.ContainsFunc(r.victims, func(v *victim) bool { return v.realPod == o && v.life == v.its }) {
			return
		}
	}
	held := 0.0
	for _, v := range r.victims {
		if v.realPod != p && v.at > r.shaken && r.awaited(v, "disk", e.hard) {
			held += v.disk
		}
	}
	if held > 0 && left+held > enough && !r.grows {
		r.fail(ruleExplained, "%s is evicted for %s with %.0f available, while terminating victims hold %.0f", p.uid, e.Signal, left, held)
	}
}

func TestDiskTimelines(t *testing.T) {
	evictions := 0
	for i := range uint64(*diskTimelines) {
		seed := *timelineSeed + i
		rule, reason, s := checkTimeline(generateDisk(seed))
		for _, v := range s.rules.victims {
			if v.l.e.Disk() {
				evictions++
			}
		}
		if enforced(rule) {
			t.Fatalf("timeline of seed %d breaks rule %q: %s\n%s", seed, rule, reason, generateDisk(seed).text())
		}
	}
	if evictions < *diskTimelines/10 {
		t.Errorf("%d evictions for a disk on %d timelines, want at least a tenth", evictions, *diskTimelines)
	}
}

// At most one pod a minute is evicted for a disk that no pod fills, whatever else happens, and none
// within the delay unless the disk is nearly full. Before pods were measured on a quiet disk,
// everything that they hold may be what fills it.
func TestUnexplainedTimelines(t *testing.T) {
	short := 0
	for i := range uint64(*diskTimelines) {
		seed := *timelineSeed + i
		tl := generateUnexplained(seed)
		rule, reason, s := checkTimeline(tl)
		last, fill := -time.Hour, tl.Events[len(tl.Events)-1]
		for _, v := range s.rules.first {
			if !v.forDisk || !s.atRest {
				continue
			}
			at := v.l.began.Time.Sub(instant(epoch, time.Hour))
			// a fall shows in the fill rate for two intervals
			urgent := at < fill.At+fill.Over+2*rateOver+time.Second || v.seen < 2000/(4*dip)+1
			early := v.l.began.Time.Sub(v.since) < suspectDelay
			if at-last < suspectDelay || early && !urgent {
				rule, reason = "unexplained", fmt.Sprintf("%s is evicted at %v, after %v: %s", v.uid, at, last, v.l.e.Message)
			}
			last = at
		}
		if s.atRest && slices.ContainsFunc(s.log, func(line string) bool { return strings.Contains(line, ": growth of pods since ") }) {
			short++
		}
		if enforced(rule) {
			t.Fatalf("timeline of seed %d breaks rule %q: %s\n%s\n%s", seed, rule, reason, generateUnexplained(seed).text(), strings.Join(s.log, "\n"))
		}
	}
	if short < *diskTimelines/3 {
		t.Errorf("%d of %d disks were short, want at least a third", short, *diskTimelines)
	}
}

// Whatever is unknown of a pod that fills a disk: a pod is evicted in time (ruleUnknown). While only
// the filler is evicted, it is evicted before the disk is full, if that takes some seconds, and within
// the delay if its writes are known and no other pod has ended.
func TestUnknownTimelines(t *testing.T) {
	short, most := 0, *diskTimelines/2
	for i := range uint64(most) {
		seed := *timelineSeed + i
		tl := generateUnknown(seed)
		rule, reason, s := checkTimeline(tl)
		filler := s.pods[slices.IndexFunc(s.pods, func(p *realPod) bool { return p.LeakDisk > 0 })]
		first := slices.IndexFunc(s.rules.victims, func(v *victim) bool { return v.l.e.kind.disk() })
		isFiller := func(v *victim) bool { return v.realPod == filler }
		if rule == "" && s.atRest && first >= 0 && !slices.ContainsFunc(s.rules.victims[:first], isFiller) && filler.certain(tl) {
			short++
			switch v := s.rules.victims[first]; {
			case v.realPod != filler:
				rule, reason = ruleWriter, fmt.Sprintf("%s is evicted at %v, want %s", v.uid, v.at, filler.uid)
			case v.left == 0:
				rule, reason = ruleWriter, fmt.Sprintf("%s is evicted at %v, when the disk is full", v.uid, v.at)
			case !filler.NoIO && s.rules.first[0].realPod == filler && v.l.began.Time.Sub(v.since) >= suspectDelay+min(tl.Node.Garbage, reliefLimit):
				rule, reason = ruleWriter, fmt.Sprintf("%s is evicted at %v, after the delay, although its writes are known", v.uid, v.at)
			}
		}
		if enforced(rule) {
			t.Fatalf("timeline of seed %d breaks rule %q: %s\n%s\n%s", seed, rule, reason, tl.text(), strings.Join(s.log, "\n"))
		}
	}
	if short < most/10 {
		t.Errorf("%d of %d timelines have a certain filler, want at least a tenth", short, most)
	}
}

// certain reports whether nothing keeps the agent from evicting the filler in time: it is eligible,
// the disk takes at least 5 s from the threshold to its end, and no restart hides what it wrote.
func (p *realPod) certain(tl *timeline) bool {
	calm := !slices.ContainsFunc(tl.Events, func(e eventPlan) bool {
		return e.What == "restart" || e.What == "crash" || e.What == "clock" || e.What == "preempt"
	})
	return calm && !p.protected() && p.LeakDisk <= 400 && p.Unpinned == 0 && p.Backs == 0 && p.From == 0
}
