package nodes

import (
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

// Times of the loop.
const (
	// Changes that come together are decided on together, and so are deadlines: a step is so long
	// after the one before at least, and at least so many times as long as that took. A step at 5,000
	// nodes takes some milliseconds, and while many wait for a token one is due for each.
	leastGap = 20 * time.Millisecond
	gapCosts = 4
	// longestWait is how long it sleeps at most, so that it can be seen that it lives.
	longestWait = 20 * time.Second
	// rivalLook is how often it is looked whether another controller writes taints still.
	rivalLook = 10 * time.Second
)

// workers write at the same time.
const workers = 32

// clock is the time of one term of leading: it goes on as the machine's does, whatever the wall's
// clock is set to meanwhile. A clock that is set forward would else have pods go before their time.
type clock struct{ began time.Time }

func (c clock) now() time.Time { return c.at(time.Now()) }

// at is what it said, or says, when the machine's says something.
func (c clock) at(machine time.Time) time.Time { return c.began.Add(machine.Sub(c.began)) }

// loop owns the state of one term of leading.
type loop struct {
	part  *parts
	clock clock
	nodes *lifecycle.Core
	pods  *taint.Core
	fence *fence.Core // nil: no check is configured
	queue *queue
	watch watched
	plan  timing
	asks  chan func(*loop)
	met   *lifecycle.Actions // what the last step said of all nodes; nil: there was none
}

// watched is what is known of who else acts.
type watched struct {
	rival string // why it does not act; empty: it does
	began bool   // it has acted: from then on others are only complained of
	said  map[string]string
	wrong bool // it was said that the API server's clock is another than ours
}

// timing says when the next step is.
type timing struct {
	due   time.Time // by what was seen; zero: never
	moved bool      // something has changed
	last  time.Time // when the last step began
	cost  time.Duration
}

// at is when the next step is; !ok: never, as it looks.
func (t *timing) at() (at time.Time, ok bool) {
	soon := t.last.Add(max(leastGap, gapCosts*t.cost))
	if t.moved || t.due.Before(soon) {
		return soon, t.moved || !t.due.IsZero()
	}
	return t.due, true
}

func newLoop(p *parts) *loop {
	c := p.o.Config
	judged := c.Lifecycle()
	judged.DelayFirstToken = p.leader != nil
	l := &loop{
		part: p, clock: clock{time.Now()}, nodes: lifecycle.New(judged), pods: taint.New(c.Taint()),
		asks:  p.asks,
		watch: watched{said: map[string]string{}}, plan: timing{moved: true},
	}
	if f, ok := c.Fence(); ok && c.Mode != config.Observe {
		l.fence = fence.New(f)
	}
	l.queue = newQueue(l)
	return l
}

// run decides and has written until its context ends. Then no write is under way any more.
func (l *loop) run(ctx context.Context) {
	tasks, settled := make(chan task), make(chan func(), workers)
	var pool sync.WaitGroup
	for range workers {
		pool.Go(func() {
			for t := range tasks {
				settled <- t(ctx)
			}
		})
	}
	defer pool.Wait()
	defer close(tasks)
	l.part.beat.Store(time.Now().UnixNano())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for t := l.queue.next(); t != nil; t = l.queue.next() {
			tasks <- t // a worker is idle, or the queue would have none
		}
		l.depths()
		wait := longestWait
		if at, ok := l.plan.at(); ok {
			wait = min(wait, max(0, at.Sub(l.clock.now())))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-l.part.o.Mirror.Changed():
			l.plan.moved = true
		case done := <-settled:
			l.queue.idle++
			done()
		case ask := <-l.asks:
			ask(l)
		case <-timer.C:
			if at, ok := l.plan.at(); !ok || at.After(l.clock.now()) {
				break
			}
			if l.part.o.Mirror.Missing() == "" {
				l.step()
			} else {
				l.plan = timing{} // that it is known is a change
			}
		}
		l.part.beat.Store(time.Now().UnixNano())
	}
}

// step looks at everything, decides, and queues what is to be written.
func (l *loop) step() {
	began := time.Now()
	now := l.clock.now()
	l.plan = timing{last: now}
	l.sayClock()
	read := l.part.o.Mirror.Read()
	l.part.o.Mirror.Look(func(v *mirror.View) {
		if l.waits(now, v) {
			return
		}
		l.decide(now, l.seenOf(v, read), v)
	})
	l.plan.cost = time.Since(began)
	l.part.metrics.held.Set(number(l.watch.rival != ""))
	l.part.metrics.steps.Observe(l.plan.cost.Seconds())
}

