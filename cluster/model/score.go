package model

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The scores are those of the plugins under pkg/scheduler/framework/plugins (v1.37.2), in the
// scheduler's integers: nodes that score equally there score equally here.
//
// ImageLocality is left out: the images of thousands of nodes would take more memory than all other
// fields, and a kubelet reports only 50 of them. Services are not among the objects, so default
// spreading counts the pods of the same owner.

// maxScore is the highest score of one plugin (MaxNodeScore).
const maxScore = 100

// scores returns the weighted scores of nodes that the pod fits on.
func (q *FitCheck) scores(nodes []*Node, profile *SchedulerProfile) []int64 {
	s := &q.c.scratch
	if len(nodes) == 0 {
		return nil
	}
	total, part := zeroed(&s.scores, len(nodes)), zeroed(&s.part, len(nodes))
	for _, plugin := range []struct {
		weight int64
		score  func(nodes []*Node, part []int64)
	}{
		{profile.TaintToleration, q.scoreTaints},
		{profile.NodeAffinity, q.scoreNodeAffinity},
		{profile.PodTopologySpread, q.scoreSpread},
		{profile.InterPodAffinity, q.scorePodAffinity},
		{profile.NodeResourcesFit, func(nodes []*Node, part []int64) {
			q.scoreAllocation(nodes, part, profile.Packing)
		}},
		{profile.NodeResourcesBalancedAllocation, q.scoreBalance},
	} {
		if plugin.weight == 0 {
			continue
		}
		clear(part)
		plugin.score(nodes, part)
		for i := range total {
			total[i] += plugin.weight * part[i]
		}
	}
	return total
}

// Scores returns the weighted score of each node that the pod fits on and that a scheduler
// considers.
func (q *FitCheck) Scores(profile *SchedulerProfile) map[string]int64 {
	out, fit := map[string]int64{}, q.feasible()
	for i, score := range q.scores(fit, profile) {
		out[fit[i].Name] = score
	}
	return out
}

// scratch holds buffers that searches reuse.
type scratch struct {
	feasible     []*Node
	others       []*Node   // other feasible nodes of the check othersOf
	othersOf     *FitCheck // nil: none
	scores, part []int64
	sums         []float64 // of spread constraints
	ignored      []bool    // nodes that lack a key of a spread constraint
	nodes        []bool
	zones        []zoneCount // by Node.zone
}

// zoneCount is the number of pods in a zone; scored: one of the scored nodes is in the zone.
type zoneCount struct {
	pods   int
	scored bool
}

// nodeSet returns a slice of false for each node.
func (r *scratch) nodeSet(nodes int) []bool { return zeroed(&r.nodes, nodes) }

func zeroed[T any](from *[]T, count int) []T {
	*from = slices.Grow((*from)[:0], count)[:count]
	clear(*from)
	return *from
}

// scoreTaints scores the number of PreferNoSchedule taints that are not tolerated
// (tainttoleration/taint_toleration.go).
func (q *FitCheck) scoreTaints(nodes []*Node, part []int64) {
	for i, n := range nodes {
		for j, number := range n.taints {
			if n.Spec.Taints[j].Effect == v1.TaintEffectPreferNoSchedule && !q.tolerated.has(number) {
				part[i]++
			}
		}
	}
	normalize(part)
	for i := range part {
		part[i] = maxScore - part[i]
	}
}

// scoreNodeAffinity scores preferred node affinity (nodeaffinity/node_affinity.go).
func (q *FitCheck) scoreNodeAffinity(nodes []*Node, part []int64) {
	for i, n := range nodes {
		part[i] = q.pod.Preference(n)
	}
	normalize(part)
}

// normalize scales scores so that the highest becomes maxScore (helper/normalize_score.go).
func normalize(scores []int64) {
	most := slices.Max(scores)
	if most <= 0 {
		return
	}
	for i := range scores {
		scores[i] = maxScore * scores[i] / most
	}
}

// scoreAllocation scores the free or the used part of cpu and memory. Containers without a request
// count with a minimum (noderesources/least_allocated.go, most_allocated.go).
func (q *FitCheck) scoreAllocation(nodes []*Node, part []int64, packing Packing) {
	pod := q.pod.requests.scored
	for i, n := range nodes {
		used := n.scored.plus(pod, 1)
		if q.vacates(n) {
			used = used.plus(pod, -1)
		}
		sum, known := int64(0), int64(0)
		for k, whole := range n.whole {
			if whole <= 0 {
				continue
			}
			known++
			switch {
			case packing == MostAllocated:
				sum += min(used[k], whole) * maxScore / whole
			case used[k] <= whole:
				sum += (whole - used[k]) * maxScore / whole
			}
		}
		if known > 0 {
			part[i] = sum / known
		}
	}
}

