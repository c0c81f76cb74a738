package spec

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// defaultRequests sets missing requests of a container to its limits.
func defaultRequests(r *v1.ResourceRequirements) {
	for name, limit := range r.Limits {
		setResource(&r.Requests, name, limit)
	}
}

// setResource sets a resource that a list lacks.
func setResource(list *v1.ResourceList, name v1.ResourceName, value resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = value.DeepCopy()
}

// removeRequests removes the requests of a container that are its limits.
func removeRequests(r *v1.ResourceRequirements) {
	maps.DeleteFunc(r.Requests, func(name v1.ResourceName, request resource.Quantity) bool {
		limit, ok := r.Limits[name]
		return ok && limit.Cmp(request) == 0
	})
}

// roundResources rounds amounts up to thousandths, as an API server does.
func roundResources(r *v1.ResourceRequirements) {
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name, value := range list {
			value.RoundUp(resource.Milli)
			list[name] = value
		}
	}
}

// defaultPodResources sets missing requests and limits of a pod that has some. The containers'
// defaults are set.
func defaultPodResources(p *v1.Pod) {
	r := p.Spec.Resources
	if len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	limits := resourcehelper.AggregateContainerLimits(p, resourcehelper.PodResourcesOptions{})
	requests := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	for name, limit := range limits {
		if _, requested := r.Requests[name]; isHugePage(name) && !requested {
			setResource(&r.Limits, name, limit)
		}
	}
	for name, request := range requests {
		if resourcehelper.IsSupportedPodLevelResource(name) && isOvercommitted(name) {
			setResource(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			setResource(&r.Requests, name, limit)
		}
	}
	for name, request := range r.Requests {
		limit, ok := limits[name]
		if !ok || !resourcehelper.IsSupportedPodLevelResource(name) || !allLimited(&p.Spec, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setResource(&r.Limits, name, limit)
	}
}

// allLimited reports whether all containers have a limit.
func allLimited(s *v1.PodSpec, name v1.ResourceName) bool {
	for c := range containersOf(s) {
		if _, ok := c.Resources.Limits[name]; !ok {
			return false
		}
	}
	return true
}

// removePodResources removes the requests and limits of a pod that defaultPodResources sets again.
func removePodResources(p *v1.Pod) {
	all := p.Spec.Resources.DeepCopy()
	for _, list := range []v1.ResourceList{p.Spec.Resources.Limits, p.Spec.Resources.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			value := list[name]
			delete(list, name)
			again := &v1.Pod{Spec: v1.PodSpec{Resources: p.Spec.Resources.DeepCopy(),
				Containers: p.Spec.Containers, InitContainers: p.Spec.InitContainers}}
			defaultPodResources(again)
			if !sameAmounts(all.Limits, again.Spec.Resources.Limits) ||
				!sameAmounts(all.Requests, again.Spec.Resources.Requests) {
				list[name] = value
			}
		}
	}
}

func sameAmounts(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

func isHugePage(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isNative reports whether a resource belongs to Kubernetes.
func isNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") ||
		strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// isOvercommitted reports whether limits may exceed requests.
func isOvercommitted(name v1.ResourceName) bool { return isNative(name) && !isHugePage(name) }

// validateResources checks requests and limits of a container, or of a pod.
func validateResources(r *v1.ResourceRequirements, ofPod bool, path *field.Path) (errs field.ErrorList) {
	limits, requests := path.Child("limits"), path.Child("requests")
	hugePages, base := false, false
	for _, list := range []struct {
		of   v1.ResourceList
		path *field.Path
	}{{r.Limits, limits}, {r.Requests, requests}} {
		for name, value := range list.of {
			at := list.path.Key(string(name))
			errs = append(errs, validateResourceName(name, ofPod, at)...)
			errs = append(errs, validateAmount(name, value, at)...)
			hugePages = hugePages || isHugePage(name)
			base = base || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	for name, request := range r.Requests {
		limit, limited := r.Limits[name]
		switch c := request.Cmp(limit); {
		case !limited && !isOvercommitted(name):
			errs = append(errs, field.Required(limits, "the limit of "+string(name)+
				" must be set: it equals the request"))
		case limited && c != 0 && !isOvercommitted(name):
			errs = append(errs, field.Invalid(requests, request.String(), "must be the limit of "+
				string(name)+", "+limit.String()))
		case limited && c > 0:
			errs = append(errs, field.Invalid(requests, request.String(), "must be at most the limit of "+
				string(name)+", "+limit.String()))
		}
	}
	if hugePages && !base {
		errs = append(errs, field.Forbidden(path, "huge pages need a request or limit of cpu or memory"))
	}
	return errs
}

func validateResourceName(name v1.ResourceName, ofPod bool, path *field.Path) (errs field.ErrorList) {
	for _, message := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	known := name == v1.ResourceCPU || name == v1.ResourceMemory || isHugePage(name)
	switch {
	case len(errs) > 0 || known:
	case ofPod:
		errs = append(errs, field.NotSupported(path, name, []string{"cpu", "memory", "hugepages-*"}))
	case name == v1.ResourceEphemeralStorage:
	case !strings.Contains(string(name), "/"):
		errs = append(errs, field.NotSupported(path, name, []string{"cpu", "memory",
			"ephemeral-storage", "hugepages-*", "a name with a domain"}))
	case !isNative(name) && !isExtended(name):
		errs = append(errs, field.Invalid(path, name, "not the name of an extended resource"))
	}
	return errs
}

// isExtended reports whether a resource is counted by a device plugin.
func isExtended(name v1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func validateAmount(name v1.ResourceName, value resource.Quantity, path *field.Path) (errs field.ErrorList) {
	if isExtended(name) && value.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, value.String(), "must be a whole number"))
	}
	if !isHugePage(name) {
		return errs
	}
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || value.Value()%size.Value() != 0 {
		errs = append(errs, field.Invalid(path, value.String(), "must be a multiple of the page size"))
	}
	return errs
}

// validatePodResources compares requests and limits of a pod with those of its containers.
func validatePodResources(p *v1.Pod, path *field.Path) field.ErrorList {
	r := p.Spec.Resources
	errs := validateResources(r, true, path)
	options := resourcehelper.PodResourcesOptions{}
	for name, sum := range resourcehelper.AggregateContainerRequests(p, options) {
		if request, ok := r.Requests[name]; ok && sum.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				"must be at least the requests of the containers, "+sum.String()))
		}
	}
	for name, sum := range resourcehelper.AggregateContainerLimits(p, options) {
		if limit, ok := r.Limits[name]; ok && isHugePage(name) && sum.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), limit.String(),
				"must be at least the limits of the containers, "+sum.String()))
		}
	}
	for i := range p.Spec.Containers {
		for name, limit := range p.Spec.Containers[i].Resources.Limits {
			if most, ok := r.Limits[name]; ok && limit.Cmp(most) > 0 {
				at := field.NewPath("spec", "containers").Index(i).Child("resources", "limits")
				errs = append(errs, field.Invalid(at.Key(string(name)), limit.String(),
					"must be at most the limit of the pod, "+most.String()))
			}
		}
	}
	return errs
}
