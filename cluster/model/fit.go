package model

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FitCheck checks on which nodes a pod fits. It is prepared once for all nodes and valid until
// the cluster changes.
type FitCheck struct {
	c   *Cluster
	pod *Pod
	// The check is for the replacement of the pod, which is still being deleted.
	terminating bool
	// topologies that anti-affinity of this pod or of another pod excludes, with the conflicting
	// pod that is first by name
	repellers      map[topologyValue]*Pod
	repellerKeys   []string               // topology keys of repellers, sorted
	affinityKeys   []string               // topology key of each required affinity term
	affinityPlaces map[topologyValue]bool // topologies with a pod that matches all terms
	firstOfGroup   bool                   // no such pod exists, but the pod itself matches all terms
	spread         []spreadCount
	claims         []*v1.PersistentVolumeClaim
	ports          []v1.ContainerPort
	tolerated      ToleratedTaints
	// the check of the pod itself, which has the same result for other nodes; nil: it may differ
	shared *FitCheck
}

// spreadCount is a hard constraint with the number of pods in its domains.
type spreadCount struct {
	*Constraint
	domains map[string]int // only domains with pods
	least   int
	self    int // 1: the constraint counts the pod itself
}

// FitCheck prepares checks of a pod as if it were on no node.
func (c *Cluster) FitCheck(p *Pod) *FitCheck { return c.fitCheck(p, false) }

// Successor returns checks of the replacement of the pod while the pod is still being deleted: its
// resources, ports and affinity count, but spread constraints ignore it.
func (q *FitCheck) Successor() *FitCheck {
	p := q.pod
	if len(p.antiAffinity)+len(p.affinity)+len(p.attraction) > 0 {
		return q.c.fitCheck(p, true) // terms may match the pod itself
	}
	out := *q
	out.terminating, out.shared = true, q
	return &out
}

func (c *Cluster) fitCheck(p *Pod, terminating bool) *FitCheck {
	q := &FitCheck{c: c, pod: p, terminating: terminating, ports: hostPorts(p.Pod),
		tolerated: c.Tolerated(p)}
	q.claims, _ = c.Claims(p.Pod)
	c.antiAffinity.visit(p, q.addRepellersFrom)
	for i := range p.antiAffinity {
		p.antiAffinity[i].visitPlaces(c, func(other *Pod, where topologyValue) {
			if !q.ignores(other) {
				q.addRepeller(other, where)
			}
		})
	}
	slices.Sort(q.repellerKeys)
	q.readAffinity()
	for _, k := range p.spread {
		if k.Hard {
			q.spread = append(q.spread, c.countSpread(p, k))
		}
	}
	return q
}

// ignores reports whether another pod is the pod of the check and counts as gone.
func (q *FitCheck) ignores(other *Pod) bool { return other == q.pod && !q.terminating }

// addRepellersFrom adds those of the pods with anti-affinity that excludes the pod of the check.
func (q *FitCheck) addRepellersFrom(pods []*Pod) {
	for _, other := range pods {
		if q.ignores(other) || other.Node == nil || other.Ended {
			continue
		}
		for i := range other.antiAffinity {
			if t := &other.antiAffinity[i]; t.matches(q.c, q.pod) {
				if where, ok := topologyOf(other.Node, t.key); ok {
					q.addRepeller(other, where)
				}
			}
		}
	}
}

func (q *FitCheck) addRepeller(other *Pod, where topologyValue) {
	previous := q.repellers[where]
	if previous != nil && byKey(previous.Pod, other.Pod) <= 0 {
		return
	}
	if q.repellers == nil {
		q.repellers = map[topologyValue]*Pod{}
	}
	q.repellers[where] = other
	if !slices.Contains(q.repellerKeys, where.key) {
		q.repellerKeys = append(q.repellerKeys, where.key)
	}
}

// readAffinity finds the topologies with pods that the required affinity of the pod needs. Only
// pods that match all terms count (pkg/scheduler/framework/plugins/interpodaffinity/filtering.go,
// updateWithAffinityTerms and satisfyPodAffinity, v1.37.2).
func (q *FitCheck) readAffinity() {
	all := q.pod.affinity
	if len(all) == 0 {
		return
	}
	matchesAll := func(other *Pod) bool {
		return !slices.ContainsFunc(all, func(t term) bool { return !t.matches(q.c, other) })
	}
	for i := range all {
		q.affinityKeys = append(q.affinityKeys, all[i].key)
	}
	q.affinityPlaces = map[topologyValue]bool{}
	all[0].visit(q.c, func(other *Pod) {
		if q.ignores(other) || !matchesAll(other) {
			return
		}
		for _, key := range q.affinityKeys {
			if where, ok := topologyOf(other.Node, key); ok {
				q.affinityPlaces[where] = true
			}
		}
	})
	q.firstOfGroup = len(q.affinityPlaces) == 0 && matchesAll(q.pod)
}

