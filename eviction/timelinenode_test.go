package eviction

import (
	"slices"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

const mib = 1 << 20

// instant returns a time with both clocks, like time.Now: durations between two times of one
// process are true whatever happens to the wall clock, and a saved time has only the wall clock.
// Package time makes none with different clocks, so it is assembled by the layout in the
// documentation of Time.wall (time/time.go of go1.26). TestInstants compares it with its methods.
func instant(wall time.Time, monotonic time.Duration) (t time.Time) {
	const sinceUnix = 2682288000 // seconds between 1885 and 1970
	layout := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	layout.wall = 1<<63 | uint64(wall.Unix()+sinceUnix)<<30 | uint64(wall.Nanosecond())
	layout.ext = int64(monotonic)
	return t
}

// realPod is the real state of one pod.
type realPod struct {
	*podPlan
	uid          string
	there        bool // its cgroup exists
	alive        bool // it has a process
	killed       bool
	asked        bool          // the runtime is stopping it
	at           time.Duration // time of its kill
	ended        time.Duration // time of the end of its last process
	life         int           // number of its lives
	sandbox      string
	restartsLeft int // restarts that are left

	anon, vol, swap, tasks, disk float64
	shm                          float64
	anon0, swap0                 float64 // at the kill
	measured                     float64 // its disk usage, as of the last walk
	first                        float64 // the same, as of the first walk
	wrote                        float64
	object                       *Pod
	phase                        bool // current one, of the object
}

// world is the real state of the node, independent of the agent's view.
type world struct {
	nodePlan
	t       time.Duration // since the start
	wall    time.Duration // deviation of the wall clock
	pods    []*realPod
	outside map[string]*outside
	trash   float64
	calm    bool // nothing grows any more
	queue   []happening
	seq     int
	onEnd   func(*realPod) // called at the end of a pod's last process; may be nil
}

// outside is the amount of a resource outside of pods, with its growth.
type outside struct {
	used, rate float64
	until      time.Duration
}

// happening is a future event.
type happening struct {
	at  time.Duration
	seq int
	do  func()
}

func newWorld(tl *timeline) *world {
	w := &world{nodePlan: tl.Node, trash: float64(tl.Node.Trash), outside: map[string]*outside{
		"outside": {used: float64(tl.Node.Outside)}, "tasks": {used: float64(tl.Node.OutsideTasks)}, "disk": {used: float64(tl.Node.OutsideD)},
	}}
	for i := range tl.Pods {
		p := &realPod{podPlan: &tl.Pods[i], restartsLeft: tl.Pods[i].Backs}
		p.uid = "uid-" + p.Name
		w.pods = append(w.pods, p)
		w.later(p.From, func() { w.start(p) })
		if p.Exit > p.From {
			w.later(p.Exit, func() { w.exit(p) })
		}
		if p.Phase != "" {
			w.later(max(p.PhaseAt, p.From), func() { p.phase, p.object = true, nil })
		}
	}
	return w
}

// later schedules an event.
func (w *world) later(after time.Duration, do func()) {
	w.seq++
	h := happening{w.t + max(after, 0), w.seq, do}
	at, _ := slices.BinarySearchFunc(w.queue, h, func(a, b happening) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.seq - b.seq
	})
	w.queue = slices.Insert(w.queue, at, h)
}

// advance lets time pass until then, or until an event, and reports whether there was one.
func (w *world) advance(to time.Duration) (happened bool) {
	if len(w.queue) > 0 {
		to = min(to, w.queue[0].at)
	}
	w.grow(max(to-w.t, 0))
	w.t = max(w.t, to)
	for len(w.queue) > 0 && w.queue[0].at <= w.t {
		h := w.queue[0]
		w.queue = w.queue[1:]
		h.do()
		happened = true
	}
	return happened
}

// start creates a pod, as large as there is room for.
func (w *world) start(p *realPod) {
	p.there, p.alive, p.killed, p.asked = true, true, false, false
	p.life++
	p.anon, p.shm, p.vol, p.swap, p.tasks, p.disk = 0, 0, 0, 0, 0, 0
	p.anon = min(float64(p.Anon), w.memory())
	p.shm = min(float64(p.Shm), w.memory())
	p.vol = min(float64(p.Vol), w.memory())
	p.swap, p.tasks, p.disk = min(float64(p.Swap), w.free("swap")), min(max(float64(p.Tasks), 1), w.free("tasks")), min(float64(p.Disk), w.free("disk"))
	p.measured, p.wrote = p.found(), p.disk
	p.first = p.measured
	p.sandbox = "sandbox-" + p.Name + string(rune('a'+p.life%26))
}

