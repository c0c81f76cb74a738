package eviction

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// dice draws a timeline.
type dice struct{ *rand.Rand }

// generate draws the timeline of a seed. Each has noise and a theme, so that rare combinations
// happen often.
func generate(seed uint64) *timeline {
	d := dice{rand.New(rand.NewPCG(seed, 13))}
	tl := &timeline{Node: nodePlan{
		Kubelet: d.one(2), Breaker: d.one(2), ByRelease: d.one(4), Walk: d.ms(50, 4000), Until: d.ms(20_000, 60_000), Grain: d.ms(5, 250),
	}}
	for i := range 2 + d.IntN(5) {
		tl.Pods = append(tl.Pods, d.pod(i))
	}
	theme := themes[d.IntN(len(themes))]
	theme(d, tl)
	for range d.IntN(3) {
		tl.Events = append(tl.Events, d.event(tl.Node.Until))
	}
	d.settings(tl)
	d.sizes(tl)
	if d.one(3) {
		d.preempts(tl)
	}
	if d.one(20) {
		d.slowGarbage(tl)
	}
	if d.one(4) {
		d.splits(tl)
	}
	return tl
}

// one is true once in n draws.
func (d dice) one(n int) bool { return d.IntN(n) == 0 }

func (d dice) between(least, most int) int { return least + d.IntN(most-least+1) }

func (d dice) ms(least, most int) time.Duration {
	return time.Duration(d.between(least, most)) * time.Millisecond
}

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// themes lists failures that occur together.
var themes = []func(d dice, tl *timeline){
	func(dice, *timeline) {}, // nothing but noise
	func(d dice, tl *timeline) { // volumes in memory, with a late owner
		tl.Node.Kubelet = true
		p := d.leaker(tl)
		p.LeakAnon, p.LeakVol, p.Keeps = d.between(0, 100), d.between(200, 2000), d.one(2)
		p.VolFree, p.VolStays = d.ms(100, 20_000), d.one(3)
	},
	func(d dice, tl *timeline) { // two signals at the same time, and a slow victim
		d.stuck(d.leaker(tl))
		p := d.leaker(tl)
		p.LeakSwap, p.LeakTasks, p.LeakAnon = d.between(0, 500), d.between(0, 500), d.between(0, 2000)
	},
	func(d dice, tl *timeline) { d.stuck(d.leaker(tl)) },
	func(d dice, tl *timeline) { // something outside of pods takes it
		tl.Node.Breaker = true
		at := d.ms(500, 5000)
		for range d.between(1, 4) {
			tl.Events = append(tl.Events, eventPlan{At: at, What: "outside", By: d.between(300, 3000), Over: d.ms(1, 10_000)})
			at += d.ms(500, 10_000)
		}
	},
	func(d dice, tl *timeline) { // the same, bit by bit, while only small pods are eligible
		tl.Node.Breaker = true
		for i := range tl.Pods {
			p := &tl.Pods[i]
			p.Anon, p.Shm, p.Vol, p.LeakAnon, p.LeakVol, p.StopAfter = d.between(1, 60), 0, 0, 0, 0, d.ms(10, 1000)
			p.Request = 0
		}
		at := d.ms(500, 2000)
		for range d.between(3, 8) {
			tl.Events = append(tl.Events, eventPlan{At: at, What: "outside", By: d.between(200, 1000), Over: d.ms(500, 4000)})
			at += d.ms(500, 5000)
		}
	},
	func(d dice, tl *timeline) { // many leak together
		tl.Node.Breaker = true
		for i := range tl.Pods {
			tl.Pods[i].LeakAnon = d.between(50, 1000)
		}
	},
	func(d dice, tl *timeline) { // objects lie
		for i := range tl.Pods {
			d.lie(&tl.Pods[i])
		}
		d.lie(d.leaker(tl))
	},
	func(d dice, tl *timeline) { // restarts, with clocks that were set
		d.leaker(tl)
		at := d.ms(500, 10_000)
		for range d.between(1, 4) {
			tl.Events = append(tl.Events, eventPlan{At: at, What: pick(d, "restart", "crash"), Over: d.ms(10, 5000)})
			if d.one(2) {
				tl.Events = append(tl.Events, eventPlan{At: at + d.ms(0, 5000), What: "clock", By: pick(d, 1, -1), Over: d.ms(100, 3_600_000)})
			}
			at += d.ms(100, 10_000)
		}
	},
	func(d dice, tl *timeline) { // resizes that the kubelet defers or rejects
		d.resize(d.leaker(tl))
		for i := range tl.Pods {
			if d.one(2) {
				d.resize(&tl.Pods[i])
			}
		}
	},
}

// resize makes the spec of a pod's object ask for more than the kubelet granted.
func (d dice) resize(p *podPlan) {
	p.Object, p.Resize, p.Status = true, p.Request+pick(d, d.between(100, 5000), 1<<20), d.one(2)
}

