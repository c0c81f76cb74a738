package descheduler

import (
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/descheduler/pkg/api"
	podutil "sigs.k8s.io/descheduler/pkg/descheduler/pod"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/defaultevictor"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/podlifetime"
	spread "sigs.k8s.io/descheduler/pkg/framework/plugins/removepodsviolatingtopologyspreadconstraint"

	"jettison/cluster/deschedule"
)

func find(s *deschedule.Snapshot, key string) *v1.Pod {
	for _, p := range s.Pods {
		if keyOf(p) == key {
			return p
		}
	}
	return nil
}

func nodeOf(s *deschedule.Snapshot, name string) *v1.Node {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// evicted returns a snapshot without a pod, and with its owner's replacement, on a node or pending.
func evicted(s *deschedule.Snapshot, key, to string) *deschedule.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	i := slices.IndexFunc(out.Pods, func(p *v1.Pod) bool { return keyOf(p) == key })
	p := out.Pods[i]
	out.Pods = slices.Delete(out.Pods, i, i+1)
	if len(p.OwnerReferences) == 0 || ended(p) {
		return &out
	}
	made := p.DeepCopy()
	made.Name, made.UID = p.Name+"-next", p.UID+"-next"
	made.CreationTimestamp, made.DeletionTimestamp = metav1.NewTime(now), nil
	made.Spec.NodeName = to
	made.Status = v1.PodStatus{Phase: v1.PodRunning, QOSClass: p.Status.QOSClass, StartTime: &made.CreationTimestamp}
	if to == "" {
		made.Status.Phase = v1.PodPending
	}
	out.Pods = append(out.Pods, made)
	return &out
}

// states returns the states of a plan: before it, and after each of its evictions.
func states(s *deschedule.Snapshot, plan []deschedule.Eviction) []*deschedule.Snapshot {
	out := []*deschedule.Snapshot{s}
	for i := range plan {
		out = append(out, evicted(out[i], plan[i].Namespace+"/"+plan[i].Name, plan[i].To))
	}
	return out
}

// assigned returns the function that lists the pods of a node in a snapshot.
func assigned(s *deschedule.Snapshot) podutil.GetPodsAssignedToNodeFunc {
	return func(node string, filter podutil.FilterFunc) (out []*v1.Pod, err error) {
		for _, p := range s.Pods {
			if p.Spec.NodeName == node && (filter == nil || filter(p)) {
				out = append(out, p)
			}
		}
		return out, nil
	}
}

// unlimited returns a policy without its limits.
func unlimited(p *api.DeschedulerPolicy) *api.DeschedulerPolicy {
	out := p.DeepCopy()
	out.MaxNoOfPodsToEvictTotal, out.MaxNoOfPodsToEvictPerNode, out.MaxNoOfPodsToEvictPerNamespace = nil, nil, nil
	return out
}

// unfitted returns a policy without nodeFit and minReplicas.
func unfitted(p *api.DeschedulerPolicy) *api.DeschedulerPolicy {
	out := unlimited(p)
	for i := range out.Profiles {
		for _, config := range out.Profiles[i].PluginConfigs {
			if a, ok := config.Args.(*defaultevictor.DefaultEvictorArgs); ok {
				a.NodeFit, a.MinReplicas = false, 0
			}
		}
	}
	return out
}

// ofProfile returns a policy with one profile and all nodes, or an unchanged one if the name is empty.
func ofProfile(p *api.DeschedulerPolicy, profile string) *api.DeschedulerPolicy {
	if profile == "" {
		return p
	}
	out := p.DeepCopy()
	out.NodeSelector = nil
	out.Profiles = slices.DeleteFunc(out.Profiles, func(p api.DeschedulerProfile) bool { return p.Name != profile })
	return out
}

// provided returns a snapshot in which every node has GPUs. For a node without, the descheduler
// counts 0 %, no room for more, and too many as soon as a pod requests one.
func provided(s *deschedule.Snapshot) *deschedule.Snapshot {
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i, n := range out.Nodes {
		if _, ok := n.Status.Allocatable[gpu]; !ok {
			out.Nodes[i] = n.DeepCopy()
			out.Nodes[i].Status.Allocatable[gpu] = *resource.NewQuantity(1<<40, resource.DecimalSI)
		}
	}
	return &out
}

// keyed returns a snapshot in which pods have no anti-affinity by a topology key that their node
// lacks. The descheduler evicts pods for one another on such a node, which the scheduler accepts.
func keyed(s *deschedule.Snapshot) *deschedule.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	for i, p := range out.Pods {
		n := nodeOf(s, p.Spec.NodeName)
		if n == nil || p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
			continue
		}
		out.Pods[i] = p.DeepCopy()
		a := out.Pods[i].Spec.Affinity.PodAntiAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(a.RequiredDuringSchedulingIgnoredDuringExecution,
			func(t v1.PodAffinityTerm) bool { _, has := n.Labels[t.TopologyKey]; return !has })
	}
	return &out
}

