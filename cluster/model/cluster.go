package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Objects are what a cluster is made of. They are read and never changed.
type Objects struct {
	Nodes      []*v1.Node
	Pods       []*v1.Pod
	Namespaces []*v1.Namespace
	Claims     []*v1.PersistentVolumeClaim
	Volumes    []*v1.PersistentVolume
}

// Cluster is who is where.
type Cluster struct {
	Nodes []*Node // by name

	byName  map[string]*Node
	spaces  map[string]labels.Set // labels of namespaces that are known
	pods    map[string][]*Pod     // by namespace
	anti    map[about][]*Pod      // with required anti-affinity, by what it is about
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume

	templates *Templates
	index     index
	room      room
	moves     []move
	changes   int
	layouts   map[string]*layout // by what a constraint says of nodes
}

// Node is a node and the pods on it.
type Node struct {
	*v1.Node
	Pods []*Pod // those that have ended included, in the order of their names

	whole     amounts // of the node, for pods
	requested amounts
	running   int // pods that have not ended
	ready     bool
	place     int // in Cluster.Nodes
	changed   int // Cluster.Changes after the last of the node
	kin       int // pods of the owner that a search is about; 0 but for that time
}

// Pod is a pod, where it is, and what a scheduler asks about it.
type Pod struct {
	*v1.Pod
	Node *Node // nil: on none that is known
	// Replaces is the pod of the snapshot in whose place this one was made in a plan; nil: this one is
	// in the snapshot.
	Replaces *Pod
	Ended    bool // Succeeded or Failed: it takes no room
	// Kin is the same for pods of a namespace whose first owner by kind and name is the same, and from
	// 1 to Kins; 0: it has none.
	Kin int32

	requests *amounts
	*template
}

