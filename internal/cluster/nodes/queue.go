package nodes

import (
	"context"
	"errors"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/fence"
	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/mirror"
	"jettison/internal/cluster/writes"
)

// Limits of concurrent tasks. Each kind may take long, for example because of a webhook, and must leave
// workers for the others.
const (
	maxNodeWrites = 32
	maxChecks     = 8
	maxPodWrites  = 16
	maxReads      = 2 // each takes the memory of a large pod
)

// A group is slow if its last write took slowWrite. Slow groups leave reservedPodWrites places to the
// others: an admission webhook whose backend died may delay more namespaces than there are places.
const (
	reservedPodWrites = maxPodWrites / 4
	slowWrite         = 5 * time.Second // longer than the default rate limit delays a write
)

// task is run by a worker. The loop calls the function that it returns.
type task func(ctx context.Context) func()

// queue holds the pending writes in the order nodes, checks, reads, and evictions and marks in turns.
// Each is validated again before it goes to a worker, because the node may have recovered.
type queue struct {
	loop             *loop
	idle             int
	nodeJobs         []*nodeJob
	pendingEvictions byNamespace[taint.Eviction]
	pendingMarks     byNamespace[lifecycle.Mark]
	pendingChecks    []fence.Node
	pendingReads     []*taint.Read
	checksInFlight   int
	readsInFlight    int
	podsInFlight     int
	inFlightOf       map[string]int // writes in flight to pods of a namespace
	slowGroups       map[podGroup]bool
	evicted          bool // the last write to a pod that started was an eviction: a mark comes next
	// busy counts the pending writes of a node. The pods of such a busy node are evicted only after
	// these writes.
	busy                         map[string]int
	inFlight                     map[string]bool // nodes with a write in flight
	silenceJobs                  int             // jobs that write the conditions of a silent node
	heldEvents                   heldEvents
	parked                       map[string]*parkedWrites // by busy node
	parkedEvictions, parkedMarks int                      // number of parked writes
	// evictions with a deadline after the last read of the cluster
	unconfirmed   []*taint.Eviction
	firstDeadline time.Time // of unconfirmed
}

// parkedWrites holds the pod writes of a busy node, so that the queue does not check them
// repeatedly: many failed nodes have many pods.
type parkedWrites struct {
	evictions []*taint.Eviction
	marks     []*lifecycle.Mark
}

// parkedFor returns the parked writes of a busy node; nil: the node is not busy.
func (q *queue) parkedFor(node string) *parkedWrites {
	if q.busy[node] == 0 {
		return nil
	}
	if q.parked[node] == nil {
		q.parked[node] = &parkedWrites{}
	}
	return q.parked[node]
}

// unpark moves the parked writes of a node to the queue.
func (q *queue) unpark(node string) {
	if parked := q.parked[node]; parked != nil {
		delete(q.parked, node)
		q.parkedEvictions -= len(parked.evictions)
		q.parkedMarks -= len(parked.marks)
		q.addEvictions(parked.evictions...)
		q.addMarks(parked.marks...)
	}
}

// depth returns the number of pending evictions and marks.
func (q *queue) depth() (evictions, marks int) {
	return q.pendingEvictions.count + len(q.unconfirmed) + q.parkedEvictions, q.pendingMarks.count + q.parkedMarks
}

// nodeJob holds the decisions of one step about a node.
type nodeJob struct {
	node   *v1.Node
	lease  *coordination.Lease // at the decision; nil: none
	status *lifecycle.Status
	labels *lifecycle.Labels
	taints *lifecycle.Taints
	stamp  *taint.Stamp
	fence  int // 1: take the node out of service, -1: put it back
}

func newQueue(l *loop) *queue {
	return &queue{loop: l, idle: workers, busy: map[string]int{}, inFlight: map[string]bool{},
		heldEvents: newHeldEvents(), parked: map[string]*parkedWrites{},
		inFlightOf: map[string]int{}, slowGroups: map[podGroup]bool{},
		pendingEvictions: byNamespace[taint.Eviction]{of: map[string][]*taint.Eviction{}},
		pendingMarks:     byNamespace[lifecycle.Mark]{of: map[string][]*lifecycle.Mark{}, marks: true}}
}

