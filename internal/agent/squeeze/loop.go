package squeeze

import (
	"errors"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/metrics"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	retryInterval = 10 * time.Second // after a reclaim that found nothing
	closeLimit    = time.Second      // for the kernel to finish a chunk when the agent stops
	maxFollowAge  = time.Minute      // after which a reclaim is unrelated to an eviction
)

// criticalScore is the oom_score_adj that a kubelet gives to the containers of critical pods
// (pkg/kubelet/qos/policy.go).
const criticalScore = -997

// Node provides the input of the decision to reclaim. The functions are called in the loop's
// goroutine.
type Node struct {
	// Need returns the node's need by the i-th signal of Signals.
	Need func(now time.Time, i int) reclaim.MemoryNeed
	// Available returns a signal's value in bytes, including memory on per-CPU lists: reclaimed memory
	// stays there for seconds, and the cheap look omits it above the threshold.
	Available func(signal stats.Signal) stats.Opt[uint64]
	// Swap returns the free swap, and how much of it must stay free, in bytes.
	Swap func() (free stats.Opt[uint64], keep uint64)
}

// Signals are the signals that memory is reclaimed for.
var Signals = [...]stats.Signal{stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable}

// Loop is the loop's side of proactive reclaim: it reclaims cold memory of pods before one of them
// must be evicted. The Worker has its own thread. The methods of a nil Loop do nothing.
type Loop struct {
	log      *logthrottle.Logger
	node     Node
	worker   *Worker // nil: the kernel has no memory.reclaim
	governor reclaim.MemoryGovernor

	counts metrics.Reclaim

	next  time.Time            // earliest start of the next reclaim
	after stats.Opt[uint64]    // the signal after the last reclaim
	last  reclaim.MemoryEffect // of the last reclaim that freed memory

	// start of the last reclaim; zero: none, or it requested nothing
	begun    time.Time
	effect   reclaim.MemoryEffect // its effect; nothing requested: unknown yet
	follower Follower             // the eviction that followed it; zero: none yet
}

// Follower is an eviction that followed a reclaim.
type Follower struct {
	ID     string // unique; empty: none
	Signal stats.Signal
}

// StartLoop starts the thread for the cgroups below a mount point. The returned function ends it.
func StartLoop(cgroupMount, cgroupRoot string, node Node, log *logthrottle.Logger) (l *Loop,
	stop func()) {
	fs, err := cgroup.Open(cgroupMount)
	if err != nil {
		//log: The agent cannot reclaim cold memory of pods. It evicts a pod without trying that first.
		//do: See the key error. Proactive reclaim needs Linux 5.19 and write access to the cgroups;
		//  otherwise disable it in the configuration.
		log.Warn("proactive reclaim unavailable", api.EventMemory.Attr(), "error", err)
		return nil, func() {}
	}
	s := Start(Options{FS: fs, CgroupRoot: cgroupRoot})
	return NewLoop(s, node, log), func() {
		if err := s.Close(closeLimit); err != nil {
			//log: A part of the agent did not end in time while the agent stopped, or could not release its
			//  resources. The agent exits nevertheless.
			//do: See the key error: usually a disk, swap device or network file system hangs.
			log.Warn("agent stop incomplete", "error", err)
		}
	}
}

// NewLoop creates a Loop with a Worker.
func NewLoop(s *Worker, node Node, log *logthrottle.Logger) *Loop {
	return &Loop{log: log, node: node, worker: s}
}

// Effects returns the effects of reclaims; nil, which never receives, without a Worker.
func (l *Loop) Effects() <-chan reclaim.MemoryEffect {
	if l == nil || l.worker == nil {
		return nil
	}
	return l.worker.Effects()
}

// Counts returns the byte counts of reclaims; nil for a nil Loop. It is safe for concurrent use.
func (l *Loop) Counts() *metrics.Reclaim {
	if l == nil {
		return nil
	}
	return &l.counts
}

// Stop stops a reclaim in favor of an eviction. It does not block.
func (l *Loop) Stop() {
	if l != nil && l.worker != nil {
		l.worker.Stop()
	}
}

// Tick begins a reclaim if a memory signal is near its threshold and time permits. self is the
// cgroup of this process.
func (l *Loop) Tick(now time.Time, pods read.Index, self string) {
	if l == nil || l.worker == nil || now.Before(l.next) {
		return
	}
	for i, signal := range Signals {
		need := l.node.Need(now, i)
		if _, ok := need.Wish(); !ok {
			continue
		}
		need.Available = l.node.Available(signal).V
		wish, ok := need.Wish()
		if !ok {
			continue
		}
		free, keep := l.node.Swap()
		kind, known := reclaim.MemoryKindFor(free, keep)
		if allowed, why := l.governor.Allows(now, kind); !known || !allowed {
			l.next = now.Add(retryInterval)
			//log: Proactive reclaim would help but is not allowed now. The key reason gives the cause.
			l.log.Debug("proactive reclaim skipped", api.EventMemory.Attr(), "kind", kind, "reason", why)
			continue
		}
		wish.Kind, wish.Rate = kind, l.governor.Rate(kind)
		l.next = now.Add(retryInterval) // unless the reclaim does something
		if l.begin(Request{
			MemoryTarget: wish, Signal: signal, Before: stats.Some(need.Available), Fill: need.Fill,
			SwapFree: free, SwapKeep: keep, Exempt: exempt(pods), Self: self,
		}) {
			return
		}
	}
}

