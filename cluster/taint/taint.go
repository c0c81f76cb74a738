// Package taint decides which pods must leave their nodes, and when: pods that do not tolerate a
// taint with the effect NoExecute, or whose toleration period has ended.
//
// The rules are those of Kubernetes 1.37.2, pkg/controller/tainteviction, except where this package
// documents a difference. The package has no client, no clock and no goroutine. Step receives the
// observed cluster and returns the evictions; the caller deletes the pods and reports each result
// to End.
//
// Deadlines are never stored. Step computes them from the ages of the taints, the pod's creation and
// its current tolerations. So a changed taint or toleration changes the deadline, and a restart only
// delays those within cluster.ReturnPeriod. Step converts the times of taints, nodes and pods once,
// when it first uses them: a clock that is set later changes no deadline.
//
//	taint.go      Config, Core, Seen, Actions, Step
//	deadline.go   the deadline of a pod
//	timeadded.go  the ages of taints, and taints without TimeAdded
//	unread.go     pods with too many tolerations to keep
//	explain.go    the effect of each taint on a pod
package taint

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// Config holds the settings of a Core.
type Config struct {
	// PodEvictionRate limits the evictions in a zone, in pods per second; 0: no limit.
	PodEvictionRate float64
}

// Seen is the input of Step: the observed cluster. Step neither changes nor keeps it.
type Seen struct {
	Nodes map[string]*v1.Node
	Pods  func(node string) []*v1.Pod // bound to the node
	Zone  func(*v1.Node) string
	// the cluster was watched since this time without a gap. For cluster.ReturnPeriod afterwards, no
	// pod must leave because its node is not ready: the API server may have been down before, so that
	// the node could not post its recovery. Zero: always.
	WatchedSince time.Time
	// ClockSkew is the API server's clock minus the clock of the step's time. Times of objects, read
	// and written, are on the API server's clock.
	ClockSkew time.Duration
}

// Eviction requests the deletion of a pod.
type Eviction struct {
	Namespace, Name, Node string
	// the precondition of the deletion: a pod with another UID stays
	UID         types.UID
	Taint       v1.Taint      // the taint that requires it, with the TimeAdded that the decision uses
	After       time.Duration // since TimeAdded
	Deadline    time.Time
	Ended       time.Time       // end of the toleration period; after a gap, Deadline is later
	Tolerations []v1.Toleration // of the pod, as far as they decide
}

// Stamp adds TimeAdded to taints of a node that have none. The caller writes it before it carries
// out evictions.
type Stamp struct {
	Node   string
	UID    types.UID
	Taints []v1.Taint // key, value, effect, TimeAdded
}

// Actions is the result of Step. The caller carries out stamps first. Evictions are sorted by
// namespace and name, stamps by node.
type Actions struct {
	Stamps []Stamp
	Reads  []Read
	Evict  []Eviction
	Events []cluster.Event
	// when the caller must call Step again if nothing changes before; always after now; zero: never
	Next time.Time
}

// Core holds the state between two steps. Only one goroutine may use it.
type Core struct {
	config  Config
	pending map[types.UID]timer
	// when taints were added and their nodes changed between ready and not, and when pods with a
	// deadline were created, on the clock of the steps
	since   map[taintKey]time.Time
	created map[types.UID]time.Time

	skew      time.Duration                  // ClockSkew of the last step
	settled   time.Time                      // the end of that period, at the last step
	deletions map[types.UID]*cluster.Attempt // by pod
	stamps    map[types.UID]*cluster.Attempt // by node
	buckets   map[string]*cluster.Bucket     // by zone
	reads     map[types.UID]*reading         // by pod
}

// timer identifies a pod with a deadline in the future, for the event of its cancellation.
type timer struct{ namespace, name string }

// New returns an empty Core. In a new term of leadership, Restart replaces it.
func New(c Config) *Core {
	return &Core{
		config: c, pending: map[types.UID]timer{}, since: map[taintKey]time.Time{},
		created: map[types.UID]time.Time{}, deletions: map[types.UID]*cluster.Attempt{},
		stamps: map[types.UID]*cluster.Attempt{}, buckets: map[string]*cluster.Bucket{},
		reads: map[types.UID]*reading{},
	}
}

// Restart returns a Core that knows only the ages of taints and pods. Its steps continue the time of
// c.
func (c *Core) Restart() *Core {
	out := New(c.config)
	out.since, out.created = c.since, c.created
	return out
}

// step is the state of one Step.
type step struct {
	*Core
	now       time.Time
	seen      Seen
	out       *Actions
	due       []candidate
	scheduled map[types.UID]timer     // pods with a deadline in the future
	created   map[types.UID]time.Time // of pods with any deadline
	since     map[taintKey]time.Time
	// stampedNodes holds the nodes with taints that lack a TimeAdded.
	stampedNodes map[types.UID]bool
	unread       map[types.UID]bool // pods on tainted nodes whose tolerations were not kept
}

// candidate is a pod with a deadline that has passed.
type candidate struct {
	Eviction
	zone string
}