// found returns what a walk finds of a pod's files.
func (p *realPod) found() float64 {
	if p.Found > 0 {
		return p.disk * float64(p.Found) / 100
	}
	return p.disk
}

// grow lets pods and everything outside of them grow, as far as there is room.
func (w *world) grow(d time.Duration) {
	if d == 0 {
		return
	}
	from, s := w.t, d.Seconds()
	for _, name := range []string{"outside", "tasks", "disk"} {
		o := w.outside[name]
		if from < o.until && !w.calm {
			left := map[string]float64{"outside": w.memory(), "tasks": w.free("tasks"), "disk": w.free("disk")}[name]
			o.used = max(0, o.used+min(o.rate*min(d, o.until-from).Seconds(), left))
		}
	}
	for _, p := range w.pods {
		switch {
		case !p.alive:
		case p.killed:
			p.fade(from + d)
		case !w.calm && from >= p.From+p.LeakFrom && (p.LeakFor == 0 || from < p.From+p.LeakFrom+p.LeakFor):
			p.anon += min(float64(p.LeakAnon)*s, w.memory())
			p.vol += min(float64(p.LeakVol)*s, w.memory())
			p.swap += min(float64(p.LeakSwap)*s, w.free("swap"))
			p.tasks += min(float64(p.LeakTasks)*s, w.free("tasks"))
			more := min(float64(p.LeakDisk)*s, w.free("disk"))
			p.disk, p.wrote = p.disk+more, p.wrote+more
		}
		if p.alive && !p.killed && !w.calm {
			p.wrote += float64(p.Overwrites) * s
		}
	}
}

// fade lets a killed pod return what no stuck task holds.
func (p *realPod) fade(now time.Duration) {
	back := 1.0
	if p.Die > 0 {
		back = min(1, float64(now-p.at)/float64(p.Die))
	}
	if p.Stuck > 0 {
		back *= 1 - float64(p.Held)/100
	}
	p.anon, p.swap = p.anon0*(1-back), p.swap0*(1-back)
	if now-p.at >= p.Die {
		p.tasks = 1
	}
}

// kill does what the kernel does with a pod's processes.
func (w *world) kill(p *realPod) {
	if !p.alive || p.killed {
		return
	}
	p.killed, p.at, p.anon0, p.swap0 = true, w.t, p.anon, p.swap
	life := p.life
	w.later(max(p.Die, p.Stuck), func() {
		if p.life == life {
			w.empties(p)
		}
	})
}

// exit ends a pod by itself.
func (w *world) exit(p *realPod) {
	if w.kill(p); p.killed && p.life == 1 {
		w.later(max(p.Die, p.Stuck)+p.Clean, func() {
			if p.life == 1 && !p.alive {
				p.vol = 0
				w.cleaned(p)
			}
		})
	}
}

// empties ends a pod's last process. The owner of its volumes decides on what it leaves in memory.
func (w *world) empties(p *realPod) {
	p.alive, p.ended, p.anon, p.swap, p.tasks, p.shm = false, w.t, 0, 0, 0, 0
	if w.onEnd != nil {
		w.onEnd(p)
	}
	if life := p.life; w.Kubelet && !p.VolStays {
		w.later(p.VolFree, func() {
			if p.life == life {
				p.vol = 0
				p.there = p.there && !p.Keeps
			}
		})
	}
}

// cleaned ends the runtime's clean-up of a pod.
func (w *world) cleaned(p *realPod) {
	if p.alive {
		return
	}
	p.there = p.Keeps && p.vol > 0
	if p.restartsLeft > 0 {
		p.restartsLeft--
		life := p.life
		w.later(p.BackAfter, func() {
			if p.life == life && !p.alive {
				w.start(p)
			}
		})
	}
}

// makePlenty makes the node so large that nothing is short.
func (w *world) makePlenty() {
	w.calm, w.Memory, w.Allocatable, w.Swap, w.Tasks, w.Disk = true, 10*w.Memory, 10*w.Allocatable, 10*w.Swap, 10*w.Tasks, 10*w.Disk
}

