// Package evictions carries out the decisions of package eviction: it pins the victim, kills it or
// has the runtime stop it, frees its leftovers, and reports the outcome. The phases of an eviction
// and their time limits are defined in eviction/life.go.
//
//	evictions.go  Evictions: the loop's state of each eviction
//	begin.go      from the decision to the kill
//	dryrun.go     what a dry run logs and records instead
//	preempt.go    pods stopped for a critical pod
//	carry.go      carrier: the rest, on a separate goroutine
//	leftovers.go  memory and files that a dead pod leaves
//	event.go      reports of the goroutines, and outcomes
//	logfields.go  fields and lines of the log
//	record.go     records, and the state that a restart must not lose
//	restarted.go  pods that come back after their eviction
//	count.go      metrics
//	resume.go     evictions of the previous process
//
// Pinning opens the victim's cgroup and checks that it is the measured one: later kills act on that
// cgroup, not on a new one with the same path. Then the signal of a hard threshold, except for a
// disk, is measured again, and the eviction is cancelled if the signal has recovered. The hold-off
// of the UID starts right before the kill, so that the pod does not come back meanwhile. Until the
// kill the agent formats no text, and neither logs nor allocates: memory may be exhausted.
package evictions

import (
	"sync"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/squeeze"
	"jettison/internal/agent/thresholdadvice"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/kill"
	"jettison/internal/node/metrics"
	"jettison/internal/node/podfiles"
	"jettison/internal/node/records"
	"jettison/stats"
	"jettison/stats/read"
)

// historySize limits the number of evictions in the history.
const historySize = 32

// Pods is the runtime's list of pods (*lister.Pods).
type Pods interface {
	All() read.Index
	Ask()                           // requests a new list soon
	Name(stats.PodReference) string // display name
}

// Gate refuses evicted pods during their hold-off (*gate.Gate).
type Gate interface {
	Enforces() bool // the runtime asks the gate
	StartHoldOff(now time.Time, uid string)
	Evicted(now time.Time, uid string, signal stats.Signal, message string)
	Until(uid string) time.Time
}

// Options configures New.
type Options struct {
	Manager *eviction.Manager
	Client  *cri.Client
	Pin     func(*stats.PodStats) (*kill.Victim, error)
	Host    *read.HostRoot // nil: leftovers are kept
	Remover podfiles.Remover
	Pods    Pods
	Gate    Gate
	Squeeze *squeeze.Loop   // may be nil
	Keeper  *records.Keeper // may be nil
	Advice  *thresholdadvice.Headroom
	Log     *logthrottle.Logger
	DryRun  bool

	// Blame adds the details of a pod's memory usage as far as known; may be nil.
	Blame   func(*stats.PodStats)
	Kubelet func() bool // reports whether a kubelet is known to manage files and volumes
	// KubeletNow checks for a kubelet now. It is safe for concurrent use. nil: never a kubelet.
	KubeletNow func() bool
	StillMet   func(eviction.Threshold) bool // measures the threshold's signal now
	NotKilled  func(uid, why string)         // called for a victim that does not die
	OnCleaned  func(life *eviction.Life)     // called after the runtime cleaned up after a victim
}

// Evictions holds the evictions in progress. It belongs to the loop.
type Evictions struct {
	o          Options
	carrier    carrier
	inProgress map[*eviction.Life]*progress // unfinished evictions
	history    []api.Evicted                // the last ones, oldest first
	lastKill   time.Time
	counts     *metrics.Evictions
	missed     bool // the victim was gone before it could be pinned
	// afterReclaim is the eviction that followed the last proactive reclaim. The effect of the
	// reclaim is known only seconds later, when the eviction may be finished.
	afterReclaim *progress

	// dryRuns holds, by pod and signal, the evictions that a dry run would have made
	dryRuns map[string]*dryRun
	// watched holds evicted pods that may come back, by UID, with their last records
	watched map[string]*api.Record

	events   chan Event
	carriers sync.WaitGroup // of carrier.carryOut only
}

// progress is the loop's state of one eviction, in addition to its eviction.Life.
type progress struct {
	*job
	life    *eviction.Life
	reason  string      // why this pod was chosen
	ranking []row       // a copy: the decision's points into a Summary that is overwritten
	counts  [2]int      // candidates and protected pods
	record  *api.Record // as last stored; nil: none
	// reclaim is the preceding proactive reclaim; nil: none, or its effect is unknown yet. Immutable.
	reclaim  *api.ProactiveReclaim
	aliveErr error // why the victim is not known to be dead
}

// New creates an Evictions without evictions.
func New(o Options) *Evictions {
	v := &Evictions{o: o, inProgress: map[*eviction.Life]*progress{},
		dryRuns: map[string]*dryRun{},
		watched: map[string]*api.Record{},
		events:  make(chan Event, 64)}
	v.counts = &metrics.Evictions{ToKill: metrics.NewHistogram(metrics.Kills...),
		ToRecovery: metrics.NewHistogram(metrics.Kills...)}
	v.carrier = carrier{client: o.Client, host: o.Host, remove: o.Remover, log: o.Log.Logger,
		events: v.events, kubeletNow: o.KubeletNow,
		begun: new(atomic.Int64)}
	return v
}

// Events returns the reports of the evictions' goroutines.
func (v *Evictions) Events() <-chan Event { return v.events }

// Counts returns the metrics of evictions since the start. It is safe for concurrent use.
func (v *Evictions) Counts() *metrics.Evictions { return v.counts }

// Missed reports whether a victim of the last decision was gone before it could be pinned.
func (v *Evictions) Missed() bool { return v.missed }

// History returns the last evictions with a known outcome, oldest first. The caller must not change
// the slice.
func (v *Evictions) History() []api.Evicted { return v.history }

// Wait waits for the goroutines, which end within cleanGrace after their context.
func (v *Evictions) Wait() { v.carriers.Wait() }
