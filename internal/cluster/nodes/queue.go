package nodes

import (
	"context"
	"errors"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/fence"
	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/mirror"
	"jettison/internal/cluster/writes"
)

// maxAsked are so many checks at once, and maxPods so many writes of pods: they may take long, and
// keep workers from writing to nodes.
const (
	maxAsked = 8
	maxPods  = 16
)

// task is done by a worker. What it returns is called by the loop.
type task func(ctx context.Context) func()

// queue is what is to be written and waits for a worker: nodes first, then pods that have to go,
// then marks. What waits is looked at again before it is handed out: a node may have come back
// meanwhile.
type queue struct {
	loop  *loop
	idle  int
	node  []*nodeJob
	evict []*taint.Eviction
	mark  []*lifecycle.Mark
	ask   []fence.Node
	asked int // that are waited for
	pods  int // that are written now
	// busy are the nodes that are written, or wait for it. Pods of theirs do not go before it is known
	// what became of that.
	busy             map[string]int
	under            map[string]bool // nodes that are written now
	silences         int             // jobs that write that a node is silent
	held             held
	parked           map[string]*parked // by node, while that is busy
	evictions, marks int                // that are parked
	unread           []*taint.Eviction  // whose time was not up when it was known last what is there
	soonest          time.Time          // that of the first of them
}

// parked are pods of a node that is busy. Nobody asks again and again whether it is: where many
// nodes fall there are many pods.
type parked struct {
	evict []*taint.Eviction
	mark  []*lifecycle.Mark
}

// park is where what waits for a node is kept; nil: it is not busy.
func (q *queue) park(node string) *parked {
	if q.busy[node] == 0 {
		return nil
	}
	if q.parked[node] == nil {
		q.parked[node] = &parked{}
	}
	return q.parked[node]
}

// unpark has what waited for a node wait for a worker.
func (q *queue) unpark(node string) {
	if was := q.parked[node]; was != nil {
		delete(q.parked, node)
		q.evictions, q.marks = q.evictions-len(was.evict), q.marks-len(was.mark)
		q.evict, q.mark = append(q.evict, was.evict...), append(q.mark, was.mark...)
	}
}

// waiting is how many evictions and marks wait.
func (q *queue) waiting() (evictions, marks int) {
	return len(q.evict) + len(q.unread) + q.evictions, len(q.mark) + q.marks
}

// nodeJob is what one step has decided of a node.
type nodeJob struct {
	was    *v1.Node
	lease  *coordination.Lease // as it was then; nil: there was none
	status *lifecycle.Status
	labels *lifecycle.Labels
	taints *lifecycle.Taints
	stamp  *taint.Stamp
	fence  int // 1: it is taken out of service, -1: put back
}

func newQueue(l *loop) *queue {
	return &queue{loop: l, idle: workers, busy: map[string]int{}, under: map[string]bool{},
		held: newHeld(), parked: map[string]*parked{}}
}

// nodes queues what is to be written to nodes. fenced may be nil.
func (q *queue) nodes(v *mirror.View, done *lifecycle.Actions, gone *taint.Actions,
	fenced *fence.Actions) {
	jobs := map[string]*nodeJob{}
	var order []string
	of := func(name string) *nodeJob {
		if jobs[name] == nil {
			jobs[name] = &nodeJob{was: v.Nodes[name], lease: v.Leases[name]}
			order = append(order, name)
		}
		return jobs[name]
	}
	for i := range done.Status {
		of(done.Status[i].Node).status = &done.Status[i]
	}
	for i := range done.Labels {
		of(done.Labels[i].Node).labels = &done.Labels[i]
	}
	for i := range done.Taints {
		of(done.Taints[i].Node).taints = &done.Taints[i]
	}
	for i := range gone.Stamps {
		of(gone.Stamps[i].Node).stamp = &gone.Stamps[i]
	}
	if fenced != nil {
		for _, n := range fenced.Set {
			of(n.Name).fence = 1
		}
		for _, n := range fenced.Lift {
			of(n.Name).fence = -1
		}
		q.ask = append(q.ask, fenced.Check...)
	}
	for _, name := range order {
		if jobs[name].status != nil {
			q.silences++
		}
		q.node = append(q.node, jobs[name])
		q.busy[name]++
	}
}

// podsOf queues what is to be written to pods.
func (q *queue) podsOf(done *lifecycle.Actions, gone *taint.Actions) {
	for i := range gone.Evict {
		q.evict = append(q.evict, &gone.Evict[i])
	}
	for i := range done.Marks {
		q.mark = append(q.mark, &done.Marks[i])
	}
}

// next is what an idle worker is to do; nil: nothing, or none is idle.
func (q *queue) next() task {
	if q.idle == 0 {
		return nil
	}
	for _, find := range []func() task{q.nextNode, q.nextAsk, q.nextEvict, q.nextMark} {
		if t := find(); t != nil {
			q.idle--
			return t
		}
	}
	return nil
}