// memory returns the available memory, and available the available amount of any resource.
func (w *world) memory() float64 {
	left := float64(w.Memory) - w.outside["outside"].used
	for _, p := range w.pods {
		left -= p.memory()
	}
	return max(left, 0)
}

func (p *realPod) memory() float64 { return p.anon + p.shm + p.vol }

func (w *world) free(what string) float64 {
	var left float64
	switch what {
	case "tasks":
		left = float64(w.Tasks) - w.outside["tasks"].used
	case "disk":
		left = float64(w.Disk) - w.outside["disk"].used - w.trash
	case "swap":
		left = float64(w.Swap)
	case "allocatable":
		left = float64(w.Allocatable)
	default:
		return w.memory()
	}
	for _, p := range w.pods {
		left -= p.usage(what)
	}
	return max(left, 0)
}

// usage returns a pod's usage of a resource.
func (p *realPod) usage(what string) float64 {
	switch what {
	case "tasks":
		return p.tasks
	case "disk":
		return p.disk
	case "swap":
		return p.swap
	}
	return p.memory()
}

// known returns the pod's current object; nil: unknown.
func (p *realPod) known() *Pod {
	if !p.Object || p.life == 0 {
		return nil
	}
	if p.object == nil {
		p.object = NewPod(p.clientObject())
	}
	return p.object
}

// clientObject returns the object that a client has put for the pod, with its wrong values.
func (p *realPod) clientObject() *v1.Pod {
	o := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	o.Name, o.Namespace, o.UID = p.Name, p.namespace(), types.UID(p.uid)
	o.Status.QOSClass = v1.PodQOSClass(p.QOS)
	request := p.Request
	if p.Resize > 0 {
		request = p.Resize
	}
	if p.WrongName { // of another pod, with a request for everything
		o.Name, request = "other", 1<<20
	}
	r := &o.Spec.Containers[0].Resources
	r.Requests = v1.ResourceList{v1.ResourceMemory: parsed(bytesQuantity(uint64(request) * mib))}
	if p.Status {
		o.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: v1.ResourceList{v1.ResourceMemory: parsed(bytesQuantity(uint64(p.Request) * mib))}}}
	}
	if p.Limit > 0 {
		r.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: parsed(bytesQuantity(uint64(p.Limit) * mib))}
	}
	if priority := int32(p.Priority); !p.NoPriority {
		o.Spec.Priority = &priority
	}
	if p.Source != "" {
		o.Annotations = map[string]string{annotationConfigSource: p.Source}
	}
	if p.phase {
		o.Status.Phase = v1.PodPhase(p.Phase)
	}
	return o
}

func (p *realPod) namespace() string {
	if p.NS != "" {
		return p.NS
	}
	return "default"
}

// Where the containers of a pod run, if not below its cgroup.
const (
	splitApart     = "apart"     // in cgroups of their own
	splitBare      = "bare"      // the same, and the pod has no cgroup
	splitHalf      = "half"      // one below the pod's cgroup, one apart
	splitShared    = "shared"    // in a cgroup with other processes
	splitUnlocated = "unlocated" // the runtime does not say where
)

// hidden reports whether the kernel counts no tasks, swap and writes of the pod alone.
func (p *podPlan) hidden() bool { return p.Split == splitShared || p.Split == splitUnlocated }

// unmeasured reports whether a pod's usage of a resource is unknown.
func (p *realPod) unmeasured(what string) bool {
	switch what {
	case "tasks":
		return p.hidden()
	case "swap":
		return p.Unmeasured || p.hidden()
	}
	return p.Unmeasured
}

// listed reports whether a look finds the pod: a cgroup of its own, or a container.
func (p *realPod) listed() bool { return p.there && (p.alive || p.Split != splitBare) }

// stats returns the pod as a look reads it: quickly, for memory only, or in full.
func (p *realPod) stats(now time.Time, quick, full bool) stats.PodStats {
	s := stats.PodStats{
		PodRef: stats.PodReference{Name: p.Name, Namespace: p.namespace(), UID: p.uid}, QOSClass: stats.QOSClass(p.QOS), Announced: !p.Strange,
		Cgroup: "kubepods/pod" + p.uid, CgroupID: stats.CgroupID{Dev: 1, Ino: uint64(p.life) + 10}, SandboxIDs: []string{p.sandbox},
		StartTime: epoch.Add(p.From), Self: p.Self, NodeCritical: p.NodeCritical, MemoryRequest: stats.Some(stats.ExactRange(uint64(p.Request) * mib)),
	}
	if p.BackSame {
		s.CgroupID.Ino = 10
	}
	s.Annotations = annotations[[2]bool{p.Static, p.Mirror}]
	if p.Strange {
		s.PodRef.Name, s.PodRef.Namespace, s.Annotations, s.SandboxIDs = "", "", nil, nil
	}
	p.readGroups(now, &s, quick, full)
	if full {
		p.storageStats(&s)
	}
	return s
}

