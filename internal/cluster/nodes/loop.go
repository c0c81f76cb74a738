package nodes

import (
	"cmp"
	"context"
	"sync"
	"time"

	"jettison/cluster"
	"jettison/cluster/fence"
	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/config"
	"jettison/internal/cluster/mirror"
)

// Intervals of the loop.
const (
	// The interval between two steps is at least minStepGap and at least stepCostFactor times the
	// duration of the last one, so that changes and deadlines are batched. A step with 5,000 nodes
	// takes some milliseconds, and each of many nodes that wait for a token requests a step.
	minStepGap     = 20 * time.Millisecond
	stepCostFactor = 4
	// maxSleep bounds the sleep of the loop, which must show that it is alive.
	maxSleep = 20 * time.Second
	// rivalCheckPeriod is the longest interval between checks for another controller.
	rivalCheckPeriod = 10 * time.Second
)

// workers is the number of concurrent tasks.
const workers = maxNodeWrites + maxChecks + maxPodWrites + maxReads

// clock is the time of the loops. It starts at the API server's clock and advances with the monotonic
// clock: no clock that is set later changes a period that has begun.
type clock struct {
	server  time.Time // at the start
	machine time.Time // at the start, with a reading of the monotonic clock
}

func (c clock) now() time.Time { return c.fromMachine(time.Now()) }

// fromMachine converts a time of this machine. It keeps the zero time, which means none.
func (c clock) fromMachine(machine time.Time) time.Time {
	if machine.IsZero() {
		return machine
	}
	return c.server.Add(machine.Sub(c.machine))
}

// loop owns the state of one term of leadership.
type loop struct {
	ctrl        *controller
	started     time.Time // of this machine
	clock       clock
	nodes       *lifecycle.Core
	pods        *taint.Core
	fence       *fence.Core // nil: no check is configured
	queue       *queue
	state       runState
	schedule    schedule
	queries     chan func(*loop)
	lastActions *lifecycle.Actions // of the last step; nil: no step yet
}

// runState holds the state about rivals and logged conditions.
type runState struct {
	heldReason string // why this replica does not act; empty: it acts
	acting     bool   // this replica has acted in this term: from then on rivals are only logged
	logged     map[string]string
}

// schedule determines the time of the next step.
type schedule struct {
	due      time.Time // requested by the cores; zero: never
	changed  bool      // the cluster changed
	lastStep time.Time // start of the last step
	cost     time.Duration
}

// next returns the time of the next step; ok is false if none is scheduled.
func (t *schedule) next() (at time.Time, ok bool) {
	earliest := t.lastStep.Add(max(minStepGap, stepCostFactor*t.cost))
	if t.changed || t.due.Before(earliest) {
		return earliest, t.changed || !t.due.IsZero()
	}
	return t.due, true
}

// newLoop returns a loop.
func newLoop(p *controller) *loop {
	c := p.deps.Config
	settings, now := c.Lifecycle(), time.Now()
	settings.DelayFirstToken = true
	l := &loop{
		ctrl: p, started: now, nodes: lifecycle.New(settings), pods: p.pods, queries: p.queries,
		clock: cmp.Or(p.clock, clock{p.serverClock.At(now), now}),
		state: runState{logged: map[string]string{}}, schedule: schedule{changed: true},
	}
	if f, ok := c.Fence(); ok && c.Mode != config.Observe {
		l.fence = fence.New(f)
	}
	l.queue = newQueue(l)
	return l
}

// run decides and hands writes to workers until its context ends. When it returns, no write is in
// flight.
func (l *loop) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	tasks, results := make(chan task), make(chan func(), workers)
	var pool sync.WaitGroup
	for range workers {
		pool.Go(func() {
			for t := range tasks {
				results <- t(ctx)
			}
		})
	}
	defer pool.Wait()
	defer close(tasks)
	defer cancel()
	l.ctrl.markLoop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for t := l.queue.next(); t != nil; t = l.queue.next() {
			tasks <- t // does not block: the queue returns a task only for an idle worker
		}
		l.countQueues()
		wait := maxSleep
		if at, ok := l.schedule.next(); ok {
			wait = min(wait, max(0, at.Sub(l.clock.now())))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-l.ctrl.deps.Mirror.Changed():
			l.schedule.changed = true
		case done := <-results:
			l.queue.idle++
			done()
		case query := <-l.queries:
			query(l)
		case <-timer.C:
			if at, ok := l.schedule.next(); !ok || at.After(l.clock.now()) {
				break
			}
			if l.ctrl.deps.Mirror.Unsynced() == "" {
				l.step()
			} else {
				l.schedule = schedule{} // the end of the initial sync counts as a change
			}
		}
		l.ctrl.markLoop()
	}
}

// step decides on the current state of the mirror and queues the writes.
func (l *loop) step() {
	began := time.Now()
	if p := l.ctrl; p.clock.machine.IsZero() { // responses have arrived since newLoop
		p.clock = clock{p.serverClock.At(began), began}
		l.clock = p.clock
	}
	now := l.clock.now()
	l.schedule = schedule{lastStep: now}
	read := l.clock.fromMachine(l.ctrl.deps.Mirror.NodesCurrentAt())
	l.ctrl.deps.Mirror.View(func(v *mirror.View) {
		if l.awaitRival(now, v) {
			return
		}
		l.decide(now, l.lifecycleInput(v, read), v)
	})
	l.schedule.cost = time.Since(began)
	l.ctrl.metrics.held.Set(boolValue(l.state.heldReason != ""))
	l.ctrl.metrics.steps.Observe(l.schedule.cost.Seconds())
}