// only returns a policy with one of its strategies.
func only(p *api.DeschedulerPolicy, strategy string) *api.DeschedulerPolicy {
	out := unlimited(p)
	for i := range out.Profiles {
		others := func(name string) bool { return name != strategy }
		points := &out.Profiles[i].Plugins
		points.Deschedule.Enabled = slices.DeleteFunc(points.Deschedule.Enabled, others)
		points.Balance.Enabled = slices.DeleteFunc(points.Balance.Enabled, others)
	}
	return out
}

// everybody returns a policy with one strategy that evicts every pod which the evictor of any
// profile allows.
func everybody(p *api.DeschedulerPolicy) *api.DeschedulerPolicy {
	out := unlimited(p)
	for i := range out.Profiles {
		profile := &out.Profiles[i]
		for j := range profile.PluginConfigs {
			if a, ok := profile.PluginConfigs[j].Args.(*defaultevictor.DefaultEvictorArgs); ok {
				a.NodeFit, a.NamespaceLabelSelector = false, nil
			}
		}
		lifeTime := func(c api.PluginConfig) bool { return c.Name == podlifetime.PluginName }
		profile.PluginConfigs = append(slices.DeleteFunc(profile.PluginConfigs, lifeTime),
			api.PluginConfig{Name: podlifetime.PluginName, Args: &podlifetime.PodLifeTimeArgs{
				States: []string{"Running", "Pending", "Succeeded", "Failed"}}})
		profile.Plugins.Deschedule.Enabled, profile.Plugins.Balance.Enabled = []string{podlifetime.PluginName}, nil
	}
	return out
}

// unselected returns a policy with spread strategies that process all pods.
func unselected(p *api.DeschedulerPolicy) *api.DeschedulerPolicy {
	out := p.DeepCopy()
	for i := range out.Profiles {
		for j := range out.Profiles[i].PluginConfigs {
			a, ok := out.Profiles[i].PluginConfigs[j].Args.(*spread.RemovePodsViolatingTopologySpreadConstraintArgs)
			if ok {
				a.LabelSelector, a.Namespaces = nil, nil
			}
		}
	}
	return out
}

// mirrored returns a snapshot in which evictable pods have priorities in the eviction order of this
// project's plans: the descheduler evicts the highest first when it spreads.
func mirrored(s *deschedule.Snapshot, may map[string]bool) *deschedule.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	slices.SortFunc(out.Pods, firstToGo)
	for i, p := range out.Pods {
		if may[keyOf(p)] {
			out.Pods[i] = p.DeepCopy()
			out.Pods[i].Spec.Priority = new(int32(-i - 1))
		}
	}
	return &out
}

// countable returns a snapshot in which every pod is evictable, those that are not evictable
// otherwise last.
func countable(s *deschedule.Snapshot, may map[string]bool) *deschedule.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	for i, p := range out.Pods {
		if !may[keyOf(p)] {
			out.Pods[i] = p.DeepCopy()
			out.Pods[i].Annotations["descheduler.alpha.kubernetes.io/evict"] = ""
			out.Pods[i].Spec.Priority = new(int32(math.MinInt32))
		}
	}
	return &out
}

// tolerant returns a snapshot in which the descheduler counts tolerations correctly: without taints
// that have no effect, and with as many of each toleration as a node has taints.
func tolerant(s *deschedule.Snapshot) *deschedule.Snapshot {
	out := *s
	out.Nodes, out.Pods = slices.Clone(s.Nodes), slices.Clone(s.Pods)
	for i, n := range out.Nodes {
		out.Nodes[i] = n.DeepCopy()
		out.Nodes[i].Spec.Taints = slices.DeleteFunc(out.Nodes[i].Spec.Taints, func(t v1.Taint) bool {
			return t.Effect == v1.TaintEffectPreferNoSchedule
		})
	}
	for i, p := range out.Pods {
		out.Pods[i] = p.DeepCopy()
		out.Pods[i].Spec.Tolerations = slices.Repeat(p.Spec.Tolerations, 4)
	}
	return &out
}

// single returns a snapshot in which all owners of a pod are one.
func single(s *deschedule.Snapshot) *deschedule.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	for i, p := range out.Pods {
		if len(p.OwnerReferences) > 1 {
			out.Pods[i] = p.DeepCopy()
			out.Pods[i].OwnerReferences = slices.Clone(p.OwnerReferences[:1])
			out.Pods[i].OwnerReferences[0].Name += "+"
		}
	}
	return &out
}

func keys(list []went) map[went]bool {
	out := map[went]bool{}
	for _, w := range list {
		out[w] = true
	}
	return out
}

func union(a, b map[string]bool) map[string]bool {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
