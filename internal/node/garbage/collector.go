// Package garbage is the garbage collector of a node. A pass reads the node, has package reclaim
// plan, and carries out the plan through the runtime and the file system, one step at a time. Each
// step is checked again right before it runs. A failed step is retried later and delays no other.
//
//	collector.go  Collector: options and state
//	look.go       reads containers, sandboxes and images for reclaim
//	date.go       creation times, corrected for changes of the wall clock
//	imagesof.go   images in use that containers do not name
//	query.go      queries about objects one by one, each once, those that hang last
//	place.go      reads file systems: logs, links, cgroups, sizes
//	pass.go       Pass: read, plan, carry out
//	relief.go     Relieve: the steps that help a disk that is short, fastest first
//	removal.go    removes containers, sandboxes, logs, links, cgroups
//	image.go      removes images
//	result.go     Result: the outcome of a pass
//	barrier.go    Hold: evictions have priority over garbage collection
//	backoff.go    backoff of failed steps
//	quiet.go      pods without anything alive, and since when
//	state.go      state files that survive a restart
//	schedule.go   Schedule: the time of the next pass
//	runner.go     Runner: periodic and requested passes in a goroutine
//	named.go      Named: the pod objects, for the Runner's goroutine
//	part.go       Part: the loop's side, which requests passes, logs, and holds them for evictions
//
// Passes run periodically, and immediately when a disk is short: package eviction asks for garbage
// to be reclaimed before it evicts a pod, and decides again with a look after the pass. On a node
// with a kubelet passes only plan. If the runtime stops answering in a pass, no container gets a
// backoff for it.
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

// Kind is a set of kinds of garbage.
type Kind uint8

// The kinds.
const (
	Containers Kind = 1 << iota // dead containers, sandboxes, logs, links and cgroups
	Images
	Everything = Containers | Images
)

// String returns "containers", "images" or "containers and images".
func (w Kind) String() string {
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

// Known contains the pods named by clients and manifests.
type Known struct {
	Pods map[string]reclaim.Phase // by UID
	// Synced reports that Pods is complete: every client and manifest was read. While it is false no
	// pod counts as gone.
	Synced bool
	// Claimed are the UIDs of pods whose end only members of the socket's group report. It counts once
	// the pod has been quiet for PodGoneAfter, because a member may not collect another pod's garbage.
	Claimed map[string]bool
	// EvictedSandboxes are the IDs of the sandboxes that a pod had when this agent evicted it, by pod
	// UID, where known. A pod with another ready sandbox was restarted, regardless of Pods.
	EvictedSandboxes map[string][]string
}

// restarted returns the evicted pods that have another ready sandbox. The former sandbox may be
// ready too: without a kubelet no program stops the sandbox of a pod that has ended.
func (k *Known) restarted(l *reclaim.Look) map[string]bool {
	out := map[string]bool{}
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		former := k.EvictedSandboxes[s.PodUID]
		if len(former) > 0 && !s.NotReady && k.Pods[s.PodUID] == reclaim.Evicted &&
			!slices.Contains(former, s.ID) {
			out[s.PodUID] = true
		}
	}
	return out
}

// Options of a Collector.
type Options struct {
	config.Collect // the configuration
	Runtime        *cri.Client
	// Known returns the named pods. It is called before each plan, and again before each step that
	// depends on a pod being gone. nil: no pod is named, and the list is complete.
	Known func() Known
	// Kubelet searches for a kubelet. It reports whether the kubelet collects the node's garbage, and
	// why. Passes call it. nil: search the running processes only.
	Kubelet   func() (found bool, why string)
	ProcMount string // for mounts, and for the search for a kubelet; empty: /proc

	Host *read.HostRoot // nil: do not read logs and sizes of file systems

	CgroupMount string // empty: do not read cgroups

	StateDir string // directory of the state files; empty: keep no state
	// Started is the start time of the agent: it sees the use of images from then on. Zero: no image
	// is removed because of its age.
	Started time.Time
	// Once declares that no later pass follows, as with the command. Then nothing is postponed,
	// neither for a slow runtime nor for young sandboxes.
	Once bool
}

