package model

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// Question is what is asked of nodes for one pod, prepared once for all of them. It holds until the
// cluster changes.
type Question struct {
	c   *Cluster
	pod *Pod
	// where a pod is that this one may not be with, or that may not be with it; of several the first
	// by name
	keeps  map[place]*Pod
	keys   []string       // of keeps, sorted
	wants  []string       // the labels of nodes that say what is near, of each required affinity term
	near   map[place]bool // where a pod is that all these terms are about
	first  bool           // nowhere, and they are about the pod itself: it is the first
	spread []spreadCount
	claims []*v1.PersistentVolumeClaim
	ports  []v1.ContainerPort
}

// spreadCount is a hard constraint and how full its domains are.
type spreadCount struct {
	*Constraint
	domains map[string]int // those with pods
	least   int
	self    int // 1: the constraint counts the pod itself
}

// Ask prepares the questions about a pod, which is thought away from where it is.
func (c *Cluster) Ask(p *Pod) *Question {
	q := &Question{c: c, pod: p, ports: hostPorts(p.Pod)}
	q.claims, _ = c.Claims(p.Pod)
	if len(c.anti) > 0 {
		for _, namespace := range []string{p.Namespace, ""} {
			q.repelled(c.anti[about{namespace: namespace}])
			for key, value := range p.Labels {
				q.repelled(c.anti[about{namespace, key, value}])
			}
		}
	}
	for i := range p.anti {
		p.anti[i].each(c, func(other *Pod, where place) {
			if other != p {
				q.keep(other, where)
			}
		})
	}
	slices.Sort(q.keys)
	q.wanting()
	for _, k := range p.spread {
		if k.Hard {
			q.spread = append(q.spread, c.spreadOf(p, k))
		}
	}
	return q
}

// repelled notes where pods are that do not want this one with them.
func (q *Question) repelled(by []*Pod) {
	for _, other := range by {
		if other == q.pod || other.Node == nil || other.Ended {
			continue
		}
		for i := range other.anti {
			if t := &other.anti[i]; t.about(q.c, q.pod) {
				if where, ok := at(other.Node, t.key); ok {
					q.keep(other, where)
				}
			}
		}
	}
}

func (q *Question) keep(other *Pod, where place) {
	was := q.keeps[where]
	if was != nil && byKey(was.Pod, other.Pod) <= 0 {
		return
	}
	if q.keeps == nil {
		q.keeps = map[place]*Pod{}
	}
	q.keeps[where] = other
	if !slices.Contains(q.keys, where.key) {
		q.keys = append(q.keys, where.key)
	}
}

// wanting finds whom the pod wants near it. Only one that all of its terms are about counts, for
// each of them (pkg/scheduler/framework/plugins/interpodaffinity/filtering.go,
// updateWithAffinityTerms and satisfyPodAffinity, v1.36.3).
func (q *Question) wanting() {
	all := q.pod.affinity
	if len(all) == 0 {
		return
	}
	by := func(other *Pod) bool {
		return !slices.ContainsFunc(all, func(t term) bool { return !t.about(q.c, other) })
	}
	for i := range all {
		q.wants = append(q.wants, all[i].key)
	}
	q.near = map[place]bool{}
	all[0].visit(q.c, func(other *Pod) {
		if other == q.pod || !by(other) {
			return
		}
		for _, key := range q.wants {
			if where, ok := at(other.Node, key); ok {
				q.near[where] = true
			}
		}
	})
	q.first = len(q.near) == 0 && by(q.pod)
}

func (c *Cluster) spreadOf(p *Pod, k *Constraint) spreadCount {
	s, l := spreadCount{Constraint: k, domains: map[string]int{}}, c.fitLayoutOf(k)
	for _, other := range c.selected(p.Namespace, &k.pick) {
		if other == p || other.Node == nil || !k.Counts(other) {
			continue
		}
		if at := l.of[other.Node.place]; at >= 0 {
			s.domains[l.names[at]]++
		}
	}
	if len(s.domains) == len(l.names) { // else one has none
		s.least = k.Least(s.domains)
	}
	if k.Selector.Matches(labels.Set(p.Labels)) {
		s.self = 1
	}
	return s
}

// refusal is why a node does not take a pod. Most are of no interest to anybody, so it is put into
// words only for who wants to read it.
type refusal struct {
	why   string // empty: the node takes it
	whom  *Pod   // of another pod
	what  string // of a resource, a claim, a label
	taint *v1.Taint
}

const (
	isNotReady   = "the node is not ready"
	isCordoned   = "the node is cordoned"
	leftOut      = "its node selector or affinity leaves the node out"
	hasTaint     = "it does not tolerate the taint %s"
	hasNotEnough = "the node has not enough %s"
	hasNoPort    = "a port of the node that it wants is taken by %s"
	hasNoVolume  = "the node does not reach the volume of its claim %s"
	keptAway     = "anti-affinity keeps it from where %s is"
	isNotWithAny = "nobody is there whom its affinity wants"
	hasNoLabel   = "the node has no label %s, which it is spread by"
	tooMany      = "it would be more than %s's maxSkew allows"
)

