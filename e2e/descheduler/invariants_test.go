package descheduler

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"jettison/cluster/deschedule"
	"jettison/cluster/model"
)

// invariants returns which rules the plan itself breaks, whatever the descheduler does.
func (c *comparison) invariants() (wrong []string) {
	c.states = states(c.s, c.result.Evictions)
	allowed := map[string]map[string]bool{} // by profile: pods that the descheduler's evictor lets go
	spent := map[string]int32{}             // disruptions, by budget
	gone := map[string]bool{}
	onNode := map[went]uint{} // evictions of a profile's LowNodeUtilization, by node
	for i := range c.result.Evictions {
		e := &c.result.Evictions[i]
		key := e.Namespace + "/" + e.Name
		fail := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("eviction %d, %s by %s: ", i, key, e.Strategy)+fmt.Sprintf(format, args...))
		}
		p, profile := find(c.s, key), c.profile(e.Profile)
		if p == nil || gone[key] || nodeOf(c.s, e.Node) == nil || p.Spec.NodeName != e.Node {
			fail("the pod is not on node %q of the snapshot, or was evicted before", e.Node)
			continue
		}
		gone[key] = true
		if !slices.ContainsFunc(c.looked(c.s), func(n *v1.Node) bool { return n.Name == e.Node }) {
			fail("node %s is not ready, or not selected", e.Node)
		}
		if !c.within(i) {
			fail("a limit of the policy is exceeded")
		}
		if allowed[e.Profile] == nil {
			allowed[e.Profile] = evictable(c, ofProfile(unfitted(c.theirs), e.Profile), c.twoNodes(c.s))
		}
		if !allowed[e.Profile][key] {
			fail("the evictor of profile %s protects the pod", e.Profile)
		}
		for _, why := range c.forbids(profile, i, p) {
			fail("%s", why)
		}
		if why := c.spend(p, spent); why != "" {
			fail("%s", why)
		}
		for _, config := range profile.PluginConfig {
			a, ok := config.Args.(*deschedule.LowNodeUtilizationArgs)
			if !ok || e.Strategy != deschedule.LowNodeUtilization {
				continue
			}
			if onNode[went{e.Profile, e.Node}]++; a.EvictionLimits != nil && onNode[went{e.Profile, e.Node}] > *a.EvictionLimits.Node {
				fail("evictionLimits %d of node %s is exceeded", *a.EvictionLimits.Node, e.Node)
			}
		}
		if why := c.pays(profile, i); why != "" {
			fail("%s", why)
		}
	}
	for _, s := range c.result.Skipped {
		p := find(c.s, s.Namespace+"/"+s.Name)
		if p == nil || gone[keyOf(p)] || !c.isTrue(p, s.Reason) {
			wrong = append(wrong, fmt.Sprintf("pod %s/%s stays for a reason that does not hold: %s", s.Namespace, s.Name, s.Reason))
		}
	}
	return wrong
}

func (c *comparison) profile(name string) *deschedule.Profile {
	return &c.ours.Profiles[slices.IndexFunc(c.ours.Profiles, func(p deschedule.Profile) bool { return p.Name == name })]
}

// forbids returns which rules of a profile's evictor forbid an eviction of the plan, apart from those
// that the descheduler's own evictor has: replicas, namespaces, and the node for the replacement.
func (c *comparison) forbids(profile *deschedule.Profile, i int, p *v1.Pod) (out []string) {
	a := evictorOf(profile)
	_, asked := p.Annotations["descheduler.alpha.kubernetes.io/evict"]
	if active := c.replicas(p); a.MinReplicas > 1 && len(p.OwnerReferences) == 1 && !ended(p) && !asked && active < a.MinReplicas {
		out = append(out, fmt.Sprintf("minReplicas %d, and the owner has %d active pods", a.MinReplicas, active))
	}
	if !c.inNamespace(a, p) {
		out = append(out, "namespaceLabelSelector does not match the pod's namespace")
	}
	if a.NodeFit && !ended(p) && fitsNone(c.states[i], p, a.NodeSelector) {
		out = append(out, "nodeFit, and no other node accepts the pod")
	}
	return out
}

func (c *comparison) inNamespace(a *deschedule.DefaultEvictorArgs, p *v1.Pod) bool {
	return a.NamespaceLabelSelector == nil || slices.ContainsFunc(c.s.Namespaces, func(n *v1.Namespace) bool {
		return n.Name == p.Namespace && selectorOf(a.NamespaceLabelSelector).Matches(labels.Set(n.Labels))
	})
}

// spend counts an eviction against the pod's budget, as the eviction API does, and returns why that
// rejects it.
func (c *comparison) spend(p *v1.Pod, spent map[string]int32) string {
	budgets := c.covers(p)
	if p.Status.Phase != v1.PodRunning || p.DeletionTimestamp != nil || len(budgets) == 0 {
		return ""
	}
	if len(budgets) > 1 {
		return "several budgets cover the pod"
	}
	b := budgets[0]
	if !healthyPod(p) && b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy {
		return ""
	}
	if spent[b.Name]++; spent[b.Name] > b.Status.DisruptionsAllowed {
		return fmt.Sprintf("budget %s allows %d disruptions", b.Name, b.Status.DisruptionsAllowed)
	}
	return ""
}

