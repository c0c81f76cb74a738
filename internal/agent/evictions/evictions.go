// Package evictions carries out what package eviction decides: it pins the victim, kills it or has
// it stopped, gives back what it leaves, and tells what became of it. When an eviction is where,
// and how long each phase may take, is eviction's (eviction/life.go).
//
//	evictions.go  Evictions: what the loop keeps of each
//	begin.go      from the decision to the kill
//	preempt.go    pods that go for a critical one
//	carry.go      carrier: the rest, on a goroutine of its own
//	leftovers.go  what a dead pod leaves in memory and on disk
//	event.go      what the goroutines report, and what came of it
//	words.go      lines of the log
//	record.go     records, and what a restart must not lose
//	restarted.go  pods that come back after their eviction
//	count.go      what metrics say of them
//	resume.go     going on after a restart
//
// Pinning opens the victim's cgroup and checks that it is the one that was measured: what is killed
// from then on is that cgroup, not whatever has its path. Then a hard threshold of what processes
// take is measured again, and the eviction abandoned if enough is available. The UID is held off
// right before the kill, so that the pod does not come back meanwhile. Until the kill no words are
// made, and nothing is logged or allocated: there may be no memory to be had.
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

// historySize bounds the evictions that are remembered.
const historySize = 32

// Pods are the runtime's (*lister.Pods).
type Pods interface {
	All() read.Index
	Ask()                           // for a list, soon
	Name(stats.PodReference) string // for people
}

// Gate keeps evicted pods out (*gate.Gate).
type Gate interface {
	Keeps() bool // the runtime asks it
	AtOnce(now time.Time, uid string)
	Evicted(now time.Time, uid string, signal stats.Signal, message string)
	Until(uid string) time.Time
}

// Options of New.
type Options struct {
	Manager *eviction.Manager
	Client  *cri.Client
	Pin     func(*stats.PodStats) (*kill.Victim, error)
	Host    *read.HostRoot // nil: what a victim leaves stays
	Remover podfiles.Remover
	Pods    Pods
	Gate    Gate
	Squeeze *squeeze.Loop   // may be nil
	Keeper  *records.Keeper // may be nil
	Advice  *thresholdadvice.Headroom
	Log     *logthrottle.Logger
	DryRun  bool

	// who in a pod uses its memory is filled in, as far as that is known; may be nil
	Blame   func(*stats.PodStats)
	Kubelet func() bool // one takes care of files and volumes, as far as is known
	// likewise, by a search made now; for any goroutine. nil: none is looked for
	Look      func() bool
	StillMet  func(eviction.Threshold) bool // by a measurement made now
	NotKilled func(uid, why string)         // a victim does not die
	OnCleaned func(life *eviction.Life)     // the runtime has cleaned up after one
}

// Evictions are those under way. It belongs to the loop.
type Evictions struct {
	o        Options
	carrier  carrier
	underway map[*eviction.Life]*underway // until nothing more is to come
	history  []api.Evicted                // the last ones, oldest first
	lastKill time.Time
	counts   *metrics.Evictions
	missed   bool // the victim was gone before it could be pinned
	// that followed the last reclaim of memory: what that got is known seconds later, when this may be
	// over
	squeezed *underway

	// of a dry run: which pods it would have evicted for what, and when it said so last
	would map[string]time.Time
	// pods that were evicted and may come back, by UID, with their last records
	returns map[string]*api.Record

	events chan Event
	beside sync.WaitGroup // of carrier.carryOut, and of nothing else
}

// underway is what the loop keeps of one eviction, beside its life.
type underway struct {
	*job
	life    *eviction.Life
	reason  string      // why this pod
	ranking []row       // the decision's, which points into a Summary that is written again
	counts  [2]int      // candidates, and protected pods
	record  *api.Record // as last kept; nil: none is
	// that came before it; nil: none, or its effect is not known yet. Never written again
	squeeze *api.Squeeze
	alive   error // why it is not known to be dead
}

// New makes an Evictions without any.
func New(o Options) *Evictions {
	v := &Evictions{o: o, underway: map[*eviction.Life]*underway{}, would: map[string]time.Time{},
		returns: map[string]*api.Record{},
		events:  make(chan Event, 64)}
	v.counts = &metrics.Evictions{ToKill: metrics.NewHistogram(metrics.Kills...),
		ToRecovery: metrics.NewHistogram(metrics.Kills...)}
	v.carrier = carrier{client: o.Client, host: o.Host, remove: o.Remover, log: o.Log.Logger,
		events: v.events, kubelet: o.Look,
		begun: new(atomic.Int64)}
	return v
}

// Events are what the goroutines of evictions report.
func (v *Evictions) Events() <-chan Event { return v.events }

// Counts are what became of evictions since the start. They are for any goroutine.
func (v *Evictions) Counts() *metrics.Evictions { return v.counts }

// Missed reports that a victim of the last decision was gone before it could be pinned.
func (v *Evictions) Missed() bool { return v.missed }

// History are the last evictions whose effect is known, oldest first. The slice must not be
// changed.
func (v *Evictions) History() []api.Evicted { return v.history }

// Wait waits for the goroutines, which have cleanGrace to end once their context is over.
func (v *Evictions) Wait() { v.beside.Wait() }
