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

// criticalPriority is that of system-cluster-critical.
const criticalPriority int32 = 2000000000

var (
	defaultProtections = []string{PodsWithLocalStorage, SystemCriticalPods, FailedBarePods,
		DaemonSetPods}
	extraProtections = []string{PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims}
)

// evictor is a profile's DefaultEvictor.
type evictor struct {
	*planner
	args       *DefaultEvictorArgs
	protected  []string
	priority   int32
	selector   labels.Selector
	namespaces labels.Selector // nil: any
	nodes      []*model.Node   // that nodeFit may use
	noted      bool            // whom it keeps
}

func newEvictor(p *planner, profile *Profile) (*evictor, error) {
	args, ok := profile.args(DefaultEvictor).(*DefaultEvictorArgs)
	if !ok {
		args = setDefaults(new(DefaultEvictorArgs)).(*DefaultEvictorArgs)
	}
	e := &evictor{planner: p, args: args, protected: args.protections()}
	var err error
	if e.priority, err = p.threshold(args.PriorityThreshold); err != nil {
		return nil, err
	}
	if e.selector, err = selectorOrAll(args.LabelSelector); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if s := args.NamespaceLabelSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
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

// countReplicas counts the pods of each owner, once for all evictors.
func (p *planner) countReplicas() {
	if p.replicas != nil {
		return
	}
	p.replicas = map[owner]uint{}
	for _, pod := range p.cluster.Pods() {
		for _, o := range ownersOf(pod) {
			p.replicas[o]++
		}
	}
}

// threshold is the priority that protects. A class that the snapshot does not hold is an error, as
// it is for the API server.
func (p *planner) threshold(t *PriorityThreshold) (int32, error) {
	switch {
	case t == nil:
		return criticalPriority, nil
	case t.Value != nil:
		return *t.Value, nil
	}
	for _, class := range p.input.Classes {
		if class.Name == t.Name {
			if class.Value > criticalPriority {
				return 0, fmt.Errorf("priority threshold can't be greater than %d: class %s has %d",
					criticalPriority, t.Name, class.Value)
			}
			return class.Value, nil
		}
	}
	return 0, fmt.Errorf("priorityThreshold: there is no PriorityClass %q", t.Name)
}

// protections that hold.
func (a *DefaultEvictorArgs) protections() (out []string) {
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

var rules = []func(*evictor, *model.Pod) string{
	(*evictor).critical, (*evictor).bare, (*evictor).local, (*evictor).daemon, (*evictor).claims,
	(*evictor).budget,
	(*evictor).resourceClaims, (*evictor).arguments,
}

// keeps says why a pod may not be evicted: the first rule; empty: it may. It is the evictor's
// Filter.
func (e *evictor) keeps(p *model.Pod) string {
	if _, pending := e.input.Pending[p.UID]; pending {
		return "its eviction goes on in the background"
	}
	if why, ok := e.input.Refused[p.UID]; ok {
		return why
	}
	if p.DeletionTimestamp != nil {
		return "it is being deleted already"
	}
	if _, ok := p.Annotations[evictAnnotation]; ok {
		return ""
	}
	if _, ok := p.Annotations[preferAnnotation]; ok && e.args.NoEvictionPolicy == MandatoryNoEviction {
		return "its annotation prefer-no-eviction, which noEvictionPolicy makes mandatory"
	}
	source, named := p.Annotations[sourceAnnotation]
	switch {
	case p.Annotations[v1.MirrorPodAnnotationKey] != "" ||
		has(p.Annotations, v1.MirrorPodAnnotationKey):
		return "it is a mirror pod"
	case named && source != "api":
		return "it is a static pod"
	}
	for _, rule := range rules {
		if why := rule(e, p); why != "" {
			return why
		}
	}
	return ""
}

// owner of pods. It is of their namespace, whatever a reference says that names another one's UID.
type owner struct {
	namespace string
	uid       types.UID
}

// ownerOf is what one of a pod's references names. Without a UID, as in a file that was written by
// hand, it is told by kind and name.
func ownerOf(p *model.Pod, i int) owner {
	o := &p.OwnerReferences[i]
	if o.UID == "" {
		return owner{p.Namespace, types.UID(o.Kind + "/" + o.Name)}
	}
	return owner{p.Namespace, o.UID}
}

// ownersOf are those of a pod, each once.
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

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func (e *evictor) holds(name string) bool { return slices.Contains(e.protected, name) }

func (e *evictor) critical(p *model.Pod) string {
	if !e.holds(SystemCriticalPods) || p.Spec.Priority == nil {
		return ""
	}
	switch priority := *p.Spec.Priority; {
	case priority >= criticalPriority:
		return fmt.Sprintf("its priority %d is that of system critical pods (%s)", priority,
			SystemCriticalPods)
	case priority >= e.priority:
		return fmt.Sprintf("its priority %d is not below priorityThreshold %d", priority, e.priority)
	}
	return ""
}

func (e *evictor) bare(p *model.Pod) string {
	switch {
	case len(p.OwnerReferences) > 0:
		return ""
	case e.holds(FailedBarePods):
		return "it has no owner: nobody would make it again"
	case p.Status.Phase != v1.PodFailed:
		return "it has no owner and has not failed"
	}
	return ""
}

func (e *evictor) local(p *model.Pod) string {
	if e.holds(PodsWithLocalStorage) {
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.HostPath != nil || v.EmptyDir != nil {
				return fmt.Sprintf("its volume %s is local storage (%s)", v.Name, PodsWithLocalStorage)
			}
		}
	}
	return ""
}

func (e *evictor) daemon(p *model.Pod) string {
	if e.holds(DaemonSetPods) && slices.ContainsFunc(p.OwnerReferences,
		func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" }) {
		return fmt.Sprintf("it is a DaemonSet's (%s)", DaemonSetPods)
	}
	return ""
}

func (e *evictor) claims(p *model.Pod) string {
	if !e.holds(PodsWithPVC) {
		return ""
	}
	classes := e.args.storageClasses()
	for i := range p.Spec.Volumes {
		v := p.Spec.Volumes[i].PersistentVolumeClaim
		switch {
		case v == nil:
			continue
		case len(classes) == 0:
			return fmt.Sprintf("it has the claim %s (%s)", v.ClaimName, PodsWithPVC)
		}
		claim := e.cluster.Claim(p.Namespace, v.ClaimName)
		if claim == nil {
			return fmt.Sprintf("its claim %s is not known, and so may be of a protected storage class",
				v.ClaimName)
		}
		if class := claim.Spec.StorageClassName; class == nil || *class == "" {
			return fmt.Sprintf("its claim %s names no storage class, and so may be of a protected one",
				v.ClaimName)
		}
		if slices.Contains(classes, *claim.Spec.StorageClassName) {
			return fmt.Sprintf("its claim %s is of the protected storage class %s", v.ClaimName,
				*claim.Spec.StorageClassName)
		}
	}
	return ""
}

func (e *evictor) budget(p *model.Pod) string {
	if e.holds(PodsWithoutPDB) && !e.budgets.Cover(p.Pod) {
		return fmt.Sprintf("no disruption budget is about it (%s)", PodsWithoutPDB)
	}
	return ""
}

func (e *evictor) resourceClaims(p *model.Pod) string {
	if e.holds(PodsWithResourceClaims) && len(p.Spec.ResourceClaims) > 0 {
		return fmt.Sprintf("it has resource claims (%s)", PodsWithResourceClaims)
	}
	return ""
}

// arguments: labels, replicas, age. Age counts from when the kubelet took the pod; one that no
// kubelet has taken is too young.
func (e *evictor) arguments(p *model.Pod) string {
	if !e.selector.Matches(labels.Set(p.Labels)) {
		return "its labels do not match the evictor's labelSelector"
	}
	if least := e.args.MinReplicas; least > 1 && len(p.OwnerReferences) == 1 {
		if count := e.replicas[ownerOf(p, 0)]; count < least {
			o := &p.OwnerReferences[0]
			return fmt.Sprintf("its owner %s %s has %d pods, fewer than minReplicas %d", o.Kind, o.Name,
				count, least)
		}
	}
	if age := e.args.MinPodAge; age != nil {
		start := p.Status.StartTime
		if start == nil {
			return fmt.Sprintf("it has not started, and minPodAge is %v", age.Duration)
		}
		if is := e.now.Sub(start.Time); is < age.Duration {
			return fmt.Sprintf("it is %v old, less than minPodAge %v", is.Round(time.Second), age.Duration)
		}
	}
	return ""
}

// late says why a pod that may be evicted is not after all: the evictor's PreEvictionFilter, which
// is asked last.
func (e *evictor) late(p *model.Pod) string {
	switch {
	case e.namespaces == nil:
	case !e.cluster.Known(p.Namespace) && asksForMore(e.namespaces):
		return "its namespace is not known, and with it whether its labels match the evictor's namespaceLabelSelector"
	case !e.namespaces.Matches(e.cluster.Namespace(p.Namespace)):
		return "its namespace does not match the evictor's namespaceLabelSelector"
	}
	if e.args.NodeFit {
		if n, why := e.cluster.Fits(p, e.nodes); n == nil {
			if why == "" {
				return "nodeFit: there is no other ready node"
			}
			return "nodeFit: no other node takes it: " + why
		}
	}
	return ""
}

// asksForMore reports whether a selector asks for more labels of a namespace than that which every
// one has by its name.
func asksForMore(s labels.Selector) bool {
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements,
		func(r labels.Requirement) bool { return r.Key() != v1.LabelMetadataName })
}

// protect notes all pods on the nodes that are looked at which the evictor keeps.
func (r *run) protect() {
	if r.evictor.noted {
		return
	}
	r.evictor.noted = true
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			if why := r.evictor.keeps(p); why != "" {
				r.skip(p, "%s", why)
			}
		}
	}
}

// may reports whether a pod may be evicted, and notes why not.
func (r *run) may(p *model.Pod) bool {
	why := r.evictor.keeps(p)
	if why != "" {
		r.skip(p, "%s", why)
	}
	return why == ""
}

// fits is may for the rules that are asked last.
func (r *run) fits(p *model.Pod) bool {
	why := r.evictor.late(p)
	if why != "" {
		r.skip(p, "%s", why)
	}
	return why == ""
}