// Step decides on the observed cluster. now must not be before that of the last call.
func (c *Core) Step(now time.Time, seen Seen) *Actions {
	c.skew, c.settled = seen.ClockSkew, seen.WatchedSince.Add(cluster.ReturnPeriod)
	s := &step{
		Core: c, now: now, seen: seen, out: &Actions{},
		since:        make(map[taintKey]time.Time, len(c.since)),
		stampedNodes: map[types.UID]bool{}, unread: map[types.UID]bool{},
		// Growing these maps would be most of the cost of a step with 5,000 tainted nodes. Their
		// size rarely changes.
		scheduled: make(map[types.UID]timer, len(c.pending)), created: make(map[types.UID]time.Time,
			len(c.created)),
	}
	names := make([]string, 0, len(seen.Nodes))
	for name := range seen.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s.evaluateNode(seen.Nodes[name])
	}
	c.since = s.since
	s.evictDue()
	s.reportCancelled()
	c.pending, c.created = s.scheduled, s.created
	for node := range c.stamps {
		if !s.stampedNodes[node] {
			delete(c.stamps, node)
		}
	}
	for uid := range c.reads {
		if !s.unread[uid] {
			delete(c.reads, uid)
		}
	}
	for uid := range c.deletions {
		if _, tracked := s.created[uid]; !tracked { // the pod is deleted, or has no deadline any more
			delete(c.deletions, uid)
		}
	}
	cluster.SortEvents(s.out.Events)
	slices.SortFunc(s.out.Evict, func(a, b Eviction) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})
	return s.out
}

// evaluateNode sorts the pods of a tainted node into due and scheduled ones.
func (s *step) evaluateNode(n *v1.Node) {
	taints := s.stampTaints(n)
	if len(taints) == 0 {
		return
	}
	key, transition := s.transition(s.now, n)
	if !transition.IsZero() {
		s.since[key] = transition
	}
	for _, p := range s.seen.Pods(n.Name) {
		if Terminating(p) {
			continue
		}
		if Unread(p.Spec.Tolerations) {
			s.unread[p.UID] = true
		}
		tolerations, known := s.tolerationsOf(p, taints)
		if !known {
			s.requestRead(p, taints)
			continue
		}
		created := s.createdAt(s.now, p)
		at, by, limited := deadline(taints, times{transition, created, s.settled}, tolerations)
		switch {
		case !limited:
		case at.After(s.now):
			s.created[p.UID] = created
			s.scheduled[p.UID] = timer{p.Namespace, p.Name}
			cluster.Earliest(&s.out.Next, at)
		default:
			s.created[p.UID] = created
			ended, _, _ := deadline([]v1.Taint{*by},
				times{transition: transition, created: created}, tolerations)
			s.due = append(s.due, candidate{zone: s.seen.Zone(n), Eviction: Eviction{
				Namespace: p.Namespace, Name: p.Name, UID: p.UID, Node: n.Name, Taint: *by,
				After: s.now.Sub(by.TimeAdded.Time), Deadline: at, Ended: ended, Tolerations: tolerations,
			}})
		}
	}
}

// Terminating reports whether a pod needs no eviction: it is being deleted, or its phase is
// Succeeded or Failed.
func Terminating(p *v1.Pod) bool {
	return p.DeletionTimestamp != nil || p.Status.Phase == v1.PodSucceeded ||
		p.Status.Phase == v1.PodFailed
}

// evictDue evicts due pods in the order of their deadlines, as writes in flight, backoff and the
// zone's rate allow.
func (s *step) evictDue() {
	slices.SortFunc(s.due, func(a, b candidate) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	for _, c := range s.due {
		attempt := s.deletions[c.UID]
		if attempt == nil {
			attempt = &cluster.Attempt{}
			s.deletions[c.UID] = attempt
		}
		if next := attempt.Next(s.now); next.IsZero() || next.After(s.now) {
			cluster.Earliest(&s.out.Next, next)
			continue
		}
		if !s.takeToken(c.zone) {
			continue
		}
		attempt.Begin(s.now)
		s.out.Evict = append(s.out.Evict, c.Eviction)
		s.addEvent(c.UID, timer{c.Namespace, c.Name}, "Marking for deletion Pod %s/%s")
	}
}

// takeToken takes a token of the zone. Without a rate limit it always succeeds.
func (s *step) takeToken(zone string) bool {
	if s.config.PodEvictionRate <= 0 {
		return true
	}
	b := s.buckets[zone]
	if b == nil {
		b = cluster.NewBucket(s.now, s.config.PodEvictionRate, time.Time{})
		s.buckets[zone] = b
	}
	if b.Take(s.now) {
		return true
	}
	cluster.Earliest(&s.out.Next, b.NextToken(s.now))
	return false
}

// reportCancelled adds an event for each pod that had a deadline and has none now.
func (s *step) reportCancelled() {
	for uid, t := range s.pending {
		if _, tracked := s.created[uid]; !tracked {
			s.addEvent(uid, t, "Cancelling deletion of Pod %s/%s")
		}
	}
}

func (s *step) addEvent(uid types.UID, t timer, format string) {
	s.out.Events = append(s.out.Events, cluster.Event{
		Kind: "Pod", Namespace: t.namespace, Name: t.name, UID: uid, Type: v1.EventTypeNormal,
		Reason:  "TaintManagerEviction",
		Message: fmt.Sprintf(format, t.namespace, t.name),
	})
}

// End records the result of a deletion. After a failure Step evicts the pod again once its backoff
// has passed. A pod that no longer exists, or has another UID, counts as deleted.
func (c *Core) End(now time.Time, uid types.UID, ok bool) {
	if a := c.deletions[uid]; a != nil {
		a.End(now, ok)
	}
}

// EndStamp records the result of writing a Stamp.
func (c *Core) EndStamp(now time.Time, node types.UID, ok bool) {
	if a := c.stamps[node]; a != nil {
		a.End(now, ok)
	}
}
