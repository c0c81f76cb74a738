// Package taint decides which pods have to leave their nodes, and when: those that do not tolerate
// a taint with the effect NoExecute, or have tolerated it for as long as they do. The rules are
// those of Kubernetes 1.36.3, pkg/controller/tainteviction, where this package does not say
// otherwise. It has no client, no clock and no goroutine: Step is told what is seen and answers
// with who has to go; whoever deletes tells End how that went.
//
// A deadline is never remembered: it follows from the taints' TimeAdded, the pod's creation and its
// tolerations as they are now, so that a restart changes none, and each change of them does.
//
//	taint.go   Config, Core, Seen, Actions, Step
//	due.go     when a pod has to go
//	stamp.go   taints that do not say since when they are there
//	explain.go what each taint means for a pod
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

// Config says by what it is decided.
type Config struct {
	// PodEvictionRate is how many pods of a zone go a second; 0: as many as have to.
	PodEvictionRate float64
}

// Seen is what is there. Nothing of it is changed or kept.
type Seen struct {
	Nodes map[string]*v1.Node
	Pods  func(node string) []*v1.Pod // those that are bound to a node
	Zone  func(*v1.Node) string
}

// Eviction is a pod that has to go now.
type Eviction struct {
	Namespace, Name, Node string
	UID                   types.UID // a pod of the same name with another one is another pod
	Taint                 v1.Taint  // the one whose time is up, with since when it counts as there
	After                 time.Duration
	Deadline              time.Time
}

// Stamp is taints of a node that do not say since when they are there, with what they are to say.
// It is to be written before anything is counted from it.
type Stamp struct {
	Node   string
	UID    types.UID
	Taints []v1.Taint // key, value, effect, TimeAdded
}

// Actions are to be carried out: stamps first. Evictions are sorted by namespace and name, stamps
// by node.
type Actions struct {
	Stamps []Stamp
	Evict  []Eviction
	Events []cluster.Event
	// when Step has to be called again if nothing is seen before; always after now; zero: never
	Next time.Time
}

// Core remembers what cannot be seen. It is for one goroutine.
type Core struct {
	config  Config
	pending map[types.UID]timer
	sights  map[sight]time.Time
	writes  map[types.UID]*cluster.Attempt // deletions, by the pods' UIDs
	stamps  map[types.UID]*cluster.Attempt // by the nodes' UIDs
	buckets map[string]*cluster.Bucket     // by zone
}

// timer is a pod that has to go some time. The name is kept for what is said when it has not.
type timer struct{ namespace, name string }

// New makes a Core that has seen nothing.
func New(c Config) *Core {
	return &Core{
		config: c, pending: map[types.UID]timer{}, sights: map[sight]time.Time{},
		writes: map[types.UID]*cluster.Attempt{},
		stamps: map[types.UID]*cluster.Attempt{}, buckets: map[string]*cluster.Bucket{},
	}
}

// step is one look.
type step struct {
	*Core
	now    time.Time
	seen   Seen
	out    *Actions
	due    []candidate
	waits  map[types.UID]timer // pods with a deadline to come
	here   map[types.UID]bool  // pods that still have a reason to go
	sights map[sight]time.Time
	// stamped are the nodes with taints that are to be stamped.
	stamped map[types.UID]bool
}

// candidate is a pod that is due.
type candidate struct {
	Eviction
	zone string
}

