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
	again      = 10 * time.Second // after one that found nothing to ask for
	closeLimit = time.Second      // for the kernel to finish a chunk when the agent ends
	old        = time.Minute      // after which a squeeze has nothing to do with an eviction any more
)

// criticalScore is the oom_score_adj that a kubelet gives to the containers of critical pods
// (pkg/kubelet/qos/policy.go).
const criticalScore = -997

// Node is what a squeeze is decided by. The functions are called in the loop's goroutine.
type Node struct {
	// Need is how the node stands by the i-th signal of Signals.
	Need func(now time.Time, i int) reclaim.MemoryNeed
	// Available is what there is of a signal in bytes, memory on per-CPU lists included: what is
	// reclaimed lies there for seconds, and the cheap look leaves it out above the threshold.
	Available func(signal stats.Signal) stats.Opt[uint64]
	// Swap is what is free of it, and how much of that has to stay free. In bytes.
	Swap func() (free stats.Opt[uint64], keep uint64)
}

// Signals are those that memory is reclaimed for.
var Signals = [...]stats.Signal{stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable}

// Loop is the loop's part: memory that pods give back before one of them has to go. The Squeezer
// has a thread of its own. The methods of a nil Loop do nothing.
type Loop struct {
	log      *logthrottle.Logger
	node     Node
	squeezer *Squeezer // nil: the kernel has no memory.reclaim
	governor reclaim.MemoryGovernor

	counts metrics.Reclaim

	next  time.Time            // not before
	after stats.Opt[uint64]    // the signal after the last squeeze
	last  reclaim.MemoryEffect // of which memory came back

	// when the last one was begun; zero: none was, or it asked for nothing
	tried    time.Time
	effect   reclaim.MemoryEffect // of that; nothing asked: not known yet
	follower Follower             // the eviction that followed it; zero: none has yet
}

// Follower is an eviction that may have come in spite of a squeeze.
type Follower struct {
	ID     string // tells it from any other; empty: none
	Signal stats.Signal
}

// StartLoop starts the thread on cgroups below a mount point. The returned function ends it.
func StartLoop(cgroupMount, cgroupRoot string, node Node, log *logthrottle.Logger) (l *Loop,
	stop func()) {
	fs, err := cgroup.Open(cgroupMount)
	if err != nil {
		log.Warn("memory is not reclaimed", api.EventMemory.Attr(), "error", err)
		return nil, func() {}
	}
	s := Start(Options{FS: fs, CgroupRoot: cgroupRoot})
	return NewLoop(s, node, log), func() {
		if err := s.Close(closeLimit); err != nil {
			log.Warn("stopping", "error", err)
		}
	}
}

// NewLoop makes a Loop of a Squeezer.
func NewLoop(s *Squeezer, node Node, log *logthrottle.Logger) *Loop {
	return &Loop{log: log, node: node, squeezer: s}
}

// Effects are what became of squeezes; nil, which never has anything, without a Squeezer.
func (l *Loop) Effects() <-chan reclaim.MemoryEffect {
	if l == nil || l.squeezer == nil {
		return nil
	}
	return l.squeezer.Effects()
}

// Counts are the bytes that squeezes were about. They are for any goroutine; nil: there are no
// squeezes.
func (l *Loop) Counts() *metrics.Reclaim {
	if l == nil {
		return nil
	}
	return &l.counts
}

// Stop makes way for an eviction. It takes no time.
func (l *Loop) Stop() {
	if l != nil && l.squeezer != nil {
		l.squeezer.Stop()
	}
}

// Tick begins a squeeze where a signal of memory is near its threshold and there is time. self is
// the cgroup of this process.
func (l *Loop) Tick(now time.Time, pods read.Index, self string) {
	if l == nil || l.squeezer == nil || now.Before(l.next) {
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
			l.next = now.Add(again)
			l.log.Debug("memory is not reclaimed", api.EventMemory.Attr(), "kind", kind, "reason", why)
			continue
		}
		wish.Kind, wish.Rate = kind, l.governor.Rate(kind)
		l.next = now.Add(again) // unless it does something
		if l.try(Request{
			MemoryWish: wish, Signal: signal, Before: stats.Some(need.Available), Fill: need.Fill,
			SwapFree: free, SwapKeep: keep, Exempt: exempt(pods), Self: self,
		}) {
			return
		}
	}
}

// try begins one. false: the one before is not over.
func (l *Loop) try(r Request) bool {
	began := time.Now()
	if !l.squeezer.Try(r) {
		return false
	}
	l.tried, l.effect, l.follower = began, reclaim.MemoryEffect{}, Follower{}
	return true
}

