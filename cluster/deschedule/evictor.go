package deschedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// Annotations of pods that DefaultEvictor reads.
const (
	evictAnnotation  = "descheduler.alpha.kubernetes.io/evict"
	preferAnnotation = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
	sourceAnnotation = "kubernetes.io/config.source"
)

// criticalPriority is the priority of system-cluster-critical.
const criticalPriority int32 = 2000000000

var (
	defaultProtections = []string{PodsWithLocalStorage, SystemCriticalPods, FailedBarePods,
		DaemonSetPods}
	extraProtections = []string{PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims}
)

// evictor is the DefaultEvictor of a profile.
type evictor struct {
	*planner
	args       *DefaultEvictorArgs
	protected  []string
	priority   int32
	selector   labels.Selector
	namespaces labels.Selector // nil: any
	nodes      []*model.Node   // nodes that nodeFit may use
	recorded   bool            // recordProtected has run
}

func newEvictor(p *planner, profile *Profile) (*evictor, error) {
	args, ok := profile.args(DefaultEvictor).(*DefaultEvictorArgs)
	if !ok {
		args = setDefaults(new(DefaultEvictorArgs)).(*DefaultEvictorArgs)
	}
	e := &evictor{planner: p, args: args, protected: args.enabledProtections()}
	var err error
	if e.priority, err = p.thresholdPriority(args.PriorityThreshold); err != nil {
		return nil, err
	}
	if e.selector, err = selectorOrAll(args.LabelSelector); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if s := args.NamespaceLabelSelector; s != nil {
		if e.namespaces, err = metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, fmt.Errorf("namespaceLabelSelector: %w", err)
		}
	}
	nodes, err := labels.Parse(args.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("nodeSelector: %w", err)
	}
	for _, n := range p.cluster.Nodes {
		if n.Ready() && nodes.Matches(labels.Set(n.Labels)) {
			e.nodes = append(e.nodes, n)
		}
	}
	if args.MinReplicas > 1 {
		p.countReplicas()
	}
	return e, nil
}

// countReplicas counts the pods of each owner, once for all evictors. Ended and terminating pods do
// not count. Evictions in the plan do not change the counts: an owner replaces a running pod, and
// an ended one was no replica.
func (p *planner) countReplicas() {
	if p.replicas != nil {
		return
	}
	p.replicas = map[owner]uint{}
	for _, pod := range p.cluster.Pods() {
		if pod.Ended || pod.DeletionTimestamp != nil {
			continue
		}
		for _, o := range ownersOf(pod) {
			p.replicas[o]++
		}
	}
}

// thresholdPriority returns the priority from which pods are protected. An unknown PriorityClass
// is an error, as in the API server.
func (p *planner) thresholdPriority(t *PriorityThreshold) (int32, error) {
	if t.Value != nil {
		return *t.Value, nil
	}
	for _, class := range p.input.PriorityClasses {
		if class.Name == t.Name {
			if class.Value > criticalPriority {
				return 0, fmt.Errorf("priority threshold can't be greater than %d: class %s has %d",
					criticalPriority, t.Name, class.Value)
			}
			return class.Value, nil
		}
	}
	return 0, fmt.Errorf("priorityThreshold: PriorityClass %q not found", t.Name)
}

// enabledProtections returns the names of the protections that are in effect.
func (a *DefaultEvictorArgs) enabledProtections() (out []string) {
	if p := &a.PodProtections; len(p.DefaultDisabled)+len(p.ExtraEnabled) > 0 {
		for _, name := range defaultProtections {
			if !slices.Contains(p.DefaultDisabled, name) {
				out = append(out, name)
			}
		}
		return append(out, p.ExtraEnabled...)
	}
	for _, old := range []struct {
		name  string
		holds bool
	}{
		{PodsWithLocalStorage, !a.EvictLocalStoragePods}, {DaemonSetPods, !a.EvictDaemonSetPods},
		{SystemCriticalPods, !a.EvictSystemCriticalPods}, {FailedBarePods, !a.EvictFailedBarePods},
		{PodsWithPVC, a.IgnorePvcPods}, {PodsWithoutPDB, a.IgnorePodsWithoutPDB},
	} {
		if old.holds {
			out = append(out, old.name)
		}
	}
	return out
}

func (a *DefaultEvictorArgs) storageClasses() (out []string) {
	if c := a.PodProtections.Config; c != nil && c.PodsWithPVC != nil {
		for _, class := range c.PodsWithPVC.ProtectedStorageClasses {
			out = append(out, class.Name)
		}
	}
	return out
}

