package eviction

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
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

// No pod is evicted for a disk that no pod fills, whatever else happens: each of these passes
// within the time in which none is evicted. Before pods were measured on a quiet disk, everything
// that they hold may be what fills it.
func TestUnexplainedTimelines(t *testing.T) {
	short := 0
	for i := range uint64(*diskTimelines) {
		seed := *timelineSeed + i
		rule, reason, s := checkTimeline(generateUnexplained(seed))
		for _, v := range s.rules.victims {
			if v.l.e.Disk() && s.atRest {
				rule, reason = "unexplained", fmt.Sprintf("%s is evicted at %v: %s", v.uid, v.at, v.l.e.Message)
			}
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
