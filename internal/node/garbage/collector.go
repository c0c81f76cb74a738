// Package garbage is the garbage collector of a node: it looks, has reclaim plan, and carries the
// plan out through the runtime and the file system, one step at a time. Each step is checked again
// right before it is done; what does not work is tried again later, and holds up nothing else.
//
//	collector.go Collector: options, what is remembered
//	look.go      what is seen, for reclaim
//	date.go      since when it is there, whatever the wall clock was set to
//	imagesof.go  images that sandboxes and image volumes use, which the runtime tells one by one
//	place.go     what is seen on file systems: logs, links, cgroups, sizes
//	pass.go      Pass, Relieve: look, plan, carry out
//	relief.go    what of a plan helps against a disk that is short, in which order
//	removal.go   removing containers, sandboxes, logs, links, cgroups
//	image.go     removing images, measured
//	result.go    what a pass has done
//	hold.go      evictions go first
//	backoff.go   what did not work, and when it is tried again
//	quiet.go     pods in which nothing is alive, and since when
//	state.go     what outlives a restart
//	schedule.go  when the next pass is due
//	runner.go    Runner: passes in a goroutine, periodic or asked for
//	named.go     Named: what is known of pods by name, for that goroutine
//	part.go      Part: a loop's share, which asks, logs and lets evictions go first
//
// Passes are made in their rhythm, and at once when a disk is short: eviction wishes for what can
// be reclaimed before a pod is evicted, and decides again by a look after the pass. Beside a
// kubelet passes plan only. A runtime that stops answering in a pass is held against no container.
package garbage

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/node/bootid"
	"jettison/internal/node/config"
	"jettison/internal/node/kubeletdetect"
	"jettison/internal/node/podfiles"
	"jettison/reclaim"
	"jettison/stats/read"
)

// What is a set of kinds of garbage.
type What uint8

// The kinds.
const (
	Containers What = 1 << iota // dead containers, sandboxes, logs, links and cgroups
	Images
	Everything = Containers | Images
)

// String is "containers", "images" or both.
func (w What) String() string {
	switch w {
	case Containers:
		return "containers"
	case Images:
		return "images"
	case Everything:
		return "containers and images"
	}
	return "nothing"
}

// Known is what is known of pods by name: from clients and manifests.
type Known struct {
	Pods map[string]reclaim.Phase // by UID
	// Synced: all of them have been heard, so that no client and no manifest names a pod that is not
	// among them. While it is false no pod is gone.
	Synced bool
	// Had are the sandboxes, by ID, that pods had when this agent evicted them, where they are known.
	// One with another that is ready is back, whatever Pods says still.
	Had map[string][]string
}

// renewed are the pods that were evicted and have another sandbox by now, which is ready. One that
// is the same may be: without a kubelet nobody stops that of a pod that has ended.
func (k *Known) renewed(l *reclaim.Look) map[string]bool {
	out := map[string]bool{}
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		if had := k.Had[s.PodUID]; len(had) > 0 && !s.NotReady && k.Pods[s.PodUID] == reclaim.Evicted &&
			!slices.Contains(had, s.ID) {
			out[s.PodUID] = true
		}
	}
	return out
}

// Options of a Collector.
type Options struct {
	config.Collect // what the configuration says
	Runtime        *cri.Client
	// Known is asked before each plan and again before each step that is taken because a pod is gone.
	// nil: no pod is named, and that is all there is to know.
	Known func() Known
	// Kubelet looks for a kubelet now: whether the node's garbage is its, and why. Passes call it.
	// nil: by what runs now alone.
	Kubelet   func() (found bool, why string)
	ProcMount string // for mounts, and for the search for a kubelet; empty: /proc

	Host *read.HostRoot // nil: neither logs nor the sizes of file systems are seen

	CgroupMount string // empty: cgroups are not seen

	StateDir string // for what outlives a restart; empty: nothing does
	// Started is when the agent started, from which on it would have seen images used. Zero: no image
	// goes for its age.
	Started time.Time
	// Once: there will be no later pass, as none is by hand. None is put off then, neither for a slow
	// runtime nor for young sandboxes.
	Once bool
}

// linksDir is where kubelets put symbolic links to containers' logs
// (pkg/kubelet/kuberuntime/kuberuntime_manager.go).
const linksDir = "/var/log/containers"