// exempt are the pods that are not asked: those that the kubelet marks as critical.
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

// OnEffect takes the word of the squeezer. available is the signal's after it, observed anew: it is
// asked for where it counts. The effect belongs into the record of follower, where there is one.
func (l *Loop) OnEffect(
	now time.Time, e reclaim.MemoryEffect, available func(stats.Signal) stats.Opt[uint64],
	named func(id string) []any,
) (Follower, *reclaim.MemoryEffect) {
	follower, effect := l.known(&e)
	if !e.Final {
		l.after = available(e.Signal)
		if e.After = l.after; !e.Stopped {
			l.last = e
		}
		return follower, effect
	}
	if errors.Is(e.Err, ErrNoReclaim) {
		l.squeezer = nil // its thread waits until the end
		l.log.Warn("memory is not reclaimed", api.EventMemory.Attr(), "error", e.Err)
		return follower, effect
	}
	if e.Asked == 0 {
		l.log.Repeat("squeeze: "+e.Why, func() {
			l.log.Debug("no memory to reclaim", "kind", e.Kind, "reason", e.Why, "error", e.Err)
		})
		return follower, effect
	}
	e.After, l.after, l.next = l.after, stats.Opt[uint64]{}, time.Time{}
	l.report(now, &e, named)
	return follower, effect
}

// report logs what a squeeze came to, and whether its kind pays.
func (l *Loop) report(now time.Time, e *reclaim.MemoryEffect, named func(id string) []any) {
	l.counts.Asked.Add(e.Asked)
	l.counts.Freed.Add(e.Freed.V)
	l.counts.Refaulted.Add(e.Refaulted.V)
	gain, _ := e.Gain()
	v := l.governor.Judge(now, e)
	if !e.Stopped { // else what came back is the victim's, too
		l.last = *e
	}
	fields := []any{"signal", e.Signal, "kind", e.Kind.String(), "observed", e.Before.V, "after",
		e.After.V, "asked", e.Asked,
		"gain", gain, "freed", e.Freed.V, "refaulted", e.Refaulted.V, "took", e.Took, "pods", len(e.Pods),
		"stopped", e.Stopped,
		"pays", v.Pays, "reason", v.Why}
	if l.follower.ID != "" { // its own line may have been written before this was known
		fields = append(fields, named(l.follower.ID)...)
	}
	l.log.Info("reclaimed memory", append(fields, api.EventMemory.Attr())...)
	if !v.Off.IsZero() {
		l.log.Info("memory reclaim is off: it does not pay", api.EventMemory.Attr(), "kind",
			e.Kind.String(),
			"for", v.Off.Sub(now), "reason", v.Why)
	}
}

// Reclaimed is how many bytes were lately given back of a signal, for the record of an eviction
// that came all the same; nil: none.
func (l *Loop) Reclaimed(now time.Time, signal stats.Signal) *uint64 {
	if l == nil {
		return nil
	}
	gain, ok := l.last.Gain()
	if !ok || gain <= 0 || l.last.Signal != signal || now.Sub(l.last.Began) > old {
		return nil
	}
	bytes := uint64(gain)
	return &bytes
}

// Followed finds out, after a kill, which squeeze an eviction follows: the last one, if it was for
// the same signal, or if a crossing has stopped it. follows with a nil effect: what it got is not
// known yet, and OnEffect tells it.
func (l *Loop) Followed(began time.Time, f Follower) (effect *reclaim.MemoryEffect, follows bool) {
	if l == nil || l.tried.IsZero() || began.Sub(l.tried) > old || l.follower.ID != "" &&
		l.follower.ID != f.ID {
		return nil, false
	}
	l.follower = f
	if l.effect.Asked == 0 {
		return nil, true
	}
	effect = l.tell()
	return effect, effect != nil
}

// known takes what is known of a squeeze by now.
func (l *Loop) known(e *reclaim.MemoryEffect) (Follower, *reclaim.MemoryEffect) {
	if l.tried.IsZero() || e.Began.Before(l.tried) {
		return Follower{}, nil
	}
	if e.Asked == 0 {
		l.tried, l.follower = time.Time{}, Follower{}
		return Follower{}, nil
	}
	l.effect = *e
	if l.follower.ID == "" {
		return Follower{}, nil
	}
	told := l.tell()
	return l.follower, told
}

// tell is the effect of the last squeeze, for its follower. nil: they have nothing to do with each
// other.
func (l *Loop) tell() *reclaim.MemoryEffect {
	if !l.effect.Stopped && l.effect.Signal != l.follower.Signal {
		l.follower = Follower{}
		return nil
	}
	told := l.effect
	return &told
}
