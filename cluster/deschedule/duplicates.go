package deschedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// group is pods that do the same: of one owner, with the same images. A pod of several owners is in
// the group of all of them together, so it counts once.
type group struct {
	key    sameness
	byNode map[*model.Node][]*model.Pod
	count  int
	// of all, whatever the evictor says last, on the nodes that are looked at
	here map[*model.Node]int
	as   int // of so many changes of the cluster
}

// sameness is the same for pods of one namespace with the same owners and images: the first of
// each, sorted, and the others.
type sameness struct{ namespace, kind, owner, image, others string }

// duplicates evicts pods of one owner of which a node has more than its share, where another node
// has less.
func duplicates(r *run, args any) {
	a := args.(*RemoveDuplicatesArgs)
	as := r.cluster.Changes()
	together, alike := r.together(), map[sameness][]*model.Pod{} // node by node
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			if p.Ended || p.Kin == 0 || !together[p.Kin] || !a.Namespaces.match(p.Namespace) ||
				ownerKind(p, a.ExcludeOwnerKinds) || r.evictor.keeps(p) != "" {
				continue
			}
			key := samenessOf(p)
			alike[key] = append(alike[key], p)
		}
	}
	var groups []*group
	for key, pods := range alike {
		if company(pods) { // only of these the evictor is asked what it is asked last, which takes long
			groups = append(groups, r.group(key, pods, as))
		}
	}
	slices.SortFunc(groups, func(a, b *group) int { return a.key.compare(b.key) })
	for _, g := range groups {
		if r.thin(g) == full {
			return
		}
	}
}

// together are those of whom two are on one node, by Kin: of others, which are most, there is
// nothing more to know.
func (r *run) together() []bool {
	// the last node where there is one
	out, last := make([]bool, r.cluster.Kins()+1), make([]int32, r.cluster.Kins()+1)
	for i, n := range r.nodes {
		for _, p := range n.Pods {
			if p.Ended || p.Kin == 0 {
				continue
			}
			out[p.Kin] = out[p.Kin] || last[p.Kin] == int32(i+1)
			last[p.Kin] = int32(i + 1)
		}
	}
	return out
}

// company reports whether two of some pods, which are listed node by node, are on the same node.
func company(pods []*model.Pod) bool {
	for i := 1; i < len(pods); i++ {
		if pods[i].Node == pods[i-1].Node {
			return true
		}
	}
	return false
}

func (r *run) group(key sameness, pods []*model.Pod, as int) *group {
	g := &group{key: key, byNode: map[*model.Node][]*model.Pod{}, here: map[*model.Node]int{}, as: as}
	for _, p := range pods {
		g.here[p.Node]++
		if r.evictor.late(p) == "" {
			g.byNode[p.Node] = append(g.byNode[p.Node], p)
			g.count++
		}
	}
	return g
}

func samenessOf(p *model.Pod) sameness {
	out := sameness{namespace: p.Namespace}
	// as of most pods: there is nothing to sort
	if len(p.OwnerReferences) == 1 && len(p.Spec.Containers) == 1 {
		out.kind, out.owner, out.image = p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name,
			p.Spec.Containers[0].Image
		return out
	}
	var owners, images []string
	for _, o := range p.OwnerReferences {
		owners = append(owners, o.Kind+"/"+o.Name)
	}
	for i := range p.Spec.Containers {
		images = append(images, p.Spec.Containers[i].Image)
	}
	slices.Sort(owners)
	slices.Sort(images)
	out.others = strings.Join(owners, ",") + " " + strings.Join(images, "#")
	return out
}

func (s sameness) compare(other sameness) int {
	return cmp.Or(strings.Compare(s.namespace, other.namespace), strings.Compare(s.kind, other.kind),
		strings.Compare(s.owner, other.owner),
		strings.Compare(s.image, other.image), strings.Compare(s.others, other.others))
}

// thin evicts what is more than a node's share.
func (r *run) thin(g *group) outcome {
	targets := r.targets(g)
	if targets < 2 {
		return kept
	}
	share := (g.count + targets - 1) / targets
	here := func(n *model.Node) (count int) {
		if r.looked[n] && !n.ChangedSince(g.as) {
			return g.here[n]
		}
		for _, p := range n.Pods {
			if !p.Ended && samenessOf(p) == g.key && r.evictor.keeps(p) == "" {
				count++
			}
		}
		return count
	}
	for _, n := range r.nodes {
		if len(g.byNode[n]) < 2 || len(g.byNode[n]) <= share {
			continue
		}
		// the one that is best kept first
		pods := sorted(g.byNode[n], func(a, b *model.Pod) int { return firstToGo(b, a) })
		for _, p := range pods[share:] {
			w := &wish{
				pod: p,
				reason: fmt.Sprintf("%s has %d pods like it, and its share of %d on %d nodes is %d", n.Name,
					len(pods), g.count, targets, share),
				helps:  func(to *model.Node) bool { return to != n && here(to) < share },
				undone: "they have their share of such pods, too",
			}
			switch r.evict(w) {
			case full:
				return full
			case nodeFull:
			default:
				continue
			}
			break
		}
	}
	return kept
}

// targets is how many nodes there are for the pods of a group that have company on theirs. A pod
// that only one node is for has no choice.
func (r *run) targets(g *group) int {
	found, fit := make([]bool, len(r.nodes)), make([]int, 0, len(r.nodes))
	asked := map[string]bool{}
	for _, n := range r.nodes {
		if len(g.byNode[n]) < 2 {
			continue
		}
		for _, p := range g.byNode[n] {
			terms := placement(p.Pod)
			if asked[terms] {
				continue
			}
			asked[terms] = true
			fit = fit[:0]
			for i, to := range r.nodes {
				if p.Belongs(to) && model.Untolerated(to.Node, p.Spec.Tolerations, model.Keeps) == nil {
					fit = append(fit, i)
				}
			}
			if len(fit) > 1 {
				for _, i := range fit {
					found[i] = true
				}
			}
		}
	}
	count := 0
	for _, is := range found {
		if is {
			count++
		}
	}
	return count
}

// placement is the same for pods of which the same nodes are asked.
func placement(p *v1.Pod) string {
	var required *v1.NodeSelector
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return fmt.Sprint(p.Spec.Tolerations, p.Spec.NodeSelector, required)
}