// linksDir is the directory with a kubelet's symbolic links to container logs
// (pkg/kubelet/kuberuntime/kuberuntime_manager.go).
const linksDir = "/var/log/containers"

// Collector collects garbage on one node. One goroutine at a time may call Pass, Plan, Relieve and
// Close; any goroutine may call Hold and Release.
type Collector struct {
	barrier
	o           Options
	now         func() time.Time
	uptime      func() time.Duration // CLOCK_BOOTTIME
	findKubelet func() (bool, string)
	statfs      func(path string) (filesystem, error)
	wait        time.Duration // under disk pressure, for a sandbox to get its container
	slow        time.Duration // a runtime that needs longer for a list is slow
	limit       time.Duration // timeout of a call that changes something; 0: the default of cri.Client
	fs          *cgroup.FS
	remover     *podfiles.Remover
	store       *store

	records reclaim.Records
	quiet   quiet
	backoff backoff
	// images by what uses them: volumes of containers by ID, images of containers that name no listed
	// image by reference, images of sandboxes by ID; empty: none
	volumes                  answers[[]string]
	ownImages, sandboxImages answers[string]
	unlisted                 answers[struct{}] // sandboxes that the runtime cannot list; never answered
	// blockedSince is the uptime since which unknown images in use block removals; 0: they do not.
	blockedSince time.Duration
	listedImages []reclaim.Image   // the last list of images
	logs         map[string]string // log paths of containers, by ID; empty: no log
	// listed are the IDs of the sandboxes in the last list. The next list queries them by ID, in case
	// nothing else names them.
	listed         []string
	containerCount int      // length of the last list of containers
	configImages   []string // sandbox images of the runtime's configuration
	paces          paces
	// imageDir is a directory on the image file system, last reported by the runtime; empty: unknown.
	imageDir  string
	postponed map[Kind]postponed // for a slow runtime
	// pulling is the time from which image removals are postponed for young sandboxes; zero: they are
	// not.
	pulling time.Time
	// containers and sandboxes hold the first sightings of objects with a creation time that does
	// not prove their age.
	containers, sandboxes sightings
	warnings              []string // problems of the state files, for the next result
}

// New returns a Collector with the state that an earlier one left in StateDir. Problems of the
// state files are in the first result. Call Close at the end.
func New(o Options) (*Collector, error) {
	if o.Runtime == nil {
		return nil, errors.New("collect garbage: no container runtime")
	}
	c := &Collector{
		o: o, now: time.Now, uptime: bootid.Uptime, findKubelet: o.Kubelet,
		wait: pullWait, slow: slowList, volumes: answers[[]string]{}, ownImages: answers[string]{},
		sandboxImages: answers[string]{}, unlisted: answers[struct{}]{}, logs: map[string]string{}, paces: defaultPaces(),
		postponed: map[Kind]postponed{}, containers: sightings{}, sandboxes: sightings{},
	}
	if o.ProcMount == "" {
		c.o.ProcMount = "/proc"
	}
	if finder := new(kubeletdetect.Finder); c.findKubelet == nil {
		c.findKubelet = func() (bool, string) { return finder.Kubelet(c.o.ProcMount) }
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
		c.warnings = append(c.warnings, err.Error())
	}
	return c, nil
}

// Close releases all resources. The state was written after each pass.
func (c *Collector) Close() {
	if c.fs != nil {
		c.fs.Close()
	}
	c.store.close()
}

// Locked reports whether another process has locked StateDir. Then the Collector writes nothing
// there.
func (c *Collector) Locked() bool { return c.store.lockedByOther }

// Missing returns the state files that did not exist.
func (c *Collector) Missing() []string { return c.store.missing }

// Waiting returns the number of pods in the last look that are unnamed and have nothing alive, but
// for less than PodGoneAfter. first is the time when the first of them counts as gone.
func (c *Collector) Waiting() (pods int, first time.Time) { return c.quiet.waiting, c.quiet.next }

// PhaseOf returns the phase of a pod object, for Known. For a pod that the agent evicted, the caller
// uses the agent's record instead.
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