// Step looks at everything. Time must not go back.
func (c *Core) Step(now time.Time, seen Seen) *Actions {
	s := &step{
		Core: c, now: now, seen: seen, out: &Actions{}, sights: map[sight]time.Time{},
		stamped: map[types.UID]bool{},
		// Of 5,000 nodes that are tainted these are most of what a step costs: mostly they are as large
		// as they were.
		waits: make(map[types.UID]timer, len(c.pending)), here: make(map[types.UID]bool, len(c.pending)+
			len(c.writes)),
	}
	names := make([]string, 0, len(seen.Nodes))
	for name := range seen.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s.node(seen.Nodes[name])
	}
	c.sights = s.sights
	s.evict()
	s.cancel()
	c.pending = s.waits
	for node := range c.stamps {
		if !s.stamped[node] {
			delete(c.stamps, node)
		}
	}
	for uid := range c.writes {
		if !s.here[uid] { // it is gone, or need not go any more
			delete(c.writes, uid)
		}
	}
	cluster.SortEvents(s.out.Events)
	slices.SortFunc(s.out.Evict, func(a, b Eviction) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})
	if !s.out.Next.IsZero() && !s.out.Next.After(now) {
		s.out.Next = now.Add(1)
	}
	return s.out
}

// node looks at one node's pods.
func (s *step) node(n *v1.Node) {
	taints := s.taintsOf(n)
	if len(taints) == 0 {
		return
	}
	for _, p := range s.seen.Pods(n.Name) {
		if Leaves(p) {
			continue
		}
		at, by, ever := deadline(n, taints, p, s.now)
		switch {
		case !ever:
		case at.After(s.now):
			s.here[p.UID] = true
			s.waits[p.UID] = timer{p.Namespace, p.Name}
			cluster.Earliest(&s.out.Next, at)
		default:
			s.here[p.UID] = true
			s.due = append(s.due, candidate{zone: s.seen.Zone(n), Eviction: Eviction{
				Namespace: p.Namespace, Name: p.Name, UID: p.UID, Node: n.Name, Taint: *by,
				After: s.now.Sub(by.TimeAdded.Time), Deadline: at,
			}})
		}
	}
}

// Leaves reports whether a pod needs no eviction: it is going, or nothing of it runs any more.
func Leaves(p *v1.Pod) bool {
	return p.DeletionTimestamp != nil || p.Status.Phase == v1.PodSucceeded ||
		p.Status.Phase == v1.PodFailed
}

// evict has the pods go that are due, those first that have been for longest.
func (s *step) evict() {
	slices.SortFunc(s.due, func(a, b candidate) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	for _, c := range s.due {
		attempt := s.writes[c.UID]
		if attempt == nil {
			attempt = &cluster.Attempt{}
			s.writes[c.UID] = attempt
		}
		if next := attempt.Next(s.now); next.IsZero() || next.After(s.now) {
			cluster.Earliest(&s.out.Next, next)
			continue
		}
		if !s.take(c.zone) {
			continue
		}
		attempt.Begin(s.now)
		s.out.Evict = append(s.out.Evict, c.Eviction)
		s.say(c.UID, timer{c.Namespace, c.Name}, "Marking for deletion Pod %s/%s")
	}
}

// take takes a token of a zone, where there is a limit.
func (s *step) take(zone string) bool {
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
	cluster.Earliest(&s.out.Next, b.Next(s.now))
	return false
}

// cancel says of which pods that had a deadline nothing comes.
func (s *step) cancel() {
	for uid, t := range s.pending {
		if !s.here[uid] {
			s.say(uid, t, "Cancelling deletion of Pod %s/%s")
		}
	}
}

func (s *step) say(uid types.UID, t timer, format string) {
	s.out.Events = append(s.out.Events, cluster.Event{
		Kind: "Pod", Namespace: t.namespace, Name: t.name, UID: uid, Type: v1.EventTypeNormal,
		Reason:  "TaintManagerEviction",
		Message: fmt.Sprintf(format, t.namespace, t.name),
	})
}

// End notes how a deletion ended. One that failed is decided again after a while. A pod that is
// gone, or has another UID by now, is deleted.
func (c *Core) End(now time.Time, uid types.UID, ok bool) {
	if a := c.writes[uid]; a != nil {
		a.End(now, ok)
	}
}

// EndStamp notes how a stamp of a node ended.
func (c *Core) EndStamp(now time.Time, node types.UID, ok bool) {
	if a := c.stamps[node]; a != nil {
		a.End(now, ok)
	}
}