func (c *Cluster) countSpread(p *Pod, k *Constraint) spreadCount {
	s, l := spreadCount{Constraint: k, domains: map[string]int{}}, c.fitLayoutOf(k)
	for _, other := range c.selected(p.Namespace, &k.indexed) {
		if other == p || other.Node == nil || !k.Counts(other) {
			continue
		}
		if at := l.byOrdinal[other.Node.ordinal]; at >= 0 {
			s.domains[l.names[at]]++
		}
	}
	if len(s.domains) == len(l.names) { // otherwise a domain is empty: least is 0
		s.least = k.MinCount(s.domains)
	}
	if k.Selector.Matches(labels.Set(p.Labels)) {
		s.self = 1
	}
	return s
}

// failure explains why a pod does not fit on a node. Its text is built only when needed: most are
// never read.
type failure struct {
	format string // empty: the pod fits
	pod    *Pod   // for %s
	name   string // resource, claim or label for %s
	// for %s
	taint *v1.Taint
}

const (
	reasonNotReady     = "node is not ready"
	reasonCordoned     = "node is cordoned"
	reasonNodeAffinity = "node selector or node affinity does not match"
	reasonTaint        = "taint %s is not tolerated"
	reasonResource     = "insufficient %s"
	reasonPort         = "host port is in use by %s"
	reasonVolume       = "node cannot reach the volume of claim %s"
	reasonAntiAffinity = "anti-affinity conflicts with %s"
	reasonAffinity     = "no pod matches its pod affinity in the node's topology"
	reasonTopologyKey  = "node has no topology label %s"
	reasonMaxSkew      = "maxSkew of topology key %s would be exceeded"
)

func (r *failure) String() string {
	value := r.name
	switch {
	case r.pod != nil:
		value = r.pod.Key()
	case r.taint != nil:
		value = r.taint.ToString()
	}
	return strings.Replace(r.format, "%s", value, 1)
}

// FailureReason returns why the pod does not fit on a node; empty: it fits. For the pod's own node,
// the check ignores the pod itself.
func (q *FitCheck) FailureReason(n *Node) string {
	r := q.check(n)
	return r.String()
}

func (q *FitCheck) fits(n *Node) bool { return q.check(n).format == "" }

func (q *FitCheck) check(n *Node) failure {
	switch {
	case !n.ready:
		return failure{format: reasonNotReady}
	case n.Spec.Unschedulable:
		return failure{format: reasonCordoned}
	}
	if !q.pod.MatchesNodeAffinity(n) {
		return failure{format: reasonNodeAffinity}
	}
	if t := n.Untolerated(&q.tolerated, HardTaint); t != nil {
		return failure{format: reasonTaint, taint: t}
	}
	if name := q.missingResource(n); name != "" {
		return failure{format: reasonResource, name: string(name)}
	}
	if other := q.portConflict(n); other != nil {
		return failure{format: reasonPort, pod: other}
	}
	if claim := q.c.unreachableClaim(q.claims, n); claim != "" {
		return failure{format: reasonVolume, name: claim}
	}
	return q.checkOtherPods(n)
}

// checkOtherPods checks affinity, anti-affinity and spread constraints.
func (q *FitCheck) checkOtherPods(n *Node) failure {
	for _, key := range q.repellerKeys {
		if where, ok := topologyOf(n, key); ok && q.repellers[where] != nil {
			return failure{format: reasonAntiAffinity, pod: q.repellers[where]}
		}
	}
	for _, key := range q.affinityKeys {
		if where, ok := topologyOf(n, key); !ok || !q.firstOfGroup && !q.affinityPlaces[where] {
			return failure{format: reasonAffinity}
		}
	}
	for i := range q.spread {
		s := &q.spread[i]
		domain, ok := n.Labels[s.Key]
		if !ok {
			return failure{format: reasonTopologyKey, name: s.Key}
		}
		if s.domains[domain]+s.self-s.least > s.MaxSkew {
			return failure{format: reasonMaxSkew, name: s.Key}
		}
	}
	return failure{}
}

// vacates reports whether the pod is on a node and counts as gone.
func (q *FitCheck) vacates(n *Node) bool { return q.pod.Node == n && !q.terminating }

// missingResource calls Node.missingResource without a pod that counts as gone.
func (q *FitCheck) missingResource(n *Node) v1.ResourceName {
	if !q.vacates(n) {
		return n.missingResource(q.pod)
	}
	var name v1.ResourceName
	q.c.Without(q.pod, func() { name = n.missingResource(q.pod) })
	return name
}

// portConflict returns a pod on the node that uses a host port of the checked pod; nil: none.
func (q *FitCheck) portConflict(n *Node) *Pod {
	if len(q.ports) == 0 {
		return nil
	}
	for _, other := range n.Pods {
		if q.ignores(other) || other.Ended {
			continue
		}
		for _, used := range hostPorts(other.Pod) {
			for _, wanted := range q.ports {
				if portsConflict(&used, &wanted) {
					return other
				}
			}
		}
	}
	return nil
}

// hostPorts returns the host ports of a pod's containers. For a pod with hostNetwork the API
// server sets hostPort of all ports.
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

// portsConflict reports whether two host ports conflict. An empty address means all addresses, an
// empty protocol TCP.
func portsConflict(a, b *v1.ContainerPort) bool {
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

// MatchesNodeAffinity reports whether a node matches the pod's node selector and required node
// affinity.
func (p *Pod) MatchesNodeAffinity(n *Node) bool { return p.matchesNode(n) }