var filterRules = []func(*evictor, *model.Pod) string{
	(*evictor).checkPriority, (*evictor).checkBare, (*evictor).checkLocalStorage,
	(*evictor).checkDaemonSet, (*evictor).checkClaims, (*evictor).checkBudget,
	(*evictor).checkResourceClaims, (*evictor).checkArguments,
}

// filter returns the first rule that protects a pod, or "" if the pod is evictable. It is the
// Filter extension point of DefaultEvictor.
func (e *evictor) filter(p *model.Pod) string {
	if _, pending := e.input.Pending[p.UID]; pending {
		return "eviction already in progress in the background"
	}
	if why, ok := e.input.Rejected[p.UID]; ok {
		return why
	}
	if p.DeletionTimestamp != nil {
		return "pod is already being deleted"
	}
	if _, ok := p.Annotations[evictAnnotation]; ok {
		return ""
	}
	if _, ok := p.Annotations[preferAnnotation]; ok && e.args.NoEvictionPolicy == MandatoryNoEviction {
		return "annotation prefer-no-eviction with noEvictionPolicy Mandatory"
	}
	source, named := p.Annotations[sourceAnnotation]
	switch {
	case p.Annotations[v1.MirrorPodAnnotationKey] != "" ||
		hasKey(p.Annotations, v1.MirrorPodAnnotationKey):
		return "mirror pod"
	case named && source != "api":
		return "static pod"
	}
	for _, rule := range filterRules {
		if why := rule(e, p); why != "" {
			return why
		}
	}
	return ""
}

// owner identifies an owner of pods. It includes the namespace of the pod: a reference to a UID
// in another namespace must not match.
type owner struct {
	namespace string
	uid       types.UID
}

// ownerOf returns the owner in the i-th reference of a pod. Without a UID, as in hand-written
// files, kind and name identify it.
func ownerOf(p *model.Pod, i int) owner {
	o := &p.OwnerReferences[i]
	if o.UID == "" {
		return owner{p.Namespace, types.UID(o.Kind + "/" + o.Name)}
	}
	return owner{p.Namespace, o.UID}
}

// ownersOf returns the owners of a pod without duplicates.
func ownersOf(p *model.Pod) []owner {
	if len(p.OwnerReferences) == 1 {
		return []owner{ownerOf(p, 0)}
	}
	all := map[owner]bool{}
	for i := range p.OwnerReferences {
		all[ownerOf(p, i)] = true
	}
	return slices.Collect(maps.Keys(all))
}

func hasKey(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func (e *evictor) protects(name string) bool { return slices.Contains(e.protected, name) }

func (e *evictor) checkPriority(p *model.Pod) string {
	if !e.protects(SystemCriticalPods) || p.Spec.Priority == nil {
		return ""
	}
	switch priority := *p.Spec.Priority; {
	case priority >= criticalPriority:
		return fmt.Sprintf("priority %d is system-critical (%s)", priority,
			SystemCriticalPods)
	case priority >= e.priority:
		return fmt.Sprintf("priority %d is not below priorityThreshold %d", priority, e.priority)
	}
	return ""
}

func (e *evictor) checkBare(p *model.Pod) string {
	switch {
	case len(p.OwnerReferences) > 0:
		return ""
	case e.protects(FailedBarePods):
		return "pod has no owner: it would not be recreated"
	case p.Status.Phase != v1.PodFailed:
		return "pod has no owner and has not failed"
	}
	return ""
}

func (e *evictor) checkLocalStorage(p *model.Pod) string {
	if e.protects(PodsWithLocalStorage) {
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.HostPath != nil || v.EmptyDir != nil {
				return fmt.Sprintf("volume %s is local storage (%s)", v.Name, PodsWithLocalStorage)
			}
		}
	}
	return ""
}

func (e *evictor) checkDaemonSet(p *model.Pod) string {
	if e.protects(DaemonSetPods) && slices.ContainsFunc(p.OwnerReferences,
		func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" }) {
		return fmt.Sprintf("owned by a DaemonSet (%s)", DaemonSetPods)
	}
	return ""
}