// readGroups reads the pod's cgroup and the containers outside it, as read.Reader does.
func (p *realPod) readGroups(now time.Time, s *stats.PodStats, quick, full bool) {
	apart := stats.OutsideContainer{ID: p.sandbox, Cgroup: "system.slice/" + p.sandbox, CgroupID: stats.CgroupID{Dev: 1, Ino: uint64(p.life) + 1000}}
	var other stats.PodStats
	switch {
	case !p.alive, p.Split == "":
		p.readGroup(now, s, 1, quick, full)
	case p.Split == splitApart, p.Split == splitHalf:
		below := 0.0
		if p.Split == splitHalf {
			below = 0.5
		}
		p.readGroup(now, s, below, quick, full)
		p.readGroup(now, &other, 1-below, quick, full)
		s.Add(&other)
		s.Outside = []stats.OutsideContainer{apart}
	case p.Split == splitBare:
		p.readGroup(now, s, 1, quick, full)
		s.Cgroup, s.CgroupID, s.Outside = "", stats.CgroupID{}, []stats.OutsideContainer{apart}
	case p.Split == splitShared:
		s.Populated, s.Memory.Time, s.Memory.Quick = stats.Some(true), now, quick
		s.Memory.AtLeast(uint64(p.anon*mib), uint64(p.shm*mib))
		s.Outside = []stats.OutsideContainer{{ID: p.sandbox, Process: stats.ProcessID{PID: 1000 + p.life}}}
	case p.Split == splitUnlocated:
		s.Populated, s.Cgroup, s.CgroupID = stats.Some(true), "", stats.CgroupID{}
	}
}

// readGroup reads a cgroup with a part of the pod's processes.
func (p *realPod) readGroup(now time.Time, s *stats.PodStats, part float64, quick, full bool) {
	bytes := func(v float64) stats.Opt[uint64] { return stats.Some(uint64(v * part * mib)) }
	s.Populated, s.Threads = stats.Some(p.alive && part > 0), stats.Some(uint64(p.tasks*part))
	m := &s.Memory
	if !p.Unmeasured {
		usage := bytes(p.memory() + float64(p.Cache))
		*m = stats.PodMemoryStats{Time: now, UsageBytes: usage, WorkingSetBytes: usage, Quick: quick}
		if !quick {
			m.WorkingSetBytes, m.AnonBytes, m.ShmemBytes = bytes(p.memory()), bytes(p.anon), bytes(p.shm+p.vol)
		}
	}
	if full {
		m.SwapBytes = stats.Some(uint64(p.swap*part) * mib)
		m.FreedBytes = stats.Some(stats.Range{Min: bytes(p.anon).V, Max: bytes(p.anon + p.shm).V})
		if !p.NoIO {
			s.Written.Bytes = stats.Some(uint64(p.wrote*part) * mib)
		}
	}
}

// storageStats fills in a pod's disk usage as the walks found it.
func (p *realPod) storageStats(s *stats.PodStats) {
	found := p.measured
	if p.Cut {
		found = p.first
	}
	s.Containers = []stats.ContainerStats{{Name: "c", Rootfs: stats.Some(stats.FsUsage{UsedBytes: uint64(found) * mib, Partial: p.Found > 0 || p.Cut})}}
	s.EphemeralStorage.UsedBytes, s.EphemeralStorage.Cut = stats.Some(uint64(found)*mib), p.Cut
	if p.NoDisk {
		s.Containers, s.EphemeralStorage.UsedBytes = nil, stats.Opt[uint64]{}
	}
}

// annotations that the runtime has of static and mirror pods, and of others.
var annotations = map[[2]bool]map[string]string{
	{false, false}: {annotationConfigSource: "api"},
	{true, false}:  {annotationConfigSource: "file"},
	{false, true}:  {annotationConfigSource: "api", annotationConfigMirror: "hash"},
	{true, true}:   {annotationConfigSource: "file", annotationConfigMirror: "hash"},
}