func (r *refusal) String() string {
	what := r.what
	switch {
	case r.whom != nil:
		what = r.whom.Key()
	case r.taint != nil:
		what = r.taint.ToString()
	}
	return strings.Replace(r.why, "%s", what, 1)
}

// Refuses says why a node does not take the pod; empty: it takes it. The node that the pod is on is
// asked as if it were not there.
func (q *Question) Refuses(n *Node) string {
	r := q.refuses(n)
	return r.String()
}

func (q *Question) takes(n *Node) bool { return q.refuses(n).why == "" }

func (q *Question) refuses(n *Node) refusal {
	switch {
	case !n.ready:
		return refusal{why: isNotReady}
	case n.Spec.Unschedulable:
		return refusal{why: isCordoned}
	}
	if !q.pod.Belongs(n) {
		return refusal{why: leftOut}
	}
	if t := untolerated(n.Node, q.pod.Spec.Tolerations); t != nil {
		return refusal{why: hasTaint, taint: t}
	}
	if name := q.lacks(n); name != "" {
		return refusal{why: hasNotEnough, what: string(name)}
	}
	if other := q.taken(n); other != nil {
		return refusal{why: hasNoPort, whom: other}
	}
	if claim := q.c.outOfReach(q.claims, n); claim != "" {
		return refusal{why: hasNoVolume, what: claim}
	}
	return q.others(n)
}

// others says what other pods have against a node.
func (q *Question) others(n *Node) refusal {
	for _, key := range q.keys {
		if where, ok := at(n, key); ok && q.keeps[where] != nil {
			return refusal{why: keptAway, whom: q.keeps[where]}
		}
	}
	for _, key := range q.wants {
		if where, ok := at(n, key); !ok || !q.first && !q.near[where] {
			return refusal{why: isNotWithAny}
		}
	}
	for i := range q.spread {
		s := &q.spread[i]
		domain, ok := n.Labels[s.Key]
		if !ok {
			return refusal{why: hasNoLabel, what: s.Key}
		}
		if s.domains[domain]+s.self-s.least > s.MaxSkew {
			return refusal{why: tooMany, what: s.Key}
		}
	}
	return refusal{}
}

// lacks is Node.lacks with the pod itself thought away.
func (q *Question) lacks(n *Node) v1.ResourceName {
	if q.pod.Node != n {
		return n.lacks(q.pod)
	}
	var name v1.ResourceName
	q.c.Without(q.pod, func() { name = n.lacks(q.pod) })
	return name
}

// taken is the pod that has a host port which this one wants; nil: none.
func (q *Question) taken(n *Node) *Pod {
	if len(q.ports) == 0 {
		return nil
	}
	for _, other := range n.Pods {
		if other == q.pod || other.Ended {
			continue
		}
		for _, has := range hostPorts(other.Pod) {
			for _, wants := range q.ports {
				if conflict(&has, &wants) {
					return other
				}
			}
		}
	}
	return nil
}

// hostPorts are those ports of a pod's containers that are the node's. Of a pod on the node's
// network all are: the API server has set them.
func hostPorts(p *v1.Pod) (out []v1.ContainerPort) {
	add := func(c *v1.Container) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				out = append(out, port)
			}
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil &&
			*c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}

// conflict: an address that is not said is every one, a protocol that is not said is TCP.
func conflict(a, b *v1.ContainerPort) bool {
	all := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	protocol := func(p v1.Protocol) v1.Protocol {
		if p == "" {
			return v1.ProtocolTCP
		}
		return p
	}
	return a.HostPort == b.HostPort && protocol(a.Protocol) == protocol(b.Protocol) &&
		(a.HostIP == b.HostIP || all(a.HostIP) || all(b.HostIP))
}

// Keeps reports whether a taint keeps new pods away.
func Keeps(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

// untolerated is the first taint of a node that keeps such pods away.
func untolerated(n *v1.Node, tolerations []v1.Toleration) *v1.Taint {
	return Untolerated(n, tolerations, Keeps)
}

// Untolerated is the first of those taints of a node that count which no toleration is for; nil:
// none.
func Untolerated(n *v1.Node, tolerations []v1.Toleration, counts func(*v1.Taint) bool) *v1.Taint {
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; counts(t) && !corev1.TolerationsTolerateTaint(klog.Logger{},
			tolerations, t, true) {
			return t
		}
	}
	return nil
}

// Belongs reports whether a node is one of those that a pod's node selector and required affinity
// leave in.
func (p *Pod) Belongs(n *Node) bool { return p.has(n) }
