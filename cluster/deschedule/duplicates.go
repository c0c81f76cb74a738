package deschedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// group is a set of duplicates: pods with the same owners and images. A pod with several owners
// belongs only to the group with the same set of owners, so it counts once.
type group struct {
	key    groupKey
	byNode map[*model.Node][]*model.Pod
	count  int
	// pods of the group on the selected nodes, including those that preEvictionFilter protects
	allByNode map[*model.Node]int
	// Cluster.Changes when allByNode was counted
	version int
}

// groupKey identifies a group. A pod with one owner and one container sets kind, owner and image.
// Any other pod sets others to its sorted owners and images.
type groupKey struct{ namespace, kind, owner, image, others string }

// duplicates evicts pods of an owner from nodes that have more than their share, if another node
// has less.
func duplicates(r *run, args any) {
	a := args.(*RemoveDuplicatesArgs)
	version := r.cluster.Changes()
	sharing, groupPods := r.ownersSharingNode(), map[groupKey][]*model.Pod{} // node by node
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			if p.Ended || p.OwnerNumber == 0 || !sharing[p.OwnerNumber] || !a.Namespaces.match(p.Namespace) ||
				hasOwnerKind(p, a.ExcludeOwnerKinds) || r.evictor.filter(p) != "" {
				continue
			}
			key := groupKeyOf(p)
			groupPods[key] = append(groupPods[key], p)
		}
	}
	var groups []*group
	for key, pods := range groupPods {
		if shareNode(pods) { // newGroup runs preEvictionFilter, which is slow
			groups = append(groups, r.newGroup(key, pods, version))
		}
	}
	slices.SortFunc(groups, func(a, b *group) int { return a.key.compare(b.key) })
	for _, g := range groups {
		if r.trimGroup(g) == totalLimitReached {
			return
		}
	}
}

// ownersSharingNode reports by Pod.OwnerNumber which owners have two pods on the same node. The
// strategy skips the pods of all other owners before it groups them, which is slow.
func (r *run) ownersSharingNode() []bool {
	// number of the last node with a pod of the owner
	out, last := make([]bool, r.cluster.Owners()+1), make([]int32, r.cluster.Owners()+1)
	for i, n := range r.nodes {
		for _, p := range n.Pods {
			out[p.OwnerNumber] = out[p.OwnerNumber] || last[p.OwnerNumber] == int32(i+1)
			last[p.OwnerNumber] = int32(i + 1)
		}
	}
	return out
}

// shareNode reports whether two of some pods, listed node by node, are on the same node.
func shareNode(pods []*model.Pod) bool {
	for i := 1; i < len(pods); i++ {
		if pods[i].Node == pods[i-1].Node {
			return true
		}
	}
	return false
}

func (r *run) newGroup(key groupKey, pods []*model.Pod, version int) *group {
	g := &group{key: key, byNode: map[*model.Node][]*model.Pod{}, allByNode: map[*model.Node]int{}, version: version}
	for _, p := range pods {
		g.allByNode[p.Node]++
		if r.evictor.preEvictionFilter(p) == "" {
			g.byNode[p.Node] = append(g.byNode[p.Node], p)
			g.count++
		}
	}
	return g
}

func groupKeyOf(p *model.Pod) groupKey {
	out := groupKey{namespace: p.Namespace}
	// most pods: nothing to sort
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

func (s groupKey) compare(other groupKey) int {
	return cmp.Or(strings.Compare(s.namespace, other.namespace), strings.Compare(s.kind, other.kind),
		strings.Compare(s.owner, other.owner),
		strings.Compare(s.image, other.image), strings.Compare(s.others, other.others))
}

// trimGroup evicts the pods that exceed a node's share.
func (r *run) trimGroup(g *group) outcome {
	targets := r.countTargets(g)
	if targets < 2 {
		return podKept
	}
	share := (g.count + targets - 1) / targets
	podsOn := func(n *model.Node) (count int) {
		if r.selected[n] && !n.ChangedSince(g.version) {
			return g.allByNode[n]
		}
		for _, p := range n.Pods {
			if !p.Ended && groupKeyOf(p) == g.key && r.evictor.filter(p) == "" {
				count++
			}
		}
		return count
	}
	for _, n := range r.nodes {
		if len(g.byNode[n]) <= share {
			continue
		}
		// in reverse eviction order
		pods := sorted(g.byNode[n], func(a, b *model.Pod) int { return byEvictionOrder(b, a) })
		for _, p := range pods[share:] {
			if !r.preEvictable(p) { // after earlier evictions
				continue
			}
			w := &proposal{
				pod: p,
				reason: fmt.Sprintf("%s has %d duplicates, its share of %d on %d nodes is %d", n.Name,
					len(pods), g.count, targets, share),
				improves: func(to *model.Node) bool { return to != n && podsOn(to) < share },
				noGain:   "other nodes have their share of duplicates, too",
			}
			switch r.evict(w) {
			case totalLimitReached:
				return totalLimitReached
			case nodeLimitReached:
			default:
				continue
			}
			break
		}
	}
	return podKept
}

// countTargets returns the number of nodes that accept a duplicate: a pod that shares its node with
// another pod of the group. It ignores pods that only one node accepts.
func (r *run) countTargets(g *group) int {
	isTarget, accepting := make([]bool, len(r.nodes)), make([]int, 0, len(r.nodes))
	checked := map[string]bool{}
	for _, n := range r.nodes {
		if len(g.byNode[n]) < 2 {
			continue
		}
		for _, p := range g.byNode[n] {
			tolerated := r.cluster.Tolerated(p)
			terms := placementTerms(p.Pod, &tolerated)
			if checked[terms] {
				continue
			}
			checked[terms] = true
			accepting = accepting[:0]
			for i, to := range r.nodes {
				if p.MatchesNodeAffinity(to) && to.Untolerated(&tolerated, model.HardTaint) == nil {
					accepting = append(accepting, i)
				}
			}
			if len(accepting) > 1 {
				for _, i := range accepting {
					isTarget[i] = true
				}
			}
		}
	}
	count := 0
	for _, target := range isTarget {
		if target {
			count++
		}
	}
	return count
}

// placementTerms returns a text that is equal for pods with equal tolerated taints, node selector
// and required node affinity.
func placementTerms(p *v1.Pod, tolerated *model.ToleratedTaints) string {
	var required *v1.NodeSelector
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return fmt.Sprint(tolerated.Key(), " ", p.Spec.NodeSelector, required)
}