// addNodes queues the writes to nodes. fenced may be nil.
func (q *queue) addNodes(v *mirror.View, actions *lifecycle.Actions, evictions *taint.Actions,
	fenced *fence.Actions) {
	jobs := map[string]*nodeJob{}
	var order []string
	jobFor := func(name string) *nodeJob {
		if jobs[name] == nil {
			jobs[name] = &nodeJob{node: v.Nodes[name], lease: v.Leases[name]}
			order = append(order, name)
		}
		return jobs[name]
	}
	for i := range actions.Status {
		jobFor(actions.Status[i].Node).status = &actions.Status[i]
	}
	for i := range actions.Labels {
		jobFor(actions.Labels[i].Node).labels = &actions.Labels[i]
	}
	for i := range actions.Taints {
		jobFor(actions.Taints[i].Node).taints = &actions.Taints[i]
	}
	for i := range evictions.Stamps {
		jobFor(evictions.Stamps[i].Node).stamp = &evictions.Stamps[i]
	}
	if fenced != nil {
		for _, n := range fenced.Set {
			jobFor(n.Name).fence = 1
		}
		for _, n := range fenced.Lift {
			jobFor(n.Name).fence = -1
		}
		q.pendingChecks = append(q.pendingChecks, fenced.Check...)
	}
	for _, name := range order {
		if jobs[name].status != nil {
			q.silenceJobs++
		}
		q.nodeJobs = append(q.nodeJobs, jobs[name])
		q.busy[name]++
	}
}

// addPods queues the reads of pods and the writes to them.
func (q *queue) addPods(actions *lifecycle.Actions, evictions *taint.Actions) {
	for i := range evictions.Reads {
		q.pendingReads = append(q.pendingReads, &evictions.Reads[i])
	}
	for i := range evictions.Evict {
		q.addEvictions(&evictions.Evict[i])
	}
	for i := range actions.Marks {
		q.addMarks(&actions.Marks[i])
	}
}

func (q *queue) addEvictions(all ...*taint.Eviction) {
	for _, e := range all {
		q.pendingEvictions.add(e.Namespace, e)
	}
}

func (q *queue) addMarks(all ...*lifecycle.Mark) {
	for _, m := range all {
		q.pendingMarks.add(m.Namespace, m)
	}
}

// hasPlace reports whether another write of a group may start. A namespace has at most as many writes
// in flight as there are free places, without the reserved ones if the group is slow. So writes that
// wait for a slow admission webhook leave places for the other groups.
func (q *queue) hasPlace(g podGroup) bool {
	free := maxPodWrites - q.podsInFlight
	if q.slowGroups[g] {
		free -= reservedPodWrites
	}
	return q.inFlightOf[g.namespace] < free
}

func (q *queue) beginPod(g podGroup) {
	q.podsInFlight++
	q.inFlightOf[g.namespace]++
	q.evicted = !g.marks
}

// endPod records the end of a write to a pod and the time that it took.
func (q *queue) endPod(g podGroup, took time.Duration) {
	if q.podsInFlight--; took >= slowWrite {
		q.slowGroups[g] = true
	} else {
		delete(q.slowGroups, g)
	}
	if q.inFlightOf[g.namespace]--; q.inFlightOf[g.namespace] == 0 {
		delete(q.inFlightOf, g.namespace)
	}
}

// next returns the next task for an idle worker, or nil.
func (q *queue) next() task {
	if q.idle == 0 {
		return nil
	}
	order := []func() task{q.nextNode, q.nextCheck, q.nextRead, q.nextEvict, q.nextMark}
	if q.evicted {
		slices.Reverse(order[3:])
	}
	for _, find := range order {
		if t := find(); t != nil {
			q.idle--
			return t
		}
	}
	return nil
}

