package eviction

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"jettison/stats"
)

// shell drives the manager on a node: internal/agent (look, decide) and internal/agent/evictions
// (begin, the goroutine that carries an eviction out, events, resume), in the same order and with
// the same limits, over a world instead of a kernel and a runtime.
type shell struct {
	*world
	m        *Manager
	rules    *rules
	config   Config
	shuffle  *rand.Rand // of the pods in every look; nil: not shuffled
	settings []string
	reload   *rand.Rand // after which looks the configuration is read again; nil: never
	log      []string   // decisions and their results
	last     string     // the last reason why no pod was evicted
	saved    Saved      // as of the last look
	crashes  bool       // it will crash

	node     stats.NodeStats
	slow     time.Duration // time of the last reading of disks
	jobs     map[*Life]*job
	walking  bool
	walked   time.Time
	blind    time.Duration // until then memory cannot be read
	away     bool
	looked   int
	growing  map[string]float64 // values before memory was short
	unpinned map[*realPod]int
	missed   bool
	atRest   bool // when the disk began to fill, the pods' usage on the quiet disk was known
}

// job is an eviction as its goroutine knows it.
type job struct {
	*realPod
	of          *Life
	its         int // which of the pod's lives
	ended       bool
	late        bool // it was reported as undying
	over        bool
	endReported bool // its end was reported
	deadline    time.Duration
}

// Limits of a timeline: a longer one shows nothing more.
const (
	mostLooks = 3000
	stopBound = 2 * time.Second // internal/node/kill: the runtime's time beyond a grace period

	// afterwards is how long a timeline continues when nothing is short any more: by then everything
	// that was begun is over.
	afterwards = 10 * time.Minute
)

// run runs a timeline. The rules decide what is wrong.
func run(tl *timeline, shuffle *rand.Rand) *shell { return runReloading(tl, shuffle, nil) }

// runReloading is run with an unchanged configuration that is read again now and then.
func runReloading(tl *timeline, shuffle, reload *rand.Rand) *shell {
	s := &shell{world: newWorld(tl), shuffle: shuffle, reload: reload, jobs: map[*Life]*job{}, unpinned: map[*realPod]int{}, slow: -time.Hour}
	s.settings = tl.Settings
	thresholds, _, errs := in(tl.Settings...).Parse()
	if errs != nil { // a shrunk timeline may be invalid
		s.rules = newRules(s, tl)
		return s
	}
	s.config = Config{
		Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableKernel, MaxPodGracePeriodSeconds: 5, LocalStorage: true,
		PressureTransitionPeriod: 10 * time.Second, Breaker: tl.Node.Breaker, Explain: tl.Node.Explain, Policy: Policy{
			ProtectedNamespaces: []string{"kube-system"}, AnnotationNamespaces: []string{"kube-system"}, ByRelease: tl.Node.ByRelease,
		},
	}
	s.m, s.rules = NewManager(s.config), newRules(s, tl)
	s.onEnd = s.endedByItself
	for i := range tl.Events {
		e := &tl.Events[i]
		s.later(e.At, func() { s.event(e) })
		s.crashes = s.crashes || e.What == "crash"
	}
	s.advance(0)
	s.pass(s.Until)
	if s.rules.broken == "" {
		s.makePlenty()
		s.Grain = 5 * time.Second
		s.pass(s.t + afterwards)
		s.rules.end()
	}
	return s
}

// pass lets time pass until then.
func (s *shell) pass(until time.Duration) {
	for looks := 0; s.t < until && looks < mostLooks && s.rules.broken == ""; looks++ {
		wait := time.Second
		if !s.away {
			s.look()
			if s.reload != nil && s.reload.IntN(4) == 0 {
				s.config.Thresholds, _, _ = in(s.settings...).Parse() // other objects with the same values
				s.m.Reconfigure(s.config)
			}
			ready := s.m.Ready(s.now())
			wait = max(min(ready.Within, s.due(&ready)), s.Grain, 2*time.Millisecond)
		}
		s.advance(s.t + wait)
	}
}

// now returns the time of the agent's clock.
func (s *shell) now() time.Time { return instant(epoch.Add(s.t+s.wall), s.t+time.Hour) }