// pod draws a pod that is ordinary in most cases.
func (d dice) pod(i int) podPlan {
	p := podPlan{
		Name: string(rune('a' + i)), QOS: pick(d, "BestEffort", "Burstable", "Burstable", "Guaranteed"),
		Anon: d.between(20, 3000), Tasks: d.between(1, 200), Disk: d.between(1, 3000), Die: d.ms(0, 300), Clean: d.ms(10, 1500),
		VolFree: d.ms(0, 3000),
	}
	switch {
	case p.QOS == "BestEffort":
	case d.one(3): // it uses more than it requested
		p.Request = d.between(0, p.Anon)
	default:
		p.Request = p.Anon + d.between(100, 1500)
	}
	d.some(5, &p.Shm, 1500)
	d.some(4, &p.Vol, 2000)
	d.some(3, &p.Cache, 2000)
	d.some(3, &p.Swap, 800)
	d.some(3, &p.LeakAnon, 800)
	d.some(6, &p.LeakVol, 500)
	d.some(6, &p.LeakSwap, 300)
	d.some(6, &p.LeakTasks, 400)
	d.some(6, &p.LeakDisk, 1500)
	p.LeakFrom = d.ms(0, 8000)
	if d.one(4) {
		p.LeakFor = d.ms(500, 10_000)
	}
	if d.one(8) {
		p.From = d.ms(100, 15_000)
	}
	if d.one(10) {
		p.Exit = p.From + d.ms(1000, 20_000)
	}
	if d.one(8) {
		d.stuck(&p)
	}
	if d.one(4) {
		p.StopAfter = d.ms(10, 8000)
	}
	if d.one(5) {
		p.Backs, p.BackAfter, p.BackSame = d.between(1, 3), d.ms(50, 8000), d.one(2)
	}
	p.Object, p.Priority = d.one(2), pick(d, 0, 0, 0, -1, 1, 1000)
	p.VolStays, p.Keeps, p.Refused, p.Uncleaned, p.Hasty = d.one(12), d.one(3), d.one(15), d.one(20), d.one(15)
	if d.one(15) {
		p.Unpinned = d.between(1, 3)
	}
	if p.Object && d.one(10) {
		p.Limit = p.Disk + d.between(100, 2000)
	}
	if d.one(12) {
		p.Clean = d.ms(2000, 20_000)
	}
	d.special(&p)
	return p
}

// some sets a size that one pod in n has.
func (d dice) some(n int, v *int, most int) {
	if d.one(n) {
		*v = d.between(1, most)
	}
}

// special draws unusual properties of a pod.
func (d dice) special(p *podPlan) {
	switch d.IntN(24) {
	case 0:
		p.Static = true
	case 1:
		p.Mirror = true
	case 2:
		p.Self = true
	case 3:
		p.NodeCritical, p.QOS = true, "Burstable"
	case 4, 5:
		p.NS = "kube-system"
	case 6:
		p.Object, p.Priority = true, 2_000_000_000
	case 7:
		p.Strange = true
	case 8:
		p.Unmeasured = true
	case 9:
		d.lie(p)
	}
}

// lie makes a client's object of a pod untrue.
func (d dice) lie(p *podPlan) {
	p.Object = true
	switch d.IntN(6) {
	case 0, 1:
		p.Phase, p.PhaseAt = pick(d, "Failed", "Succeeded"), d.ms(0, 5000)
	case 2:
		p.Source = "file"
	case 3:
		p.NoPriority = true
		if d.one(2) {
			p.NS = "kube-system"
		} else {
			p.NodeCritical, p.QOS = true, "Burstable"
		}
	case 4:
		p.WrongName, p.Strange = true, false // a pod that the runtime has not named has no wrong name
	}
}

// stuck makes a pod die late, or in part.
func (d dice) stuck(p *podPlan) {
	p.Stuck, p.Held = d.ms(500, 30_000), pick(d, 0, 0, 1, 10, 50, 100)
	if d.one(3) {
		p.Die = d.ms(300, 9000)
	}
}

// leaker makes one of the pods leak.
func (d dice) leaker(tl *timeline) *podPlan {
	p := &tl.Pods[d.IntN(len(tl.Pods))]
	p.LeakAnon, p.LeakFrom, p.LeakFor = d.between(100, 3000), d.ms(0, 5000), 0
	p.Request = min(p.Request, p.Anon)
	return p
}

// event draws an event of any sort.
func (d dice) event(until time.Duration) eventPlan {
	e := eventPlan{At: d.ms(0, int(until/time.Millisecond)), By: d.between(-1000, 2000), Over: d.ms(1, 5000)}
	switch e.What = pick(d, "outside", "tasks", "disk", "clock", "restart", "crash", "blind"); e.What {
	case "tasks":
		e.By /= 5
	case "clock":
		e.By, e.Over = pick(d, 1, -1), d.ms(1, 100_000)
	case "restart", "crash", "blind":
		e.By = 0
	}
	return e
}

