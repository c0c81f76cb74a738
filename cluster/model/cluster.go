package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Objects are the API objects of a cluster. They are never changed.
type Objects struct {
	Nodes      []*v1.Node
	Pods       []*v1.Pod
	Namespaces []*v1.Namespace
	Claims     []*v1.PersistentVolumeClaim
	Volumes    []*v1.PersistentVolume
}

// Cluster is a cluster with the pods on its nodes.
type Cluster struct {
	Nodes []*Node // by name

	byName          map[string]*Node
	namespaceLabels map[string]labels.Set // of known namespaces
	pods            map[string][]*Pod     // by namespace
	antiAffinity    podsByTarget          // pods with required anti-affinity
	attraction      podsByTarget          // pods with terms that scores of other pods count
	claims          map[string]*v1.PersistentVolumeClaim
	volumes         map[string]*v1.PersistentVolume

	templates *Templates
	taints    *taintIndex
	zones     int // number of values of the zone label
	index     index
	scratch   scratch
	moves     []move
	changes   int
	layouts   map[string]*domainLayout // by layoutKey
}

// Node is a node and the pods on it.
type Node struct {
	*v1.Node
	Pods []*Pod // including ended pods, sorted by namespace and name, later ones appended

	taints      []int32     // numbers of Spec.Taints in index
	index       *taintIndex // of the cluster
	allocatable amounts     // for pods
	requested   amounts
	// requested cpu and memory
	requestedPair pair
	whole         pair // allocatable cpu and memory
	scored        pair // requested cpu and memory as NodeResourcesFit counts them
	running       int  // number of pods that have not ended
	ready         bool
	hasHostname   bool
	hasZone       bool
	zone          int // number of the value of the zone label, also of nodes without it
	ordinal       int // index in Cluster.Nodes
	changed       int // Cluster.Changes after the last change of the node
	siblings      int // pods of the owner, while defaultSpreadSums counts them; otherwise 0
}

// Pod is a pod, its node, and its scheduling terms.
type Pod struct {
	*v1.Pod
	Node *Node // nil: on no known node
	// Replaces is the pod of the snapshot that this one replaces in a plan; nil: the pod is in
	// the snapshot.
	Replaces *Pod
	Ended    bool // Succeeded or Failed: the pod uses no resources
	// OwnerNumber identifies the first owner by kind and name within the namespace, from 1 to
	// Owners; 0: no owner.
	OwnerNumber int32

	requests *podRequests
	*template
}