// nextNode returns the next write to a node. A job for a node that changed since the decision is
// dropped, and the next step decides again.
func (q *queue) nextNode() task {
	if len(q.inFlight) >= maxNodeWrites {
		return nil
	}
	for i := 0; i < len(q.nodeJobs); i++ {
		j := q.nodeJobs[i]
		if q.inFlight[j.node.Name] || j.followsDisruption() && q.silenceJobs > 0 {
			continue
		}
		q.nodeJobs = slices.Delete(q.nodeJobs, i, i+1)
		if current := q.loop.ctrl.deps.Mirror.Node(j.node.Name); current == nil || current.UID != j.node.UID ||
			current.ResourceVersion != j.node.ResourceVersion {
			q.finishNode(j, writes.NodeResult{})
			i--
			continue
		}
		q.inFlight[j.node.Name] = true
		return func(ctx context.Context) func() {
			began := time.Now()
			out := q.loop.ctrl.deps.Writer.Node(ctx, j.write(q.loop.ctrl.serverClock.At(time.Now())))
			return func() {
				delete(q.inFlight, j.node.Name)
				q.loop.ctrl.metrics.nodeWrites.Observe(time.Since(began).Seconds())
				q.settleNode(j, out)
			}
		}
	}
	return nil
}

// followsDisruption reports whether a job depends on the silence of other nodes.
func (j *nodeJob) followsDisruption() bool {
	return j.taints != nil && j.taints.AllDisrupted && j.status == nil
}