// preempts draws preemptions.
func (d dice) preempts(tl *timeline) {
	for range d.between(1, 3) {
		at := d.ms(0, int(tl.Node.Until/time.Millisecond))
		tl.Events = append(tl.Events, eventPlan{At: at, What: "preempt", By: d.between(1, 1<<len(tl.Pods)-1)})
	}
}

// splits moves containers out of their pods' cgroups: those of all pods, as different cgroup drivers
// of the kubelet and the runtime do, or those of some. A pod that the runtime has not named stays:
// only its cgroup shows it.
func (d dice) splits(tl *timeline) {
	all := ""
	if d.one(2) {
		all = pick(d, splitApart, splitBare)
	}
	for i := range tl.Pods {
		p := &tl.Pods[i]
		switch {
		case p.Strange:
		case all != "":
			p.Split = all
		case d.one(2):
			p.Split = pick(d, splitApart, splitHalf, splitShared, splitUnlocated)
		}
		switch p.Split {
		case splitShared: // a process does not show the volumes
			p.Vol, p.LeakVol = 0, 0
		case splitUnlocated:
			p.Unmeasured, p.Refused = true, true
		}
	}
}

// slowGarbage makes memory a little short and the disk very short, while the collection of garbage
// takes minutes.
func (d dice) slowGarbage(tl *timeline) {
	n := &tl.Node
	n.Kubelet, n.Allocatable, n.Trash, n.Garbage, n.Until = false, 0, 0, d.ms(1000, 300_000), 2*time.Minute
	n.Grain, n.Memory, n.Disk = max(n.Grain, 100*time.Millisecond), n.Outside+3000, n.OutsideD+3000
	for i := range tl.Pods {
		p := &tl.Pods[i]
		p.LeakAnon, p.LeakVol, p.LeakSwap, p.LeakTasks, p.LeakDisk, p.From, p.Exit, p.Backs, p.Limit = 0, 0, 0, 0, 0, 0, 0, 0, 0
		n.Memory, n.Disk = n.Memory+p.Anon+p.Shm+p.Vol, n.Disk+p.Disk
	}
	tl.Settings = []string{"own x", "hard memory.available 500Mi", "soft memory.available 2000Mi", "grace memory.available 1000ms", "hard nodefs.available 1000Mi"}
	at := d.ms(2000, 8000)
	tl.Events = []eventPlan{{At: at, What: "outside", By: d.between(1500, 2000), Over: d.ms(1, 3000)},
		{At: at + d.ms(0, 2000), What: "disk", By: d.between(2100, 2800), Over: d.ms(1, 3000)}}
}

// settings draws thresholds.
func (d dice) settings(tl *timeline) {
	add := func(format string, args ...any) { tl.Settings = append(tl.Settings, fmt.Sprintf(format, args...)) }
	add("own x")
	hard := pick(d, 500, 800, 1000)
	add("hard memory.available %dMi", hard)
	if d.one(2) {
		add("soft memory.available %dMi", hard+d.between(100, 1500))
		add("grace memory.available %dms", d.between(100, 5000))
	}
	if d.one(3) {
		add("min memory.available %dMi", d.between(1, 1000))
	}
	if d.one(2) {
		add("enforce pods")
		tl.Node.Allocatable = 1
	} else {
		add("enforce none")
	}
	for _, s := range []struct {
		name        string
		least, most int
		unit        string
	}{{"swap.available", 50, 400, "Mi"}, {"pid.available", 50, 300, ""}, {"nodefs.available", 300, 2000, "Mi"}} {
		if d.one(2) {
			hard := d.between(s.least, s.most)
			add("hard %s %d%s", s.name, hard, s.unit)
			if d.one(3) {
				add("soft %s %d%s", s.name, hard+d.between(1, s.most), s.unit)
				add("grace %s %dms", s.name, d.between(100, 5000))
			}
		}
	}
}

// sizes draws a node that is not short of anything at the start.
func (d dice) sizes(tl *timeline) {
	var memory, swap, tasks, disk int
	for i := range tl.Pods {
		p := &tl.Pods[i]
		memory, swap, tasks, disk = memory+p.Anon+p.Shm+p.Vol, swap+p.Swap, tasks+max(p.Tasks, 1), disk+p.Disk
	}
	n := &tl.Node
	n.Outside, n.OutsideTasks, n.OutsideD, n.Trash = d.between(100, 2000), d.between(50, 300), d.between(100, 5000), d.between(0, 1000)
	n.Memory = memory + n.Outside + d.between(1200, 5000)
	if n.Allocatable > 0 {
		n.Allocatable = memory + d.between(1000, 4000)
	}
	n.Swap, n.Tasks, n.Disk = swap+d.between(300, 2000), tasks+n.OutsideTasks+d.between(300, 1500), disk+n.OutsideD+n.Trash+d.between(2000, 6000)
}