// nextNode finds a node to write to. One that has changed since it was decided about is decided
// about anew.
func (q *queue) nextNode() task {
	for i := 0; i < len(q.node); i++ {
		j := q.node[i]
		if q.under[j.was.Name] || j.fallen() && q.silences > 0 {
			continue
		}
		q.node = slices.Delete(q.node, i, i+1)
		if is := q.loop.part.o.Mirror.Node(j.was.Name); is == nil || is.UID != j.was.UID ||
			is.ResourceVersion != j.was.ResourceVersion {
			q.doneNode(j, writes.Written{})
			i--
			continue
		}
		q.under[j.was.Name] = true
		return func(ctx context.Context) func() {
			began := time.Now()
			out := q.loop.part.o.Writer.Node(ctx, j.write())
			return func() {
				delete(q.under, j.was.Name)
				q.loop.part.metrics.node.Observe(time.Since(began).Seconds())
				q.settleNode(j, out)
			}
		}
	}
	return nil
}

// fallen reports whether a job follows from the silence of other nodes.
func (j *nodeJob) fallen() bool { return j.taints != nil && j.taints.AllDisrupted && j.status == nil }

// write is what is written of a job.
func (j *nodeJob) write() *writes.Node {
	out := &writes.Node{Was: j.was, Lease: j.lease}
	if j.status != nil {
		out.Status = j.status.Conditions
	}
	if j.labels != nil {
		out.Labels = j.labels.Set
	}
	out.Taint = j.taints != nil || j.stamp != nil || j.fence != 0
	out.Taints = slices.Clone(j.was.Spec.Taints)
	drop := func(key string, effect v1.TaintEffect) {
		out.Taints = slices.DeleteFunc(out.Taints, func(t v1.Taint) bool {
			return t.Key == key && t.Effect == effect
		})
	}
	if j.taints != nil {
		for _, t := range slices.Concat(j.taints.Remove, j.taints.Add) {
			drop(t.Key, t.Effect)
		}
		out.Taints = append(out.Taints, j.taints.Add...)
	}
	if j.fence != 0 {
		drop(v1.TaintNodeOutOfService, v1.TaintEffectNoExecute)
	}
	if j.fence > 0 {
		now := metav1.Now()
		out.Taints = append(out.Taints, v1.Taint{
			Key: v1.TaintNodeOutOfService, Value: fence.Value, Effect: v1.TaintEffectNoExecute,
			TimeAdded: &now,
		})
	}
	if j.stamp != nil {
		for i := range out.Taints {
			for _, s := range j.stamp.Taints {
				if t := &out.Taints[i]; t.Key == s.Key && t.Value == s.Value && t.Effect == s.Effect {
					t.TimeAdded = s.TimeAdded
				}
			}
		}
	}
	return out
}

// settleNode notes what came of a write.
func (q *queue) settleNode(j *nodeJob, out writes.Written) {
	if out.Heard != nil {
		q.loop.part.o.Mirror.TookLease(out.Heard)
		let(q.held.nodes, j.was.Name)
		q.loop.part.o.Log.Info("a node is not silent: it has renewed its lease, and the watch is behind",
			"node", j.was.Name)
		q.doneNode(j, writes.Written{}) // it was not begun
		q.node = slices.DeleteFunc(q.node, func(other *nodeJob) bool {
			if other.fallen() {
				q.doneNode(other, writes.Written{}) // not all are silent
			}
			return other.fallen()
		})
		return
	}
	if out.Is != nil {
		q.loop.part.o.Mirror.TookNode(out.Is)
	}
	if j.status != nil && out.Status == nil {
		q.loop.part.events.say(nodeComponent, let(q.held.nodes, j.was.Name))
	}
	q.loop.told(j, out)
	q.doneNode(j, out)
}

// doneNode tells the cores. A job that was not begun counts as done: what it is about is decided
// anew.
func (q *queue) doneNode(j *nodeJob, out writes.Written) {
	l, name, uid, now := q.loop, j.was.Name, j.was.UID, q.loop.clock.now()
	if q.busy[name]--; q.busy[name] <= 0 {
		delete(q.busy, name)
		q.unpark(name)
	}
	if j.status != nil {
		q.silences--
		l.nodes.End(now, name, uid, lifecycle.WriteStatus, out.Status == nil)
	}
	if j.labels != nil {
		l.nodes.End(now, name, uid, lifecycle.WriteLabels, out.Labels == nil)
	}
	if j.taints != nil {
		l.nodes.End(now, name, uid, lifecycle.WriteTaints, out.Taints == nil)
	}
	if j.stamp != nil {
		l.pods.EndStamp(now, uid, out.Taints == nil)
	}
	if j.fence != 0 {
		l.fence.End(now, uid, out.Taints == nil)
	}
	if out.Is == nil || out.Status != nil || out.Labels != nil || out.Taints != nil {
		l.plan.moved = true
	}
}