// pays returns why an eviction of a strategy that has to help is of no use.
func (c *comparison) pays(profile *deschedule.Profile, i int) string {
	e, s := &c.result.Evictions[i], c.states[i]
	if !hasToHelp[e.Strategy] || e.Strategy == deschedule.TopologySpreadConstraint || len(e.Pod.OwnerReferences) == 0 {
		return "" // spread has moves that enable others; TestStability of package deschedule plans again
	}
	p := find(s, e.Namespace+"/"+e.Name)
	if e.To == "" || e.To == e.Node {
		return "its replacement has no other node"
	}
	to := nodeOf(s, e.To)
	if why := refuses(s, p, to); why != "" {
		return "node " + e.To + " does not accept the replacement: " + why
	}
	for _, config := range profile.PluginConfig {
		if config.Name == e.Strategy && slices.ContainsFunc(c.states[:i+1], func(ruled *deschedule.Snapshot) bool {
			return c.helpsBy(profile, config.Args, ruled, s, p, to)
		}) {
			return ""
		}
	}
	return "node " + e.To + " does not help"
}

// replicas returns the number of active pods of a pod's only owner.
func (c *comparison) replicas(p *v1.Pod) (active uint) {
	if len(p.OwnerReferences) != 1 {
		return 0
	}
	for _, other := range c.s.Pods {
		if other.Namespace == p.Namespace && !ended(other) && other.DeletionTimestamp == nil && slices.ContainsFunc(other.OwnerReferences,
			func(o metav1.OwnerReference) bool { return o.UID == p.OwnerReferences[0].UID }) {
			active++
		}
	}
	return active
}

// isTrue reports whether a reason of the plan to keep a pod holds: for an evictor's rule, with the
// arguments of some profile; for a place, in some state of the plan.
func (c *comparison) isTrue(p *v1.Pod, reason string) bool {
	starts := func(text string) bool { return strings.HasPrefix(reason, text) }
	anyEvictor := func(is func(*deschedule.DefaultEvictorArgs) bool) bool {
		return slices.ContainsFunc(c.ours.Profiles, func(profile deschedule.Profile) bool { return is(evictorOf(&profile)) })
	}
	var priority, threshold int32
	var name, other string
	var active, least uint
	switch {
	case starts("pod is already being deleted"):
		return p.DeletionTimestamp != nil
	case starts("annotation prefer-no-eviction"):
		_, prefers := p.Annotations["descheduler.alpha.kubernetes.io/prefer-no-eviction"]
		return prefers && anyEvictor(func(a *deschedule.DefaultEvictorArgs) bool {
			return a.NoEvictionPolicy == deschedule.MandatoryNoEviction
		})
	case starts("mirror pod"):
		return p.Annotations[v1.MirrorPodAnnotationKey] != ""
	case starts("static pod"):
		return p.Annotations["kubernetes.io/config.source"] == "file"
	case scan(reason, "priority %d is system-critical", &priority):
		return p.Spec.Priority != nil && *p.Spec.Priority == priority && priority >= 2000000000
	case scan(reason, "priority %d is not below priorityThreshold %d", &priority, &threshold):
		return p.Spec.Priority != nil && *p.Spec.Priority == priority && priority >= threshold &&
			anyEvictor(func(a *deschedule.DefaultEvictorArgs) bool {
				return a.PriorityThreshold != nil && a.PriorityThreshold.Value != nil && *a.PriorityThreshold.Value == threshold
			})
	case starts("pod has no owner and has not failed"):
		return len(p.OwnerReferences) == 0 && p.Status.Phase != v1.PodFailed
	case starts("pod has no owner"):
		return len(p.OwnerReferences) == 0
	case starts("volume "):
		return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.EmptyDir != nil })
	case starts("owned by a DaemonSet"):
		return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
	case starts("uses PersistentVolumeClaim "), starts("PersistentVolumeClaim "):
		return c.claims(p, reason)
	case starts("no PodDisruptionBudget covers"):
		return len(c.covers(p)) == 0
	case starts("pod has resource claims"):
		return len(p.Spec.ResourceClaims) > 0
	case starts("labels do not match"):
		return anyEvictor(func(a *deschedule.DefaultEvictorArgs) bool {
			return a.LabelSelector != nil && !selectorOf(a.LabelSelector).Matches(labels.Set(p.Labels))
		})
	case scan(reason, "owner %s %s has %d active pods, fewer than minReplicas %d", &name, &other, &active, &least):
		return len(p.OwnerReferences) == 1 && !ended(p) && active == c.replicas(p) && active < least &&
			anyEvictor(func(a *deschedule.DefaultEvictorArgs) bool { return a.MinReplicas == least })
	case starts("pod age "):
		return anyEvictor(func(a *deschedule.DefaultEvictorArgs) bool {
			return a.MinPodAge != nil && now.Sub(p.Status.StartTime.Time) < a.MinPodAge.Duration
		})
	case starts("namespace does not match"):
		return anyEvictor(func(a *deschedule.DefaultEvictorArgs) bool { return !c.inNamespace(a, p) })
	case starts("namespace is excluded"):
		return p.Namespace == "other"
	case starts("covered by several"):
		return len(c.covers(p)) > 1 && p.Status.Phase == v1.PodRunning
	case starts("PodDisruptionBudget "):
		return len(c.covers(p)) == 1 && c.spent(keyOf(p))
	case starts("maximum number of"):
		return c.reached(p)
	case scan(reason, "evictionLimits: limit of %d", &least):
		return c.evictionsOn(p.Spec.NodeName) >= least
	case starts("eviction loop: "):
		strategy, _, _ := strings.Cut(strings.TrimPrefix(reason, "eviction loop: "), " ")
		return c.has(strategy)
	}
	return c.placeIsTrue(p, reason)
}