func (e *evictor) checkClaims(p *model.Pod) string {
	if !e.protects(PodsWithPVC) {
		return ""
	}
	classes := e.args.storageClasses()
	for i := range p.Spec.Volumes {
		v := p.Spec.Volumes[i].PersistentVolumeClaim
		switch {
		case v == nil:
			continue
		case len(classes) == 0:
			return fmt.Sprintf("uses PersistentVolumeClaim %s (%s)", v.ClaimName, PodsWithPVC)
		}
		claim := e.cluster.Claim(p.Namespace, v.ClaimName)
		if claim == nil {
			return fmt.Sprintf("PersistentVolumeClaim %s is unknown: its storage class may be protected",
				v.ClaimName)
		}
		if class := claim.Spec.StorageClassName; class == nil || *class == "" {
			return fmt.Sprintf("PersistentVolumeClaim %s names no storage class: its class may be protected",
				v.ClaimName)
		}
		if slices.Contains(classes, *claim.Spec.StorageClassName) {
			return fmt.Sprintf("PersistentVolumeClaim %s has the protected storage class %s", v.ClaimName,
				*claim.Spec.StorageClassName)
		}
	}
	return ""
}

func (e *evictor) checkBudget(p *model.Pod) string {
	if e.protects(PodsWithoutPDB) && !e.budgets.Covers(p.Pod) {
		return fmt.Sprintf("no PodDisruptionBudget covers the pod (%s)", PodsWithoutPDB)
	}
	return ""
}

func (e *evictor) checkResourceClaims(p *model.Pod) string {
	if e.protects(PodsWithResourceClaims) && len(p.Spec.ResourceClaims) > 0 {
		return fmt.Sprintf("pod has resource claims (%s)", PodsWithResourceClaims)
	}
	return ""
}

// checkArguments checks labelSelector, minReplicas and minPodAge. minReplicas does not apply to an
// ended pod, which is no replica. Age counts from the pod's status.startTime, which the kubelet
// sets; a pod without one is too young.
func (e *evictor) checkArguments(p *model.Pod) string {
	if !e.selector.Matches(labels.Set(p.Labels)) {
		return "labels do not match labelSelector of DefaultEvictor"
	}
	if least := e.args.MinReplicas; least > 1 && len(p.OwnerReferences) == 1 && !p.Ended {
		if count := e.replicas[ownerOf(p, 0)]; count < least {
			o := &p.OwnerReferences[0]
			return fmt.Sprintf("owner %s %s has %d active pods, fewer than minReplicas %d", o.Kind, o.Name,
				count, least)
		}
	}
	if age := e.args.MinPodAge; age != nil {
		start := p.Status.StartTime
		if start == nil {
			return fmt.Sprintf("pod has not started, minPodAge is %v", age.Duration)
		}
		if podAge := e.now.Sub(start.Time); podAge < age.Duration {
			return fmt.Sprintf("pod age %v is less than minPodAge %v", podAge.Round(time.Second), age.Duration)
		}
	}
	return ""
}

// preEvictionFilter returns the reason to keep a pod that passed filter, or "". It is the
// PreEvictionFilter extension point, which is checked last. An ended pod needs no other node.
func (e *evictor) preEvictionFilter(p *model.Pod) string {
	switch {
	case e.namespaces == nil:
	case !e.cluster.KnownNamespace(p.Namespace) && needsUnknownLabels(e.namespaces):
		return "namespace is unknown: cannot match namespaceLabelSelector of DefaultEvictor"
	case !e.namespaces.Matches(e.cluster.Namespace(p.Namespace)):
		return "namespace does not match namespaceLabelSelector of DefaultEvictor"
	}
	if e.args.NodeFit && !p.Ended {
		if n, why := e.cluster.FindOther(p, e.nodes); n == nil {
			if why == "" {
				return "nodeFit: no other ready node"
			}
			return "nodeFit: pod fits on no other node: " + why
		}
	}
	return ""
}

// needsUnknownLabels reports whether a selector needs more namespace labels than
// kubernetes.io/metadata.name, which every namespace has.
func needsUnknownLabels(s labels.Selector) bool {
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements,
		func(r labels.Requirement) bool { return r.Key() != v1.LabelMetadataName })
}

// recordProtected records all protected pods on the selected nodes as skipped.
func (r *run) recordProtected() {
	if r.evictor.recorded {
		return
	}
	r.evictor.recorded = true
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			if why := r.evictor.filter(p); why != "" {
				r.skip(p, "%s", why)
			}
		}
	}
}

// evictable reports whether a pod passes the evictor's filter, and records why not.
func (r *run) evictable(p *model.Pod) bool {
	why := r.evictor.filter(p)
	if why != "" {
		r.skip(p, "%s", why)
	}
	return why == ""
}

// preEvictable reports whether a pod passes the evictor's preEvictionFilter, and records why not.
func (r *run) preEvictable(p *model.Pod) bool {
	why := r.evictor.preEvictionFilter(p)
	if why != "" {
		r.skip(p, "%s", why)
	}
	return why == ""
}