// Key is namespace/name.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// New makes a cluster of objects, with templates that other clusters may have, too; nil: with its
// own. Of two nodes or pods of one name the later is left out.
func New(o *Objects, templates *Templates) *Cluster {
	if templates == nil {
		templates = NewTemplates()
	}
	c := &Cluster{
		byName: make(map[string]*Node, len(o.Nodes)), spaces: make(map[string]labels.Set,
			len(o.Namespaces)), pods: map[string][]*Pod{},
		anti: map[about][]*Pod{}, claims: map[string]*v1.PersistentVolumeClaim{},
		volumes:   map[string]*v1.PersistentVolume{},
		templates: templates, layouts: map[string]*layout{},
	}
	for _, n := range o.Nodes {
		if c.byName[n.Name] == nil {
			node := &Node{Node: n, whole: allocatable(n), ready: ready(n)}
			c.byName[n.Name], c.Nodes = node, append(c.Nodes, node)
		}
	}
	slices.SortFunc(c.Nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	for i, n := range c.Nodes {
		n.place = i
	}
	for _, ns := range o.Namespaces {
		c.spaces[ns.Name] = ns.Labels
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

// fill puts pods on their nodes, by namespace and name. Lists are made as long as they will be,
// next to each other.
func (c *Cluster) fill(in []*v1.Pod) {
	spaces, count := map[string][]*v1.Pod{}, map[string]int{}
	for _, p := range in {
		count[p.Namespace]++
	}
	for namespace, n := range count {
		spaces[namespace] = make([]*v1.Pod, 0, n)
	}
	for _, p := range in {
		spaces[p.Namespace] = append(spaces[p.Namespace], p)
	}
	pods, here := make([]Pod, 0, len(in)), map[*Node]int{}
	for _, namespace := range slices.Sorted(maps.Keys(spaces)) {
		list := spaces[namespace]
		slices.SortStableFunc(list, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
		list = slices.CompactFunc(list, func(a, b *v1.Pod) bool { return a.Name == b.Name })
		c.pods[namespace] = make([]*Pod, 0, len(list))
		for _, p := range list {
			n := c.byName[p.Spec.NodeName]
			pods = append(pods, c.pod(p))
			pods[len(pods)-1].Node = n
			here[n]++
		}
	}
	for n, count := range here {
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

// Pod makes a pod of its object, on no node yet.
func (c *Cluster) Pod(p *v1.Pod) *Pod {
	made := c.pod(p)
	return &made
}

func (c *Cluster) pod(p *v1.Pod) Pod {
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	return Pod{Pod: p, Ended: ended, Kin: c.templates.kin(p), requests: c.templates.requested(p),
		template: c.templates.of(p)}
}

// Kins is how many there are.
func (c *Cluster) Kins() int { return len(c.templates.kins) }

// Find is the node of a name; nil: there is none.
func (c *Cluster) Find(name string) *Node { return c.byName[name] }

// Namespace is the labels of a namespace. Of one that is not known only the label that every one
// has is.
func (c *Cluster) Namespace(name string) labels.Set {
	if set, ok := c.spaces[name]; ok {
		return set
	}
	return labels.Set{v1.LabelMetadataName: name}
}

// Known reports whether a namespace is one of the objects.
func (c *Cluster) Known(namespace string) bool {
	_, ok := c.spaces[namespace]
	return ok
}

// Counted are the pods of a namespace that are on a node and that a constraint counts.
func (c *Cluster) Counted(namespace string, k *Constraint) (out []*Pod) {
	for _, p := range c.selected(namespace, &k.pick) {
		if p.Node != nil && k.Counts(p) {
			out = append(out, p)
		}
	}
	return out
}

// Pods are all pods, those on no node included, by namespace and name.
func (c *Cluster) Pods() (out []*Pod) {
	for _, namespace := range slices.Sorted(maps.Keys(c.pods)) {
		from := len(out)
		out = append(out, c.pods[namespace]...)
		slices.SortFunc(out[from:], func(a, b *Pod) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// Put puts a pod on a node; nil: it waits for one.
func (c *Cluster) Put(p *Pod, n *Node) {
	c.moves = append(c.moves, move{pod: p, was: p.Node, to: n, put: true})
	c.put(p, n)
}

func (c *Cluster) put(p *Pod, n *Node) {
	c.pods[p.Namespace] = append(c.pods[p.Namespace], p)
	c.index.put(p)
	c.repel(p)
	p.Node = n
	if n != nil {
		n.Pods = append(n.Pods, p)
		n.count(p, 1)
		c.change(n)
	}
}

func (c *Cluster) repel(p *Pod) {
	for _, what := range p.repels {
		c.anti[what] = append(c.anti[what], p)
	}
}

func (c *Cluster) unrepel(p *Pod) {
	for _, what := range p.repels {
		c.anti[what] = without(c.anti[what], p)
	}
}

// Remove takes a pod away for good.
func (c *Cluster) Remove(p *Pod) {
	m := move{pod: p, was: p.Node, onNode: -1, inSpace: slices.Index(c.pods[p.Namespace], p)}
	if n := p.Node; n != nil {
		n.count(p, -1)
		m.onNode = slices.Index(n.Pods, p)
		n.Pods = without(n.Pods, p)
		c.change(n)
	}
	c.moves = append(c.moves, m)
	c.pods[p.Namespace] = without(c.pods[p.Namespace], p)
	c.index.remove(p)
	c.unrepel(p)
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

// Changes is how often the pods on some node were others than before.
func (c *Cluster) Changes() int { return c.changes }

// ChangedSince reports whether the pods on a node are others than after so many changes.
func (n *Node) ChangedSince(changes int) bool { return n.changed > changes }

// Without does something while a pod is not there.
func (c *Cluster) Without(p *Pod, do func()) {
	n := p.Node
	if n == nil {
		do()
		return
	}
	n.count(p, -1)
	p.Node = nil
	do()
	p.Node = n
	n.count(p, 1)
}

// count adds what a pod takes, or takes it off.
func (n *Node) count(p *Pod, sign int64) {
	if p.Ended {
		return
	}
	n.running += int(sign)
	n.requested.add(*p.requests, sign)
}

// Ready reports whether a node may be thought of at all: a condition Ready that is not True says
// no, none says yes, as the descheduler counts (pkg/descheduler/node/node.go, 0.36.0).
func (n *Node) Ready() bool { return n.ready }

func ready(n *v1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			return false
		}
	}
	return true
}
