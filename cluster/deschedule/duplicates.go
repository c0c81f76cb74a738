package deschedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// group is pods that do the same: of one owner, with the same images. A pod of several owners is in the group of all of them together, so
// it counts once.
type group struct {
	key    string
	byNode map[*model.Node][]*model.Pod
	count  int
}

// duplicates evicts pods of one owner of which a node has more than its share, where another node has less.
func duplicates(r *run, args any) {
	a := args.(*RemoveDuplicatesArgs)
	groups := map[string]*group{}
	for _, n := range r.nodes {
		for _, p := range running(n) {
			if len(p.OwnerReferences) == 0 || !a.Namespaces.match(p.Namespace) || ownerKind(p, a.ExcludeOwnerKinds) {
				continue
			}
			if r.evictor.keeps(p) != "" || r.evictor.late(p) != "" {
				continue
			}
			key := sameness(p)
			g := groups[key]
			if g == nil {
				g = &group{key: key, byNode: map[*model.Node][]*model.Pod{}}
				groups[key] = g
			}
			g.byNode[n] = append(g.byNode[n], p)
			g.count++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		if r.thin(groups[key]) == full {
			return
		}
	}
}

// sameness is the same for pods of one namespace with the same owners and images.
func sameness(p *model.Pod) string {
	var owners, images []string
	for _, o := range p.OwnerReferences {
		owners = append(owners, o.Kind+"/"+o.Name)
	}
	for i := range p.Spec.Containers {
		images = append(images, p.Spec.Containers[i].Image)
	}
	slices.Sort(owners)
	slices.Sort(images)
	return p.Namespace + " " + strings.Join(owners, ",") + " " + strings.Join(images, "#")
}

// thin evicts what is more than a node's share.
func (r *run) thin(g *group) outcome {
	targets := r.targets(g)
	if targets < 2 {
		return kept
	}
	share := (g.count + targets - 1) / targets
	here := func(n *model.Node) (count int) {
		for _, p := range running(n) {
			if sameness(p) == g.key && r.evictor.keeps(p) == "" {
				count++
			}
		}
		return count
	}
	for _, n := range r.nodes {
		pods := sorted(g.byNode[n], func(a, b *model.Pod) int { return firstToGo(b, a) }) // the one that is best kept first
		if len(pods) < 2 || len(pods) <= share {
			continue
		}
		for _, p := range pods[share:] {
			w := &wish{
				pod:    p,
				reason: fmt.Sprintf("%s has %d pods like it, and its share of %d on %d nodes is %d", n.Name, len(pods), g.count, targets, share),
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

// targets is how many nodes there are for the pods of a group that have company on theirs. A pod that only one node is for has no choice.
func (r *run) targets(g *group) int {
	found := map[*model.Node]bool{}
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
			var fit []*model.Node
			for _, to := range r.nodes {
				if p.Belongs(to) && model.Untolerated(to.Node, p.Spec.Tolerations, model.Keeps) == nil {
					fit = append(fit, to)
				}
			}
			if len(fit) > 1 {
				for _, to := range fit {
					found[to] = true
				}
			}
		}
	}
	return len(found)
}

// placement is the same for pods of which the same nodes are asked.
func placement(p *v1.Pod) string {
	var required *v1.NodeSelector
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return fmt.Sprint(p.Spec.Tolerations, p.Spec.NodeSelector, required)
}