// Collector collects garbage on one node. Pass, Plan, Relieve and Close are for one goroutine at a
// time; Hold and Release for any.
type Collector struct {
	barrier
	o       Options
	now     func() time.Time
	uptime  func() time.Duration // CLOCK_BOOTTIME
	beside  func() (bool, string)
	statfs  func(path string) (filesystem, error)
	wait    time.Duration // under disk pressure, for a sandbox to get its container
	slow    time.Duration // a list that takes longer: the runtime is slow
	limit   time.Duration // of a call that changes something; 0: what cri.Client has
	fs      *cgroup.FS
	remover *podfiles.Remover
	store   *store

	records reclaim.Records
	quiet   quiet
	backoff backoff
	mounts  map[string][]string // images that containers have as volumes, by container ID
	// containers that may run and did not tell theirs, by ID, and sandboxes that did not tell their
	// containers
	silent map[string]silent
	logs   map[string]string // where containers log to, by ID; empty: nowhere
	pauses map[string]string // the image of a sandbox, by sandbox ID
	// listed are the IDs of the sandboxes that last were: one that nothing names any more is asked for
	// by it.
	listed []string
	had    int      // containers that were listed with them
	pause  []string // images for sandboxes by the runtime's configuration
	paces  paces
	// imageDir is a directory on the image file system, as the runtime last told it; empty: it has
	// not.
	imageDir string
	putOff   map[What]int // passes in a row, because the runtime was slow
	// pulling is since when passes for images are put off for young sandboxes; zero: they are not.
	pulling time.Time
	// when sandboxes were last asked for their image that did not answer in time, by ID; by uptime
	hung map[string]time.Duration
	// containers and sandboxes are when those were first seen whose age the runtime's word is not
	// enough for.
	containers, sandboxes sightings
	odd                   []string // what was wrong with what was remembered; said in the next result
}

// New makes a Collector, with what an earlier one left in StateDir. What is wrong there is said in
// the first result. Close it.
func New(o Options) (*Collector, error) {
	if o.Runtime == nil {
		return nil, errors.New("collect garbage: no runtime")
	}
	c := &Collector{
		o: o, now: time.Now, uptime: bootid.Uptime, beside: o.Kubelet, wait: pullWait, slow: slowList,
		mounts: map[string][]string{}, silent: map[string]silent{}, logs: map[string]string{},
		pauses: map[string]string{}, paces: defaultPaces(),
		putOff: map[What]int{}, containers: sightings{}, sandboxes: sightings{},
	}
	if o.ProcMount == "" {
		c.o.ProcMount = "/proc"
	}
	if finder := new(kubeletdetect.Finder); c.beside == nil {
		c.beside = func() (bool, string) { return finder.Kubelet(c.o.ProcMount) }
	}
	if o.Known == nil {
		c.o.Known = func() Known { return Known{Synced: true} }
	}
	c.statfs = c.hostFs
	if o.Host != nil {
		c.remover = &podfiles.Remover{Host: o.Host, RootDir: o.RootDir, PodLogsDir: o.PodLogsDir,
			Proc: filepath.Join(c.o.ProcMount, "1")}
	}
	if o.CgroupMount != "" {
		var err error
		if c.fs, err = cgroup.Open(o.CgroupMount); err != nil {
			return nil, err
		}
	}
	c.store = openStore(o.StateDir, bootid.Read(c.o.ProcMount))
	var odd []error
	c.records, c.quiet, odd = c.store.load()
	for _, err := range odd {
		c.odd = append(c.odd, err.Error())
	}
	return c, nil
}

// Close gives everything back. What is remembered was written after each pass.
func (c *Collector) Close() {
	if c.fs != nil {
		c.fs.Close()
	}
	c.store.close()
}

// Locked reports whether another process keeps StateDir: then nothing is written there.
func (c *Collector) Locked() bool { return c.store.foreign }

// Missing are the files of what outlives a restart that were not there: what they are for begins
// anew.
func (c *Collector) Missing() []string { return c.store.missing }

// Waiting is how many pods have neither a name nor anything alive, but not for PodGoneAfter yet, as
// of the last look.
func (c *Collector) Waiting() (pods int, first time.Time) { return c.quiet.waiting, c.quiet.next }

// PhaseOf is what a pod's object says of it, for Known. Of pods that the agent itself has evicted
// it knows better.
func PhaseOf(p *v1.Pod) reclaim.Phase {
	switch over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; {
	// kubelet pkg/kubelet/eviction/helpers.go PodIsEvicted
	case p.Status.Phase == v1.PodFailed && p.Status.Reason == eviction.ReasonEvicted:
		return reclaim.Evicted
	case over && p.DeletionTimestamp != nil:
		return reclaim.Gone
	case over:
		return reclaim.Terminated
	}
	return reclaim.Active
}