// nextAsk finds a node that is to be asked about.
func (q *queue) nextAsk() task {
	if len(q.ask) == 0 || q.asked >= maxAsked {
		return nil
	}
	n := q.ask[0]
	q.ask = q.ask[1:]
	q.asked++
	l := q.loop
	is := l.part.o.Mirror.Node(n.Name)
	return func(ctx context.Context) func() {
		dead, err := false, errors.New("the node is gone")
		if is != nil && is.UID == n.UID {
			dead, err = l.part.o.Check(ctx, is)
		}
		return func() {
			if err != nil && ctx.Err() == nil {
				l.part.o.Log.Warn("the check of a silent node gave no answer", "node", n.Name, "error", err)
			} else if err == nil {
				l.part.o.Log.Info("a silent node was checked", "node", n.Name, "dead", dead)
			}
			q.asked--
			l.fence.EndCheck(l.clock.now(), n.UID, dead && err == nil)
			l.plan.moved = true
		}
	}
}

// pop takes the first out. What was taken out is not kept by who waits behind it.
func pop[T any](all *[]*T) *T {
	first := (*all)[0]
	(*all)[0], *all = nil, (*all)[1:]
	return first
}

// nextEvict finds a pod that has to go, and still has to.
// None goes by what was known before its time was up.
func (q *queue) nextEvict() task {
	l := q.loop
	if len(q.evict)+len(q.unread) == 0 || q.pods >= maxPods {
		return nil
	}
	fresh := l.part.o.Mirror.Fresh()
	if len(q.unread) > 0 && !fresh.Before(q.soonest) {
		q.evict, q.unread = append(q.evict, q.unread...), nil
	}
	defer func() {
		if len(q.unread) > 0 {
			l.part.o.Mirror.Prove()
		}
	}()
	for len(q.evict) > 0 {
		e := pop(&q.evict)
		if at := q.park(e.Node); at != nil {
			at.evict = append(at.evict, e)
			q.evictions++
			continue
		}
		if fresh.Before(e.Deadline) {
			if len(q.unread) == 0 || e.Deadline.Before(q.soonest) {
				q.soonest = e.Deadline
			}
			q.unread = append(q.unread, e)
			continue
		}
		p, n := l.part.o.Mirror.Pod(e.UID), l.part.o.Mirror.Node(e.Node)
		if p == nil || n == nil || taint.Terminating(p) || !l.pods.Due(l.clock.now(), n, p) {
			l.pods.End(l.clock.now(), e.UID, true)
			l.plan.moved = true
			continue
		}
		q.pods++
		return func(ctx context.Context) func() {
			out, err := l.part.o.Writer.Evict(ctx, e, n)
			return func() {
				q.pods--
				if out.Node != nil {
					l.part.o.Mirror.TookNode(out.Node)
					l.pods.End(l.clock.now(), e.UID, true)
					l.plan.moved = true
					return
				}
				q.took(out)
				l.evicted(e, err)
				l.pods.End(l.clock.now(), e.UID, err == nil)
				l.plan.moved = l.plan.moved || err != nil
			}
		}
	}
	return nil
}

// nextMark finds a pod that is to be marked, of a node that still is not ready.
func (q *queue) nextMark() task {
	l := q.loop
	for len(q.mark) > 0 && q.pods < maxPods {
		m := pop(&q.mark)
		if at := q.park(m.Node); at != nil {
			at.mark = append(at.mark, m)
			q.marks++
			continue
		}
		if n := l.part.o.Mirror.Node(m.Node); l.part.o.Mirror.Pod(m.UID) == nil || n == nil ||
			isReady(n) {
			l.nodes.EndMark(l.clock.now(), *m, true)
			let(q.held.pods, m.UID)
			continue
		}
		q.pods++
		return func(ctx context.Context) func() {
			out, err := l.part.o.Writer.Mark(ctx, m)
			return func() {
				q.pods--
				q.took(out)
				l.marked(m, err)
				if told := let(q.held.pods, m.UID); err == nil {
					l.part.events.say(nodeComponent, told)
				}
				l.nodes.EndMark(l.clock.now(), *m, err == nil)
				l.plan.moved = l.plan.moved || err != nil
			}
		}
	}
	return nil
}

func isReady(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

// took puts into the mirror what the API has answered.
func (q *queue) took(out writes.Pod) {
	if out.Is != nil {
		q.loop.part.o.Mirror.TookPod(out.Is)
	}
}

// notSent reports whether a write was not sent, since this replica does not lead any more or is
// being stopped.
func notSent(err error) bool {
	return errors.Is(err, kubeclient.ErrNotLeading) || errors.Is(err, context.Canceled)
}