// scoreBalance scores how much the pod balances the used parts of cpu and memory. A pod that
// requests neither has no score (noderesources/balanced_allocation.go).
func (q *FitCheck) scoreBalance(nodes []*Node, part []int64) {
	pod := q.pod.requests.pair
	if pod == (pair{}) {
		return
	}
	for i, n := range nodes {
		before := n.requestedPair
		if q.vacates(n) {
			before = before.plus(pod, -1)
		}
		gain := balance(before.plus(pod, 1), n.whole) - balance(before, n.whole)
		part[i] = maxScore/2 + (maxScore/2+gain)/2
	}
}

// balance returns 100 if the same part of cpu and of memory is used, and less otherwise.
func balance(used, whole pair) int64 {
	deviation := 0.0
	if whole[0] > 0 && whole[1] > 0 {
		deviation = math.Abs((min(float64(used[0])/float64(whole[0]), 1) -
			min(float64(used[1])/float64(whole[1]), 1)) / 2)
	}
	return int64((1 - deviation) * maxScore)
}

// Default spreading applies to pods without constraints (podtopologyspread/plugin.go).
const (
	defaultHostSkew = 3
	defaultZoneSkew = 5
)

// scoreSpread scores the number of pods from which soft constraints, or the scheduler's default
// ones, spread the pod (podtopologyspread/scoring.go). Pods being deleted do not count.
func (q *FitCheck) scoreSpread(nodes []*Node, part []int64) {
	sums, ignored := q.spreadSums(nodes)
	if sums == nil {
		return
	}
	least, most := int64(math.MaxInt64), int64(0)
	for i := range nodes {
		if !ignored[i] {
			part[i] = int64(math.Round(sums[i]))
			least, most = min(least, part[i]), max(most, part[i])
		}
	}
	for i := range nodes {
		switch {
		case ignored[i]:
			part[i] = 0
		case most == 0:
			part[i] = maxScore
		default:
			part[i] = maxScore * (most + least - part[i]) / most
		}
	}
}

// spreadSums returns the sums of the constraints for each node, and which nodes lack a topology key
// of the pod's own constraints; nil: there is no constraint.
func (q *FitCheck) spreadSums(nodes []*Node) (sums []float64, ignored []bool) {
	p, s := q.pod, &q.c.scratch
	ignored = zeroed(&s.ignored, len(nodes))
	if len(p.spread) == 0 {
		return q.defaultSpreadSums(nodes), ignored
	}
	soft := p.soft
	if len(soft.list) == 0 {
		return nil, nil
	}
	sums = zeroed(&s.sums, len(nodes))
	scored := 0
	for i, n := range nodes {
		if ignored[i] = !soft.keys.has(n); !ignored[i] {
			scored++
		}
	}
	for _, k := range soft.list {
		counts := q.countSoft(k)
		domains := scored
		if k.Key != v1.LabelHostname {
			distinct := map[string]bool{}
			for i, n := range nodes {
				if !ignored[i] {
					distinct[n.Labels[k.Key]] = true
				}
			}
			domains = len(distinct)
		}
		weight := spreadWeight(domains)
		for i, n := range nodes {
			if !ignored[i] {
				place := n.Labels[k.Key]
				if k.Key == v1.LabelHostname {
					place = n.Name
				}
				sums[i] += spreadScore(counts[place], k.MaxSkew, weight)
			}
		}
	}
	return sums, ignored
}

// countSoft counts the pods of a soft constraint by node name for the host name, otherwise by
// domain. An empty selector counts none, as in kube-scheduler.
func (q *FitCheck) countSoft(k *Constraint) map[string]int {
	counts := map[string]int{}
	if k.Selector.Empty() {
		return counts
	}
	for _, other := range q.c.selected(q.pod.Namespace, &k.indexed) {
		switch n := other.Node; {
		case other == q.pod || n == nil || !k.Counts(other):
		case k.Key == v1.LabelHostname:
			counts[n.Name]++
		default:
			if domain, ok := k.Domain(n); ok && q.pod.soft.keys.has(n) {
				counts[domain]++
			}
		}
	}
	return counts
}