func (l *loop) seenOf(v *mirror.View, read time.Time) lifecycle.Seen {
	return lifecycle.Seen{
		Nodes: v.Nodes, Leases: v.Leases, Pods: v.PodsOf, Read: read, Arrivals: v.Came,
		ClockSkew: l.part.dates.Ahead(l.clock.at),
	}
}

// decide asks the cores.
func (l *loop) decide(now time.Time, seen lifecycle.Seen, v *mirror.View) {
	l.met = l.nodes.Step(now, seen)
	cluster.Earliest(&l.plan.due, l.met.Next)
	if l.met.StaleRead {
		l.part.o.Mirror.Prove()
	}
	l.sayDoubt()
	l.tally(now, seen)
	l.part.metrics.pods.Set(float64(v.Pods()))
	var fenced *fence.Actions
	if l.fence != nil {
		fenced = l.fence.Step(now, v.Nodes)
		cluster.Earliest(&l.plan.due, fenced.Next)
	}
	switch l.part.o.Config.Mode {
	case config.Fence: // the rest is kube-controller-manager's
		l.queue.nodes(v, &lifecycle.Actions{}, &taint.Actions{}, fenced)
		return
	case config.Observe:
		gone := l.pods.Step(now, taint.Seen{Nodes: v.Nodes, Pods: v.PodsOf, Zone: lifecycle.ZoneOf})
		cluster.Earliest(&l.plan.due, gone.Next)
		l.observe(now, l.met, gone)
		return
	}
	gone := l.pods.Step(now, taint.Seen{Nodes: v.Nodes, Pods: v.PodsOf, Zone: lifecycle.ZoneOf})
	cluster.Earliest(&l.plan.due, gone.Next)
	l.queue.nodes(v, l.met, gone, fenced)
	l.queue.podsOf(l.met, gone)
	l.part.events.say(nodeComponent, l.queue.held.hold(l.met))
	l.part.events.say(taintComponent, gone.Events)
}

// sayClock says that the API server's clock and ours differ, once: near the limit it would be said
// again and again. Taints' times are by that of whoever wrote them.
func (l *loop) sayClock() {
	if ahead := l.part.dates.Ahead(l.clock.at); ahead != 0 && !l.watch.wrong {
		l.watch.wrong = true
		l.part.o.Log.Warn("the API server's clock is not this machine's: set them right",
			"ahead", ahead.Round(time.Second))
	}
}

// sayDoubt says when it is doubted that silence is the nodes', and when no more.
func (l *loop) sayDoubt() {
	switch was := l.watch.said["doubt"]; {
	case l.met.Doubt == was:
	case l.met.Doubt == "":
		delete(l.watch.said, "doubt")
		l.part.o.Log.Info("doubt is over: nodes are tainted again")
	default:
		l.watch.said["doubt"] = l.met.Doubt
		l.part.o.Log.Warn("silence is doubted: no node gets a NoExecute taint", "reason", l.met.Doubt)
	}
}

// waits reports whether it may not act yet since another controller writes the same taints.
func (l *loop) waits(now time.Time, v *mirror.View) bool {
	quiet := l.part.o.Config.ReplaceQuiet
	if l.part.o.Config.Mode != config.Replace {
		return false
	}
	why, last := "", time.Time{}
	for name, n := range v.Nodes {
		if who, at := mirror.Rival(n, Rivals); at.After(last) && now.Sub(at) < quiet {
			why, last = "another controller wrote taints of nodes: "+who+", node "+name, at
		}
	}
	was := l.watch.rival
	switch {
	case why == "":
		l.watch.rival, l.watch.began = "", true
		if was != "" {
			l.part.o.Log.Info("no other controller writes taints of nodes any more: it acts")
		}
		return false
	case l.watch.began:
		if at := last.Format(time.RFC3339); at != l.watch.said["rival"] && last.After(l.clock.began) {
			l.watch.said["rival"] = at
			l.part.o.Log.Warn("another controller writes taints of nodes, too: turn one of the two off",
				"reason", why, "since", at)
		}
		return false
	}
	if l.watch.rival = why; was == "" {
		l.part.o.Log.Warn("it does not act: another controller does the same", "reason", why,
			"since", last.Format(time.RFC3339))
	}
	l.plan.due = now.Add(min(rivalLook, max(time.Second, last.Add(quiet).Sub(now))))
	return true
}