// Key returns namespace/name.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// New returns a cluster of objects. Clusters may share templates; nil: the cluster has its own.
// Of nodes or pods with the same name, the first wins.
func New(o *Objects, templates *Templates) *Cluster {
	if templates == nil {
		templates = NewTemplates()
	}
	c := &Cluster{
		byName: make(map[string]*Node, len(o.Nodes)), namespaceLabels: make(map[string]labels.Set,
			len(o.Namespaces)), pods: map[string][]*Pod{},
		antiAffinity: podsByTarget{}, attraction: podsByTarget{},
		claims:    map[string]*v1.PersistentVolumeClaim{},
		volumes:   map[string]*v1.PersistentVolume{},
		templates: templates, taints: newTaintIndex(), layouts: map[string]*domainLayout{},
	}
	for _, n := range o.Nodes {
		if c.byName[n.Name] == nil {
			node := &Node{Node: n, allocatable: allocatableOf(n), ready: readyCondition(n),
				taints: c.taints.add(n), index: c.taints}
			node.whole = node.allocatable.pair()
			c.byName[n.Name], c.Nodes = node, append(c.Nodes, node)
		}
	}
	slices.SortFunc(c.Nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	zones := map[string]int{}
	for i, n := range c.Nodes {
		n.ordinal = i
		zone := ""
		_, n.hasHostname = n.Labels[v1.LabelHostname]
		zone, n.hasZone = n.Labels[v1.LabelTopologyZone]
		if _, known := zones[zone]; !known {
			zones[zone] = len(zones)
		}
		n.zone = zones[zone]
	}
	c.zones = len(zones)
	for _, ns := range o.Namespaces {
		c.namespaceLabels[ns.Name] = ns.Labels
	}
	for _, claim := range o.Claims {
		c.claims[claim.Namespace+"/"+claim.Name] = claim
	}
	for _, v := range o.Volumes {
		c.volumes[v.Name] = v
	}
	c.fill(o.Pods)
	return c
}

// fill puts pods on their nodes, by namespace and name. It allocates each list once with its
// final length.
func (c *Cluster) fill(in []*v1.Pod) {
	byNamespace, count := map[string][]*v1.Pod{}, map[string]int{}
	for _, p := range in {
		count[p.Namespace]++
	}
	for namespace, n := range count {
		byNamespace[namespace] = make([]*v1.Pod, 0, n)
	}
	for _, p := range in {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	pods, onNode := make([]Pod, 0, len(in)), map[*Node]int{}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		list := byNamespace[namespace]
		slices.SortStableFunc(list, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
		list = slices.CompactFunc(list, func(a, b *v1.Pod) bool { return a.Name == b.Name })
		c.pods[namespace] = make([]*Pod, 0, len(list))
		for _, p := range list {
			n := c.byName[p.Spec.NodeName]
			pods = append(pods, c.newPod(p))
			pods[len(pods)-1].Node = n
			onNode[n]++
		}
	}
	for n, count := range onNode {
		if n != nil {
			n.Pods = make([]*Pod, 0, count)
		}
	}
	for i := range pods {
		c.put(&pods[i], pods[i].Node)
	}
}

func byKey(a, b *v1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// NewPod returns a pod of an object, without a node.
func (c *Cluster) NewPod(p *v1.Pod) *Pod {
	made := c.newPod(p)
	return &made
}

func (c *Cluster) newPod(p *v1.Pod) Pod {
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	return Pod{Pod: p, Ended: ended, OwnerNumber: c.templates.ownerNumber(p), requests: c.templates.requested(p),
		template: c.templates.templateOf(p)}
}

// Owners returns the highest OwnerNumber.
func (c *Cluster) Owners() int { return len(c.templates.ownerNumbers) }

// Find returns a node by name; nil: unknown.
func (c *Cluster) Find(name string) *Node { return c.byName[name] }

// Namespace returns the labels of a namespace. An unknown namespace has only the name label.
func (c *Cluster) Namespace(name string) labels.Set {
	if set, ok := c.namespaceLabels[name]; ok {
		return set
	}
	return labels.Set{v1.LabelMetadataName: name}
}

// KnownNamespace reports whether a namespace is among the objects.
func (c *Cluster) KnownNamespace(namespace string) bool {
	_, ok := c.namespaceLabels[namespace]
	return ok
}

// CountedPods returns the pods of a namespace that are on a node and counted by a constraint.
func (c *Cluster) CountedPods(namespace string, k *Constraint) (out []*Pod) {
	for _, p := range c.selected(namespace, &k.indexed) {
		if p.Node != nil && k.Counts(p) {
			out = append(out, p)
		}
	}
	return out
}

// Pods returns all pods, including those without a node, by namespace and name.
func (c *Cluster) Pods() (out []*Pod) {
	for _, namespace := range slices.Sorted(maps.Keys(c.pods)) {
		from := len(out)
		out = append(out, c.pods[namespace]...)
		slices.SortFunc(out[from:], func(a, b *Pod) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// Put adds a pod on a node; nil: without a node.
func (c *Cluster) Put(p *Pod, n *Node) {
	c.moves = append(c.moves, move{pod: p, from: p.Node, to: n, put: true})
	c.put(p, n)
}

func (c *Cluster) put(p *Pod, n *Node) {
	c.pods[p.Namespace] = append(c.pods[p.Namespace], p)
	c.index.put(p)
	c.indexTerms(p)
	p.Node = n
	if n != nil {
		n.Pods = append(n.Pods, p)
		n.account(p, 1)
		c.change(n)
	}
}

func (c *Cluster) indexTerms(p *Pod) {
	c.antiAffinity.add(p, p.targets)
	c.attraction.add(p, p.attractionTargets)
}

func (c *Cluster) unindexTerms(p *Pod) {
	c.antiAffinity.remove(p, p.targets)
	c.attraction.remove(p, p.attractionTargets)
}

// Remove removes a pod. Undo can restore it.
func (c *Cluster) Remove(p *Pod) {
	m := move{pod: p, from: p.Node, nodeIndex: -1, namespaceIndex: slices.Index(c.pods[p.Namespace], p)}
	if n := p.Node; n != nil {
		n.account(p, -1)
		m.nodeIndex = slices.Index(n.Pods, p)
		n.Pods = without(n.Pods, p)
		c.change(n)
	}
	c.moves = append(c.moves, m)
	c.pods[p.Namespace] = without(c.pods[p.Namespace], p)
	c.index.remove(p)
	c.unindexTerms(p)
	p.Node = nil
}

func without(pods []*Pod, p *Pod) []*Pod {
	if i := slices.Index(pods, p); i >= 0 {
		return slices.Delete(pods, i, i+1)
	}
	return pods
}

func (c *Cluster) change(n *Node) {
	c.changes++
	n.changed = c.changes
}

// Changes returns how often the pods of any node have changed.
func (c *Cluster) Changes() int { return c.changes }

// ChangedSince reports whether the pods of the node changed after Cluster.Changes returned
// changes.
func (n *Node) ChangedSince(changes int) bool { return n.changed > changes }

// Without calls do while the resources of a pod, which is on a node, are not accounted to it.
func (c *Cluster) Without(p *Pod, do func()) {
	n := p.Node
	n.account(p, -1)
	p.Node = nil
	do()
	p.Node = n
	n.account(p, 1)
}

// account adds or subtracts the requests of a pod.
func (n *Node) account(p *Pod, sign int64) {
	if p.Ended {
		return
	}
	n.running += int(sign)
	n.requested.add(p.requests.amounts, sign)
	n.requestedPair = n.requestedPair.plus(p.requests.pair, sign)
	n.scored = n.scored.plus(p.requests.scored, sign)
}

// Ready reports whether a node is considered: false for a condition Ready other than True, true
// without the condition, as in descheduler 0.36.0 (pkg/descheduler/node/node.go).
func (n *Node) Ready() bool { return n.ready }

func readyCondition(n *v1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			return false
		}
	}
	return true
}