// defaultSpreadSums applies the default constraints, on host names and zones, to the pods of the
// same owner; nil: the scheduler knows no selector of the owner.
func (q *FitCheck) defaultSpreadSums(nodes []*Node) []float64 {
	owner := metav1.GetControllerOfNoCopy(q.pod.Pod)
	if owner == nil && len(q.pod.OwnerReferences) > 0 {
		owner = &q.pod.OwnerReferences[0]
	}
	if owner == nil {
		return nil
	}
	switch owner.Kind {
	case "ReplicaSet", "StatefulSet", "ReplicationController":
	default:
		return nil
	}
	zones, scoredZones := zeroed(&q.c.scratch.zones, q.c.zones), 0
	for _, n := range nodes {
		if zone := &zones[n.zone]; !zone.scored {
			zone.scored = true
			scoredZones++
		}
	}
	siblings := q.c.ownedBy(q.pod.Namespace, owner)
	count := func(other *Pod) bool {
		return other != q.pod && other.Node != nil && !other.Ended && other.DeletionTimestamp == nil &&
			other.OwnedBy(owner)
	}
	for _, other := range siblings {
		if count(other) {
			other.Node.siblings++
			if q.pod.MatchesNodeAffinity(other.Node) {
				zones[other.Node.zone].pods++
			}
		}
	}
	sums := zeroed(&q.c.scratch.sums, len(nodes))
	hostWeight, zoneWeight := spreadWeight(len(nodes)), spreadWeight(scoredZones)
	for i, n := range nodes {
		if n.hasHostname {
			sums[i] += spreadScore(n.siblings, defaultHostSkew, hostWeight)
		}
		if n.hasZone {
			sums[i] += spreadScore(zones[n.zone].pods, defaultZoneSkew, zoneWeight)
		}
	}
	for _, other := range siblings {
		if other.Node != nil {
			other.Node.siblings = 0
		}
	}
	return sums
}

// spreadScore returns the score of count pods in a domain.
func spreadScore(count, maxSkew int, weight float64) float64 {
	return float64(count)*weight + float64(maxSkew-1)
}

// spreadWeight returns the weight of a pod in a domain, which grows with the number of domains.
func spreadWeight(domains int) float64 { return math.Log(float64(domains + 2)) }

// scorePodAffinity scores preferred affinity and anti-affinity of the pod and of the pods that run
// (interpodaffinity/scoring.go). Required affinity of running pods attracts with a weight of 1.
func (q *FitCheck) scorePodAffinity(nodes []*Node, part []int64) {
	sums := q.attraction()
	if len(sums) == 0 {
		return
	}
	for i, n := range nodes {
		for key, byValue := range sums {
			if value, ok := n.Labels[key]; ok {
				part[i] += byValue[value]
			}
		}
	}
	least, most := slices.Min(part), slices.Max(part)
	for i := range part {
		if most > least {
			part[i] = int64(maxScore * (float64(part[i]-least) / float64(most-least)))
		} else {
			part[i] = 0
		}
	}
}

// attraction returns the summed weights of terms by topology key and value.
func (q *FitCheck) attraction() map[string]map[string]int64 {
	sums := map[string]map[string]int64{}
	add := func(where topologyValue, weight int64) {
		if sums[where.key] == nil {
			sums[where.key] = map[string]int64{}
		}
		sums[where.key][where.value] += weight
	}
	for i := range q.pod.attraction {
		t := &q.pod.attraction[i]
		if t.required {
			continue
		}
		t.visitPlaces(q.c, func(other *Pod, where topologyValue) {
			if !q.ignores(other) {
				add(where, t.weight)
			}
		})
	}
	var attracting distinct[*Pod] // a pod may have several terms
	q.c.attraction.visit(q.pod, func(pods []*Pod) {
		for _, other := range pods {
			attracting.add(other)
		}
	})
	for _, other := range attracting.list {
		if q.ignores(other) || other.Node == nil || other.Ended {
			continue
		}
		for i := range other.attraction {
			t := &other.attraction[i]
			if where, ok := topologyOf(other.Node, t.key); ok && t.matches(q.c, q.pod) {
				add(where, t.weight)
			}
		}
	}
	return sums
}

// OwnedPods returns the pods with the same owner as the i-th reference of a pod.
func (c *Cluster) OwnedPods(p *Pod, i int) (out []*Pod) {
	owner := &p.OwnerReferences[i]
	for _, other := range c.ownedBy(p.Namespace, owner) {
		if other.OwnedBy(owner) {
			out = append(out, other)
		}
	}
	return out
}

// OwnedBy reports whether a pod has an owner.
func (p *Pod) OwnedBy(owner *metav1.OwnerReference) bool {
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; o.UID == owner.UID && o.Kind == owner.Kind &&
			o.Name == owner.Name {
			return true
		}
	}
	return false
}