// begin begins a reclaim. It returns false if the previous one is not finished.
func (l *Loop) begin(r Request) bool {
	began := time.Now()
	if !l.worker.Try(r) {
		return false
	}
	l.begun, l.effect, l.follower = began, reclaim.MemoryEffect{}, Follower{}
	return true
}

// exempt returns the pods that are never reclaimed from: those that the kubelet marks as critical.
func exempt(pods read.Index) map[string]bool {
	out := map[string]bool{}
	for uid, p := range pods {
		for i := range p.Containers {
			if adj := p.Containers[i].OOMScoreAdj; adj != nil && *adj == criticalScore {
				out[uid] = true
			}
		}
	}
	return out
}

// OnEffect processes an effect of the Worker. available measures the signal again; it is called
// only if needed. The returned effect belongs into the record of the returned follower, if there is
// one.
func (l *Loop) OnEffect(
	now time.Time, e reclaim.MemoryEffect, available func(stats.Signal) stats.Opt[uint64],
	named func(id string) []any,
) (Follower, *reclaim.MemoryEffect) {
	follower, effect := l.update(&e)
	if !e.Final {
		l.after = available(e.Signal)
		if e.After = l.after; !e.Stopped {
			l.last = e
		}
		return follower, effect
	}
	if errors.Is(e.Err, ErrNoReclaim) {
		l.worker = nil // its thread waits until the agent ends
		l.log.Warn("proactive reclaim unavailable", api.EventMemory.Attr(), "error", e.Err)
		return follower, effect
	}
	if e.Asked == 0 {
		l.log.Repeat("squeeze: "+e.Why, func() {
			//log: A reclaim found no pod to reclaim from. The key reason gives the cause.
			l.log.Debug("no memory to reclaim", "kind", e.Kind, "reason", e.Why, "error", e.Err)
		})
		return follower, effect
	}
	e.After, l.after, l.next = l.after, stats.Opt[uint64]{}, time.Time{}
	l.report(now, &e, named)
	return follower, effect
}

// report logs the effect of a reclaim, and whether its kind was effective.
func (l *Loop) report(now time.Time, e *reclaim.MemoryEffect, named func(id string) []any) {
	l.counts.Asked.Add(e.Asked)
	l.counts.Freed.Add(e.Freed.V)
	l.counts.Refaulted.Add(e.Refaulted.V)
	gain, _ := e.Gain()
	v := l.governor.Judge(now, e)
	if !e.Stopped { // otherwise the freed memory includes the victim's
		l.last = *e
	}
	fields := []any{"signal", e.Signal, "kind", e.Kind.String(), "observed", e.Before.V, "after",
		e.After.V, "requested", e.Asked,
		"gain", gain, "freed", e.Freed.V, "refaulted", e.Refaulted.V, "took", e.Took, "pods", len(e.Pods),
		"stopped", e.Stopped,
		"effective", v.Worthwhile, "reason", v.Why}
	if l.follower.ID != "" { // the eviction's own line may be older than this effect
		fields = append(fields, named(l.follower.ID)...)
	}
	//log: The agent reclaimed cold memory of pods because memory.available was near a threshold. The
	//  keys give the bytes requested from the kernel, freed, and read in again (refaulted).
	l.log.Info("reclaimed memory", append(fields, api.EventMemory.Attr())...)
	if !v.Off.IsZero() {
		//log: Reclaiming this kind of memory freed less than it cost. The agent pauses it for the time in
		//  the key for.
		l.log.Info("proactive reclaim paused", api.EventMemory.Attr(), "kind",
			e.Kind.String(),
			"for", v.Off.Sub(now), "reason", v.Why)
	}
}

// Reclaimed returns the bytes lately freed for a signal, for the record of an eviction that
// followed nevertheless; nil if none.
func (l *Loop) Reclaimed(now time.Time, signal stats.Signal) *uint64 {
	if l == nil {
		return nil
	}
	gain, ok := l.last.Gain()
	if !ok || gain <= 0 || l.last.Signal != signal || now.Sub(l.last.Began) > maxFollowAge {
		return nil
	}
	bytes := uint64(gain)
	return &bytes
}

// AssignFollower determines, after a kill, which reclaim an eviction followed: the last one, if it
// was for the same signal or was stopped by a crossing. If follows is true and effect nil, the
// effect is unknown yet, and OnEffect returns it later.
func (l *Loop) AssignFollower(began time.Time, f Follower) (effect *reclaim.MemoryEffect,
	follows bool) {
	if l == nil || l.begun.IsZero() || began.Sub(l.begun) > maxFollowAge || l.follower.ID != "" &&
		l.follower.ID != f.ID {
		return nil, false
	}
	l.follower = f
	if l.effect.Asked == 0 {
		return nil, true
	}
	effect = l.effectForFollower()
	return effect, effect != nil
}

// update stores the effect of a reclaim as known so far.
func (l *Loop) update(e *reclaim.MemoryEffect) (Follower, *reclaim.MemoryEffect) {
	if l.begun.IsZero() || e.Began.Before(l.begun) {
		return Follower{}, nil
	}
	if e.Asked == 0 {
		l.begun, l.follower = time.Time{}, Follower{}
		return Follower{}, nil
	}
	l.effect = *e
	if l.follower.ID == "" {
		return Follower{}, nil
	}
	effect := l.effectForFollower()
	return l.follower, effect
}

// effectForFollower returns the effect of the last reclaim for its follower; nil if they are unrelated.
func (l *Loop) effectForFollower() *reclaim.MemoryEffect {
	if !l.effect.Stopped && l.effect.Signal != l.follower.Signal {
		l.follower = Follower{}
		return nil
	}
	effect := l.effect
	return &effect
}
