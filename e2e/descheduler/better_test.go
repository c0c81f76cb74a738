package descheduler

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	"sigs.k8s.io/descheduler/pkg/utils"

	"jettison/cluster/deschedule"
)

// hasToHelp has the strategies that evict a pod only if another node accepts it. The other
// strategies evict it even if it may return.
var hasToHelp = map[string]bool{
	deschedule.LowNodeUtilization: true, deschedule.HighNodeUtilization: true, deschedule.RemoveDuplicates: true,
	deschedule.TopologySpreadConstraint: true, deschedule.NodeTaints: true, deschedule.NodeAffinity: true,
	deschedule.InterPodAntiAffinity: true,
}

// byPreference has the strategies that move pods by preference or utilization.
var byPreference = map[string]bool{
	deschedule.LowNodeUtilization: true, deschedule.HighNodeUtilization: true, deschedule.RemoveDuplicates: true,
	deschedule.TopologySpreadConstraint: true, deschedule.NodeTaints: true, deschedule.NodeAffinity: true,
}

// drains has the strategies that move pods between nodes by utilization.
var drains = map[string]bool{deschedule.LowNodeUtilization: true, deschedule.HighNodeUtilization: true}

// helps reports whether a strategy would reach its goal if an evicted pod moved to a node that
// accepts it: by the arguments of the profile that evicts it, or of any if the descheduler keeps it.
// The node is judged in one state; thresholds and shares are those of another.
func (c *comparison) helps(w went, ruled, is *deschedule.Snapshot, p *v1.Pod, n *v1.Node) bool {
	by, evicted := c.by[w]
	for i := range c.ours.Profiles {
		profile := &c.ours.Profiles[i]
		for _, config := range profile.PluginConfig {
			if (!evicted || profile.Name == by) && config.Name == w.strategy && c.helpsBy(profile, config.Args, ruled, is, p, n) {
				return true
			}
		}
	}
	return false
}

func (c *comparison) helpsBy(profile *deschedule.Profile, args any, ruled, is *deschedule.Snapshot, p *v1.Pod, n *v1.Node) bool {
	switch a := args.(type) {
	case *deschedule.LowNodeUtilizationArgs:
		high := a.TargetThresholds
		if a.UseDeviationThresholds {
			high = c.deviations(ruled, a)
		}
		return !over(is, n, p, high)
	case *deschedule.HighNodeUtilizationArgs:
		return !n.Spec.Unschedulable && !under(ruled, n, a.Thresholds) && slices.Contains(c.looked(ruled), n)
	case *deschedule.RemoveDuplicatesArgs:
		return c.hasRoomForMore(profile, ruled, is, p, n)
	case *deschedule.NodeTaintsArgs:
		for _, t := range nodeOf(is, p.Spec.NodeName).Spec.Taints {
			if t.Effect == v1.TaintEffectNoSchedule && asked(a, &t) && !utils.TolerationsTolerateTaint(context.Background(), p.Spec.Tolerations, &t) {
				return true // a hard violation needs another node alone
			}
		}
		return !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
			return t.Effect == v1.TaintEffectPreferNoSchedule && a.IncludePreferNoSchedule && asked(a, &t) &&
				!utils.TolerationsTolerateTaint(context.Background(), p.Spec.Tolerations, &t)
		})
	case *deschedule.NodeAffinityArgs:
		at := nodeOf(is, p.Spec.NodeName)
		if slices.Contains(a.NodeAffinityType, deschedule.RequiredAffinity) && !nodeutil.PodMatchNodeSelector(p, at) {
			return true
		}
		return nodeutil.GetNodeWeightGivenPodPreferredAffinity(p, n) > nodeutil.GetNodeWeightGivenPodPreferredAffinity(p, at)
	case *deschedule.SpreadArgs:
		return c.spreadsBetter(is, p, n)
	}
	return true
}

func asked(a *deschedule.NodeTaintsArgs, t *v1.Taint) bool {
	named := func(list []string) bool {
		return slices.Contains(list, t.Key) || t.Value != "" && slices.Contains(list, t.Key+"="+t.Value)
	}
	return !named(a.ExcludedTaints) && (len(a.IncludedTaints) == 0 || named(a.IncludedTaints))
}

// looked returns the nodes that a policy selects.
func (c *comparison) looked(s *deschedule.Snapshot) []*v1.Node {
	one := cycle{policy: c.theirs}
	nodes, err := one.nodes(s)
	if err != nil {
		panic(err)
	}
	return nodes
}

// amount returns a pod's request of a resource.
func amount(p *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	q := p.Spec.Containers[0].Resources.Requests[name]
	return plain(name, q.MilliValue())
}

func plain(name v1.ResourceName, milli int64) int64 {
	if name == v1.ResourceCPU {
		return milli
	}
	return (milli + 999) / 1000
}

func used(s *deschedule.Snapshot, n *v1.Node, name v1.ResourceName) (sum int64) {
	for _, p := range s.Pods {
		if p.Spec.NodeName == n.Name && !ended(p) {
			sum += amount(p, name)
		}
	}
	return sum
}

func whole(n *v1.Node, name v1.ResourceName) (int64, bool) {
	q, ok := n.Status.Allocatable[name]
	return plain(name, q.MilliValue()), ok
}