func (s *shell) say(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%-8v ", s.t.Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// event carries out an event of the timeline.
func (s *shell) event(e *eventPlan) {
	s.say("%s %+d over %v", e.What, e.By, e.Over)
	switch e.What {
	case "clock":
		s.wall += e.Over * time.Duration(max(e.By, -1))
	case "blind":
		s.blind = s.t + e.Over
	case "preempt":
		s.preempt(e.By)
	case "restart", "crash":
		if s.away {
			return
		}
		if e.What == "restart" {
			s.save()
		}
		for _, j := range s.jobs {
			j.over = true
		}
		s.away, s.jobs = true, map[*Life]*job{}
		s.later(e.Over, s.resume)
	default:
		if e.What == "disk" {
			s.atRest = s.m.explain.quiet[stats.SignalNodeFsAvailable].pods != nil
		}
		o := s.outside[e.What]
		o.rate, o.until = float64(e.By)/max(e.Over.Seconds(), 0.001), s.t+max(e.Over, time.Millisecond)
	}
}

// due returns how long a look may wait before the rest of memory or tasks can be gone (package
// pace), at the timeline's rate.
func (s *shell) due(r *Ready) time.Duration {
	most := [len(Quick)]float64{1, 1, 1}
	for _, p := range s.pods {
		most[0] += float64(p.LeakAnon+p.LeakVol) * mib
		most[2] += float64(p.LeakTasks)
	}
	most[1] = most[0]
	most[0] += max(0, s.outside["outside"].rate) * mib
	most[2] += max(0, s.outside["tasks"].rate)
	due := time.Second
	for i, rate := range most {
		if left := float64(r.Headroom[i].Left) / rate; left < 1 {
			due = min(due, time.Duration(left*float64(time.Second)))
		}
	}
	return due
}

// look follows agent.loop.look.
func (s *shell) look() {
	s.looked++
	ready := s.measure()
	s.rules.look(&ready)
	begun := false
	if ready.Look == LookMemory {
		begun = s.decide(LookMemory, &ready)
		ready = s.m.Ready(s.now())
	}
	s.reported(&ready)
	if !begun && ready.Look == LookFull {
		s.decide(LookFull, &ready)
	}
	if s.crashes {
		s.save()
	}
}

func (s *shell) save() { s.saved = s.m.Save() }

func (s *shell) measure() Ready {
	now, n := s.now(), &s.node
	bytes := func(v float64) stats.Opt[uint64] { return stats.Some(uint64(v * mib)) }
	n.Layout = stats.Some(stats.Layout{})
	if n.Memory = (stats.NodeMemoryStats{Time: now}); s.t >= s.blind {
		n.Memory.CapacityBytes, n.Memory.KernelAvailableBytes = bytes(float64(s.Memory)), bytes(s.memory())
		n.Memory.ShmemBytes = bytes(s.shared())
	}
	n.Allocatable = stats.AllocatableMemoryStats{Time: now, Unlimited: s.Allocatable == 0}
	if s.Allocatable > 0 {
		n.Allocatable.LimitBytes, n.Allocatable.WorkingSetBytes = bytes(float64(s.Allocatable)), bytes(float64(s.Allocatable)-s.free("allocatable"))
	}
	n.Swap = stats.NodeSwapStats{Time: now, TotalBytes: bytes(float64(s.Swap)), FreeBytes: bytes(s.free("swap"))}
	free := uint64(s.free("tasks"))
	n.PIDs = stats.NodePIDStats{Time: now, Max: stats.Some(uint64(s.Tasks)), Current: stats.Some(uint64(s.Tasks) - free)}
	if s.t-s.slow >= time.Second {
		s.slow = s.t
		n.Pods = stats.PodsTotal{Time: now, WorkingSetBytes: bytes(s.ofPods("memory")), SwapBytes: bytes(s.ofPods("swap"))}
		n.Pods.Tasks = stats.Some(uint64(s.ofPods("tasks")))
		n.Fs = stats.Some(stats.FsStats{Time: now, CapacityBytes: bytes(float64(s.Disk)), AvailableBytes: bytes(s.free("disk"))})
		n.ContainerFs = n.Fs
	}
	r := s.m.Observe(now, n, Situation{ObserveDisks: s.Kubelet, Limited: slices.ContainsFunc(s.pods, func(p *realPod) bool { return p.Limit > 0 })})
	if r.Near < NearShort {
		s.growing = map[string]float64{"kubepods": s.ofPods("memory"), "system.slice": s.outside["outside"].used}
	}
	return r
}

// shared returns the amount in tmpfs.
func (s *shell) shared() (used float64) {
	for _, p := range s.pods {
		used += p.shm + p.vol
	}
	return used
}

// ofPods returns what all pods use of a resource.
func (s *shell) ofPods(what string) (used float64) {
	for _, p := range s.pods {
		used += p.usage(what)
	}
	return used
}

func (s *shell) reported(ready *Ready) {
	for _, l := range ready.Outcomes {
		s.say("%s: %v", l.e.Pod.PodRef.UID, l.Outcome())
		s.rules.outcome(l)
	}
	for _, l := range ready.Finished {
		delete(s.jobs, l)
	}
	s.m.Acknowledge()
}

// decide follows agent.loop.decide.
func (s *shell) decide(look Look, ready *Ready) bool {
	begun := s.act(s.choose(look, ready))
	if s.missed && !begun && look == LookMemory {
		begun = s.act(s.choose(look, ready))
	}
	return begun
}

// choose follows agent.loop.choose with looks.Victims.
func (s *shell) choose(look Look, ready *Ready) (Decision, Input) {
	now := s.now()
	input := Input{Pods: map[string]*Pod{}, ObserveDisks: s.Kubelet, MemoryOnly: look == LookMemory, Terse: look == LookMemory}
	for _, p := range s.pods {
		if o := p.known(); o != nil && s.stored(p) {
			input.Pods[p.uid] = o
		}
	}
	if look == LookFull && !ready.DiskMeasuredSince.IsZero() && !s.walked.After(ready.DiskMeasuredSince) {
		input.Measuring = true
		s.walk()
	}
	if ready.NeedsGrowth {
		input.Growing = s.grown()
	}
	sum := s.summary(now, look == LookMemory, look == LookFull)
	input.Summary = sum
	for look == LookMemory {
		i := s.m.PodToRead(now, input)
		if i < 0 {
			break
		}
		sum.Pods[i].Memory = s.podOf(sum.Pods[i].PodRef.UID).stats(now, false, false).Memory
	}
	d := s.m.Step(now, input)
	s.rules.decision(&d, input)
	if s.shuffle == nil { // of two timelines that must be equal, one queries
		s.rules.outlook(&d, s.m.Outlook(now, input))
	}
	if len(d.Evictions) == 1 && d.Evictions[0].Inexact() {
		input.Summary = s.summary(now, false, false)
		d = s.m.Step(now, input)
		s.rules.decision(&d, input)
	}
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 && !s.relieve(now, &d) {
		d = s.m.StepAfterReclaim(now, input)
		s.rules.decision(&d, input)
	}
	if len(d.Evictions) == 0 && d.Reason != s.last {
		s.last = d.Reason
		s.say("no eviction for %s: %s", d.Signal.Threshold.Signal, d.Reason)
	}
	return d, input
}

// stored reports whether the object store accepts it.
func (s *shell) stored(*realPod) bool { return true }

func (s *shell) podOf(uid string) *realPod {
	return s.pods[slices.IndexFunc(s.pods, func(p *realPod) bool { return p.uid == uid })]
}

func (s *shell) grown() (out []Growth) {
	for _, g := range []struct {
		name string
		now  float64
	}{{"kubepods", s.ofPods("memory")}, {"system.slice", s.outside["outside"].used}} {
		if more := g.now - s.growing[g.name]; s.growing != nil && more > 0 {
			out = append(out, Growth{g.name, int64(more * mib)})
		}
	}
	return out
}

func (s *shell) summary(now time.Time, quick, full bool) *stats.Summary {
	sum := &stats.Summary{Time: now, Node: s.node}
	for _, p := range s.pods {
		if p.listed() {
			sum.Pods = append(sum.Pods, p.stats(now, quick && !p.Unmeasured, full))
		}
	}
	if s.shuffle != nil {
		s.shuffle.Shuffle(len(sum.Pods), func(i, j int) { sum.Pods[i], sum.Pods[j] = sum.Pods[j], sum.Pods[i] })
	}
	return sum
}

// walk measures the pods' disk usage, concurrently with the loop.
func (s *shell) walk() {
	if s.walking {
		return
	}
	s.walking = true
	began := s.now()
	s.later(s.Walk, func() {
		s.walking, s.walked = false, began.Add(time.Nanosecond)
		for _, p := range s.pods {
			p.measured = p.found()
		}
	})
}

func (s *shell) relieve(now time.Time, d *Decision) (waits bool) {
	if s.Kubelet {
		return false
	}
	next := s.m.Relief(now, d)
	switch next {
	case ReliefBegin, ReliefBeginNow:
		s.say("garbage is collected")
		s.later(max(s.Walk, s.Garbage), func() {
			s.trash, s.slow = 0, -time.Hour
			if !s.away {
				s.m.Relieved(s.now())
			}
		})
		return next == ReliefBegin
	case ReliefWait:
		return true
	}
	return false
}