func scan(text, format string, into ...any) bool {
	_, err := fmt.Sscanf(text, format, into...)
	return err == nil
}

// claims reports whether a reason about a claim holds.
func (c *comparison) claims(p *v1.Pod, reason string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		if v.PersistentVolumeClaim == nil {
			return false
		}
		known := slices.ContainsFunc(c.s.Claims, func(claim *v1.PersistentVolumeClaim) bool {
			return claim.Namespace == p.Namespace && claim.Name == v.PersistentVolumeClaim.ClaimName
		})
		switch {
		case strings.Contains(reason, "is unknown"):
			return !known
		case strings.Contains(reason, "protected storage class"):
			return known && v.PersistentVolumeClaim.ClaimName == "fast"
		}
		return strings.HasPrefix(reason, "uses ")
	})
}

// evictionsOn returns the number of evictions of LowNodeUtilization from a node.
func (c *comparison) evictionsOn(node string) (count uint) {
	for _, e := range c.result.Evictions {
		if e.Node == node && e.Strategy == deschedule.LowNodeUtilization {
			count++
		}
	}
	return count
}

// placeIsTrue reports whether a reason about the place of a pod's replacement holds.
func (c *comparison) placeIsTrue(p *v1.Pod, reason string) bool {
	starts := func(text string) bool { return strings.HasPrefix(reason, text) }
	key := keyOf(p)
	switch {
	case starts("nodeFit: "):
		return slices.ContainsFunc(c.fitSelectors(), func(text string) bool {
			return c.somewhen(key, func(s *deschedule.Snapshot, p *v1.Pod) bool { return fitsNone(s, p, text) })
		})
	case starts("pod fits on no other node"), starts("replacement fits on no other node"):
		return c.somewhen(key, func(s *deschedule.Snapshot, p *v1.Pod) bool {
			return fitsNone(s, p, "") || !slices.ContainsFunc(c.looked(s), func(n *v1.Node) bool {
				return n.Name != p.Spec.NodeName && refuses(s, p, n) == ""
			})
		})
	case starts("pod tolerates the taints of no destination node"):
		return slices.ContainsFunc(c.s.Nodes, func(n *v1.Node) bool { return n.Name != p.Spec.NodeName && !tolerates(p, n) })
	case starts("no feasible node would be better"):
		return slices.ContainsFunc(c.steps(), func(step went) bool {
			return byPreference[step.strategy] && c.helpsNowhereBy(c.profile(step.pod), went{key, step.strategy})
		})
	case starts("scheduler would likely place the replacement on "):
		name, _, _ := strings.Cut(strings.TrimPrefix(reason, "scheduler would likely place the replacement on "), " ")
		again := !strings.Contains(reason, "no better: ")
		name = strings.TrimSuffix(name, ",")
		return again == (name == p.Spec.NodeName) && c.somewhen(key, func(s *deschedule.Snapshot, _ *v1.Pod) bool {
			return slices.ContainsFunc(c.tops(s, key), func(top []*model.Node) bool {
				return slices.ContainsFunc(top, func(n *model.Node) bool { return n.Name == name })
			})
		})
	}
	return false
}

// helpsNowhereBy reports whether, in some state, no node that accepts the pod helps a profile's
// strategy. Moves for spread constraints have measures of their own.
func (c *comparison) helpsNowhereBy(profile *deschedule.Profile, w went) bool {
	if w.strategy == deschedule.TopologySpreadConstraint {
		return true
	}
	return slices.ContainsFunc(profile.PluginConfig, func(config deschedule.PluginConfig) bool {
		return config.Name == w.strategy && slices.ContainsFunc(c.states, func(ruled *deschedule.Snapshot) bool {
			return c.somewhen(w.pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
				return !slices.ContainsFunc(s.Nodes, func(n *v1.Node) bool {
					return n.Name != p.Spec.NodeName && refuses(s, p, n) == "" && c.helpsBy(profile, config.Args, ruled, s, p, n)
				})
			})
		})
	})
}