// write returns the write of a job. now is a time of the API server's clock.
func (j *nodeJob) write(now time.Time) *writes.Node {
	out := &writes.Node{Node: j.node, Lease: j.lease, CheckLease: j.status != nil || j.fence > 0,
		// before fencing, a Lease of another node shows that a machine is alive
		AnyOwner: j.fence > 0 || j.status != nil && j.status.AnyLease}
	if j.status != nil {
		out.Status = j.status.Conditions
	}
	if j.labels != nil {
		out.Labels = j.labels.Set
	}
	out.WriteTaints = j.taints != nil || j.stamp != nil || j.fence != 0
	out.Taints = slices.Clone(j.node.Spec.Taints)
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
		now := metav1.NewTime(now)
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

// settleNode handles the result of a write to a node.
func (q *queue) settleNode(j *nodeJob, out writes.NodeResult) {
	if out.Renewed != nil {
		q.loop.ctrl.deps.Mirror.UpdateLease(j.node, j.lease, out.Renewed)
		take(q.heldEvents.nodes, j.node.Name)
		//log: The watch of Leases lags. The node is alive, so the decision is dropped.
		q.loop.ctrl.deps.Log.Info("node lease renewed, dropping stale decision",
			"node", j.node.Name)
		q.finishNode(j, writes.NodeResult{}) // nothing was written
		q.nodeJobs = slices.DeleteFunc(q.nodeJobs, func(other *nodeJob) bool {
			if other.followsDisruption() {
				q.finishNode(other, writes.NodeResult{}) // not all nodes are silent
			}
			return other.followsDisruption()
		})
		return
	}
	if out.Gone {
		q.loop.ctrl.deps.Mirror.RemoveNode(j.node)
		take(q.heldEvents.nodes, j.node.Name)
		//log: The node was deleted while its conditions, labels or taints were written.
		q.loop.ctrl.deps.Log.Info("node deleted during write", "node", j.node.Name)
		q.finishNode(j, out)
		return
	}
	if out.Node != nil {
		q.loop.ctrl.deps.Mirror.UpdateNode(j.node, out.Node)
	}
	if j.status != nil && out.Status == nil {
		q.loop.ctrl.events.record(nodeComponent, take(q.heldEvents.nodes, j.node.Name))
	}
	q.loop.logNodeResult(j, out)
	q.finishNode(j, out)
}

// finishNode reports the results to the cores. A job without a write counts as successful: the next
// step decides again.
func (q *queue) finishNode(j *nodeJob, out writes.NodeResult) {
	l, name, uid, now := q.loop, j.node.Name, j.node.UID, q.loop.clock.now()
	if q.busy[name]--; q.busy[name] <= 0 {
		delete(q.busy, name)
		q.unpark(name)
	}
	if j.status != nil {
		q.silenceJobs--
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
		l.fence.End(now, uid, out.Node != nil && out.Taints == nil)
	}
	if out.Node == nil || out.Status != nil || out.Labels != nil || out.Taints != nil {
		l.schedule.changed = true
	}
}

// nextCheck returns the next check of a silent node.
func (q *queue) nextCheck() task {
	if len(q.pendingChecks) == 0 || q.checksInFlight >= maxChecks {
		return nil
	}
	n := q.pendingChecks[0]
	q.pendingChecks = q.pendingChecks[1:]
	q.checksInFlight++
	l := q.loop
	current := l.ctrl.deps.Mirror.Node(n.Name)
	return func(ctx context.Context) func() {
		dead, err := false, errors.New("node deleted")
		if current != nil && current.UID == n.UID {
			dead, err = l.ctrl.deps.CheckDead(ctx, current)
		}
		return func() {
			if err != nil && ctx.Err() == nil {
				//log: The check that confirms a silent node dead failed or returned an invalid
				//  answer. It is retried after --fence-every.
				//do: Run the command or request of --fence-command or --fence-url by hand.
				l.ctrl.deps.Log.Warn("fence check failed", "node", n.Name, "error", err)
			} else if err == nil {
				//log: The check of a silent node answered. If dead is true, the node is taken out
				//  of service.
				l.ctrl.deps.Log.Info("fence check done", "node", n.Name, "dead", dead)
			}
			q.checksInFlight--
			l.fence.EndCheck(l.clock.now(), n.UID, dead && err == nil)
			l.schedule.changed = true
		}
	}
}

// nextRead returns the next read of a pod's tolerations.
func (q *queue) nextRead() task {
	if len(q.pendingReads) == 0 || q.readsInFlight >= maxReads {
		return nil
	}
	r := pop(&q.pendingReads)
	q.readsInFlight++
	l := q.loop
	return func(ctx context.Context) func() {
		out, selected, err := l.ctrl.deps.Writer.Tolerations(ctx, r)
		list := ""
		if out.Pod != nil {
			list = taint.NotKept(out.Pod.Spec.Tolerations).Value
		}
		return func() {
			q.readsInFlight--
			q.updatePod(r.UID, out)
			if err != nil && ctx.Err() == nil {
				//log: A pod has too many tolerations to keep them, and they could not be read when its node
				//  got a taint. The pod stays until a read succeeds.
				//do: Check the connection to the API server. The owner of the pod should remove tolerations.
				l.ctrl.deps.Log.Warn("pod tolerations not read, retrying", "pod", r.Namespace+"/"+r.Name,
					"error", err)
			}
			l.pods.EndRead(l.clock.now(), r, list, selected)
			l.schedule.changed = true
		}
	}
}

// pop removes the first element and clears its slot, so that it can be freed.
func pop[T any](all *[]*T) *T {
	first := (*all)[0]
	(*all)[0], *all = nil, (*all)[1:]
	return first
}

// nextEvict returns the next eviction that is still due. An eviction waits in unconfirmed until the
// mirror is current as of its deadline.
func (q *queue) nextEvict() task {
	l := q.loop
	if q.pendingEvictions.count+len(q.unconfirmed) == 0 || q.podsInFlight >= maxPodWrites {
		return nil
	}
	currentAt := l.clock.fromMachine(l.ctrl.deps.Mirror.CurrentAt())
	if len(q.unconfirmed) > 0 && !currentAt.Before(q.firstDeadline) {
		q.addEvictions(q.unconfirmed...)
		q.unconfirmed = nil
	}
	defer func() {
		if len(q.unconfirmed) > 0 {
			l.ctrl.deps.Mirror.RequestProbe()
		}
	}()
	for e := q.pendingEvictions.pop(q.hasPlace); e != nil; e = q.pendingEvictions.pop(q.hasPlace) {
		if at := q.parkedFor(e.Node); at != nil {
			at.evictions = append(at.evictions, e)
			q.parkedEvictions++
			continue
		}
		if currentAt.Before(e.Deadline) {
			if len(q.unconfirmed) == 0 || e.Deadline.Before(q.firstDeadline) {
				q.firstDeadline = e.Deadline
			}
			q.unconfirmed = append(q.unconfirmed, e)
			continue
		}
		p, n := l.ctrl.deps.Mirror.Pod(e.UID), l.ctrl.deps.Mirror.Node(e.Node)
		if p == nil || n == nil || taint.Terminating(p) || !l.pods.Due(l.clock.now(), n, p) {
			l.pods.End(l.clock.now(), e.UID, true)
			l.schedule.changed = true
			continue
		}
		g := podGroup{e.Namespace, false}
		q.beginPod(g)
		return func(ctx context.Context) func() {
			began := time.Now()
			out, err := l.ctrl.deps.Writer.Evict(ctx, p, n, e, l.clock.now().Sub(e.Ended),
				l.ctrl.serverClock.At(began))
			took := time.Since(began)
			return func() {
				q.endPod(g, took)
				if out.ChangedNode != nil || out.NodeGone {
					if out.NodeGone {
						l.ctrl.deps.Mirror.RemoveNode(n)
					} else {
						l.ctrl.deps.Mirror.UpdateNode(n, out.ChangedNode)
					}
					l.pods.End(l.clock.now(), e.UID, true)
					l.schedule.changed = true
					return
				}
				q.updatePod(e.UID, out)
				l.logEviction(e, err)
				l.pods.End(l.clock.now(), e.UID, err == nil)
				l.schedule.changed = l.schedule.changed || err != nil
			}
		}
	}
	return nil
}

// nextMark returns the next mark of a pod on a node that is still not ready.
func (q *queue) nextMark() task {
	l := q.loop
	if q.podsInFlight >= maxPodWrites {
		return nil
	}
	for m := q.pendingMarks.pop(q.hasPlace); m != nil; m = q.pendingMarks.pop(q.hasPlace) {
		if at := q.parkedFor(m.Node); at != nil {
			at.marks = append(at.marks, m)
			q.parkedMarks++
			continue
		}
		p, n := l.ctrl.deps.Mirror.Pod(m.UID), l.ctrl.deps.Mirror.Node(m.Node)
		if p == nil || n == nil ||
			hasReady(n, v1.ConditionTrue) || m.Silent && !hasReady(n, v1.ConditionUnknown) {
			l.nodes.EndMark(l.clock.now(), *m, true)
			take(q.heldEvents.pods, m.UID)
			continue
		}
		if m.Silent && l.lastActions.Doubt != "" {
			l.nodes.EndMark(l.clock.now(), *m, false) // Step requests it again after the doubt
			take(q.heldEvents.pods, m.UID)
			continue
		}
		g := podGroup{m.Namespace, true}
		q.beginPod(g)
		return func(ctx context.Context) func() {
			began := time.Now()
			out, err := l.ctrl.deps.Writer.Mark(ctx, p, l.ctrl.serverClock.At(began))
			took := time.Since(began)
			return func() {
				q.endPod(g, took)
				q.updatePod(m.UID, out)
				l.logMark(m, err)
				if held := take(q.heldEvents.pods, m.UID); err == nil {
					l.ctrl.events.record(nodeComponent, held)
				}
				l.nodes.EndMark(l.clock.now(), *m, err == nil)
				l.schedule.changed = l.schedule.changed || err != nil
			}
		}
	}
	return nil
}

// hasReady reports whether the node's condition Ready has that status.
func hasReady(n *v1.Node, status v1.ConditionStatus) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == status
	})
}

// updatePod stores the pod of a response in the mirror, or removes it if it is deleted.
func (q *queue) updatePod(uid types.UID, out writes.PodResult) {
	switch {
	case out.Gone:
		q.loop.ctrl.deps.Mirror.RemovePod(uid)
	case out.Pod != nil:
		q.loop.ctrl.deps.Mirror.UpdatePod(out.Pod)
	}
}

// notSent reports whether a write was not sent, because this replica lost leadership or is
// stopping.
func notSent(err error) bool {
	return errors.Is(err, kubeclient.ErrNotLeading) || errors.Is(err, context.Canceled)
}