// lifecycleInput returns the input of the lifecycle core. read is a time of the loop.
func (l *loop) lifecycleInput(v *mirror.View, read time.Time) lifecycle.Seen {
	now := time.Now()
	return lifecycle.Seen{
		Nodes: v.Nodes, Leases: v.Leases, Pods: v.PodsOf, Read: read,
		WatchedSince: l.clock.fromMachine(l.ctrl.deps.Mirror.WatchedSince()),
		Arrivals: func(node string) (beat, lease time.Time) {
			beat, lease = v.Arrivals(node)
			return l.clock.fromMachine(beat), l.clock.fromMachine(lease)
		},
		ClockSkew: l.ctrl.serverClock.At(now).Sub(l.clock.fromMachine(now)),
	}
}

// decide runs the cores.
func (l *loop) decide(now time.Time, seen lifecycle.Seen, v *mirror.View) {
	l.lastActions = l.nodes.Step(now, seen)
	cluster.Earliest(&l.schedule.due, l.lastActions.Next)
	if l.lastActions.StaleRead {
		l.ctrl.deps.Mirror.RequestProbe()
	}
	l.logDoubt()
	l.updateMetrics(now, seen)
	l.ctrl.metrics.pods.Set(float64(v.PodCount()))
	var fenced *fence.Actions
	if l.fence != nil {
		fenced = l.fence.Step(now, fence.Seen{Nodes: v.Nodes, Leases: v.Leases, Zone: lifecycle.ZoneOf,
			Suspended: func(zone string) bool {
				return l.lastActions.Doubt != "" || l.lastActions.NoneReady[zone]
			}, ClockSkew: seen.ClockSkew})
		cluster.Earliest(&l.schedule.due, fenced.Next)
	}
	podsSeen := taint.Seen{Nodes: v.Nodes, Pods: v.PodsOf, Zone: lifecycle.ZoneOf,
		WatchedSince: seen.WatchedSince, ClockSkew: seen.ClockSkew}
	switch l.ctrl.deps.Config.Mode {
	case config.Fence: // kube-controller-manager does the rest
		l.queue.addNodes(v, &lifecycle.Actions{}, &taint.Actions{}, fenced)
		return
	case config.Observe:
		evictions := l.pods.Step(now, podsSeen)
		cluster.Earliest(&l.schedule.due, evictions.Next)
		l.logPlanned(now, l.lastActions, evictions)
		l.queue.addPods(&lifecycle.Actions{}, &taint.Actions{Reads: evictions.Reads})
		return
	}
	evictions := l.pods.Step(now, podsSeen)
	cluster.Earliest(&l.schedule.due, evictions.Next)
	l.queue.addNodes(v, l.lastActions, evictions, fenced)
	l.queue.addPods(l.lastActions, evictions)
	l.ctrl.events.record(nodeComponent, l.queue.heldEvents.hold(l.lastActions))
	l.ctrl.events.record(taintComponent, evictions.Events)
}

// logDoubt logs the start and the end of doubt.
func (l *loop) logDoubt() {
	switch previous := l.state.logged["doubt"]; {
	case l.lastActions.Doubt == previous:
	case l.lastActions.Doubt == "":
		delete(l.state.logged, "doubt")
		//log: Nodes get NoExecute taints again, at the configured rates, and the pods of silent nodes
		//  are marked not ready.
		l.ctrl.deps.Log.Info("node silence no longer in doubt")
	default:
		l.state.logged["doubt"] = l.lastActions.Doubt
		//log: Silent nodes may be healthy and out of contact, so no node gets a NoExecute taint and no
		//  pod of a silent node is marked not ready.
		//do: Check the connection to the API server and the health of the zones in reason.
		l.ctrl.deps.Log.Warn("node silence in doubt, tainting suspended", "reason", l.lastActions.Doubt)
	}
}

// awaitRival reports whether this replica must wait because another controller writes the same
// taints.
func (l *loop) awaitRival(now time.Time, v *mirror.View) bool {
	quiet := l.ctrl.deps.Config.ReplaceQuiet
	if l.ctrl.deps.Config.Mode != config.Replace {
		return false
	}
	reason, last := "", time.Time{}
	for name := range v.Nodes {
		if manager, at := v.Rival(name); at.After(last) && time.Since(at) < quiet {
			reason, last = manager+" wrote taints of node "+name, at
		}
	}
	previous := l.state.heldReason
	switch {
	case reason == "":
		l.state.heldReason, l.state.acting = "", true
		if previous != "" {
			//log: No other controller wrote node taints within --replace-quiet. This replica acts
			//  now.
			l.ctrl.deps.Log.Info("no other taint controller active, starting writes")
		}
		return false
	case l.state.acting:
		if at := last.Format(time.RFC3339); at != l.state.logged["rival"] && last.After(l.started) {
			l.state.logged["rival"] = at
			//log: Another controller wrote node taints while this replica acts. The two may undo
			//  each other's writes.
			//do: Disable one of them. kube-controller-manager needs
			//  --controllers=*,-node-lifecycle-controller,-taint-eviction-controller.
			l.ctrl.deps.Log.Warn("another controller writes node taints",
				"reason", reason, "since", at)
		}
		return false
	}
	if l.state.heldReason = reason; previous == "" {
		//log: Another controller wrote node taints within --replace-quiet. This replica writes
		//  nothing until that time has passed without such a write.
		//do: Disable the other controller, or run --mode observe or fence.
		l.ctrl.deps.Log.Warn("another taint controller active, waiting", "reason", reason,
			"since", last.Format(time.RFC3339))
	}
	l.schedule.due = now.Add(min(rivalCheckPeriod, max(time.Second, time.Until(last.Add(quiet)))))
	return true
}