func percent(s *deschedule.Snapshot, n *v1.Node, name v1.ResourceName) float64 {
	if all, _ := whole(n, name); all > 0 {
		return float64(used(s, n, name)) / float64(all) * 100
	}
	return 0
}

// over reports whether a node is over thresholds with a pod.
func over(s *deschedule.Snapshot, n *v1.Node, p *v1.Pod, high deschedule.Thresholds) bool {
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	if _, ok := high[gpu]; ok {
		names = append(names, gpu)
	}
	return slices.ContainsFunc(names, func(name v1.ResourceName) bool {
		most, _ := whole(n, name)
		if limit, ok := high[name]; ok {
			most = int64(limit * 0.01 * float64(most))
		}
		plus := amount(p, name)
		return plus > 0 && used(s, n, name)+plus > most
	})
}

func under(s *deschedule.Snapshot, n *v1.Node, low deschedule.Thresholds) bool {
	for name, limit := range low {
		if percent(s, n, name) > limit {
			return false
		}
	}
	return true
}

func (c *comparison) deviations(s *deschedule.Snapshot, a *deschedule.LowNodeUtilizationArgs) deschedule.Thresholds {
	out := deschedule.Thresholds{}
	for name, plus := range a.TargetThresholds {
		sum, count := 0.0, 0
		for _, n := range c.looked(s) {
			if _, ok := whole(n, name); ok {
				sum += percent(s, n, name)
				count++
			}
		}
		if count > 0 {
			out[name] = min(max(sum/float64(count)+plus, 0), 100)
		}
	}
	return out
}

// hasRoomForMore reports whether a node has less than its share of such pods. Pods that nodeFit
// keeps are on a node, but have no part in the share.
func (c *comparison) hasRoomForMore(profile *deschedule.Profile, ruled, is *deschedule.Snapshot, p *v1.Pod, n *v1.Node) bool {
	like := func(s *deschedule.Snapshot, at *v1.Node, counts func(*v1.Pod) bool) (count int) {
		may := c.mayIn(s, profile.Name)
		for _, other := range s.Pods {
			if other.Spec.NodeName == at.Name && other.Namespace == p.Namespace && other.Labels["owner"] == p.Labels["owner"] && !ended(other) &&
				len(other.OwnerReferences) == len(p.OwnerReferences) && other.Spec.Containers[0].Image == p.Spec.Containers[0].Image &&
				may[keyOf(other)] && counts(other) {
				count++
			}
		}
		return count
	}
	evictor := evictorOf(profile)
	movable := func(other *v1.Pod) bool { return !evictor.NodeFit || !fitsNone(ruled, other, evictor.NodeSelector) }
	count, targets := 0, 0
	for _, at := range c.looked(ruled) {
		count += like(ruled, at, movable)
		if match, err := utils.PodMatchNodeSelector(p, at); err == nil && match && tolerates(p, at) {
			targets++
		}
	}
	return targets > 0 && like(is, n, func(*v1.Pod) bool { return true }) < (count+targets-1)/targets
}

// evictorOf returns the evictor's arguments of a profile.
func evictorOf(profile *deschedule.Profile) *deschedule.DefaultEvictorArgs {
	for _, config := range profile.PluginConfig {
		if a, ok := config.Args.(*deschedule.DefaultEvictorArgs); ok {
			return a
		}
	}
	return &deschedule.DefaultEvictorArgs{}
}

// spreadsBetter reports whether the domain of a node, with the pod, is smaller than the pod's own.
func (c *comparison) spreadsBetter(s *deschedule.Snapshot, p *v1.Pod, n *v1.Node) bool {
	for _, k := range c.constraintsOn(s, p) {
		sizes := domains(s, k.of, k.constraint, c.looked(s), "")
		from, to := nodeOf(s, p.Spec.NodeName).Labels[k.constraint.TopologyKey], n.Labels[k.constraint.TopologyKey]
		size, ok := sizes[to]
		if ok && to != from && size+1 < sizes[from] {
			return true
		}
	}
	return false
}

// counted is a constraint of a pod that counts another pod.
type counted struct {
	of         *v1.Pod
	constraint *v1.TopologySpreadConstraint
}

func (c *comparison) constraintsOn(s *deschedule.Snapshot, p *v1.Pod) (out []counted) {
	for _, other := range s.Pods {
		if other.Namespace != p.Namespace || other.Labels["owner"] != p.Labels["owner"] {
			continue // selectors here are those of owners
		}
		for i := range other.Spec.TopologySpreadConstraints {
			out = append(out, counted{other, &other.Spec.TopologySpreadConstraints[i]})
		}
	}
	return out
}

// excess reports whether a pod is in a domain that has more than maxSkew too many.
func (c *comparison) excess(s *deschedule.Snapshot, p *v1.Pod) bool {
	at := nodeOf(s, p.Spec.NodeName)
	return slices.ContainsFunc(c.constraintsOn(s, p), func(k counted) bool {
		sizes := domains(s, k.of, k.constraint, c.looked(s), "")
		size, ok := sizes[at.Labels[k.constraint.TopologyKey]]
		return ok && size-least(k.constraint, sizes) > int(k.constraint.MaxSkew)
	})
}
