package spec

import (
	"math"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePod checks a defaulted pod, as an API server does at its creation
// (ValidatePodCreate), and by ownRules.
func validatePod(p *v1.Pod, node string) field.ErrorList {
	errs := validateMeta(&p.ObjectMeta)
	if node != "" && len(errs) == 0 {
		for _, message := range validation.IsDNS1123Subdomain(nodeName(p.Name, node)) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), nodeName(p.Name, node),
				"with the node's name: "+message))
		}
	}
	path := field.NewPath("spec")
	errs = append(errs, validateContainers(p, path)...)
	errs = append(errs, validateSpec(&p.Spec, path)...)
	if p.Spec.Resources != nil {
		errs = append(errs, validatePodResources(p, path.Child("resources"))...)
	}
	for _, check := range ownRules {
		errs = append(errs, check(p)...)
	}
	return errs
}

func validateMeta(m *metav1.ObjectMeta) field.ErrorList {
	return apivalidation.ValidateObjectMeta(m, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
}

// validateSpec checks the fields of a pod that are not about its containers.
func validateSpec(s *v1.PodSpec, path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways,
		v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if t := s.ActiveDeadlineSeconds; t != nil && (*t < 1 || *t > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *t,
			validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if s.PriorityClassName != "" {
		for _, message := range apivalidation.NameIsDNSSubdomain(s.PriorityClassName, false) {
			errs = append(errs, field.Invalid(path.Child("priorityClassName"), s.PriorityClassName,
				message))
		}
	}
	if s.PreemptionPolicy != nil {
		errs = append(errs, oneOf(path.Child("preemptionPolicy"), *s.PreemptionPolicy,
			v1.PreemptLowerPriority, v1.PreemptNever)...)
	}
	errs = append(errs, oneOf(path.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirst, v1.DNSDefault,
		v1.DNSClusterFirstWithHostNet)...)
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validateTolerations(s.Tolerations, path.Child("tolerations"))...)
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		errs = append(errs, validateNodeAffinity(s.Affinity.NodeAffinity,
			path.Child("affinity", "nodeAffinity"))...)
	}
	return errs
}

// oneOf checks a field with a fixed set of values.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// ownRules are the rules that an API server does not have. Each is about a pod that the API accepts
// and that could not run here as written.
var ownRules = []func(p *v1.Pod) field.ErrorList{ownUID, ownPriority, ownOS, ownAnnotations}

// uidText matches UIDs that are safe in the names of folders, cgroups and systemd slices. The
// kubelet crashes at "a_b", and takes a cgroup with "pod" within the UID for another pod's.
var uidText = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,62}[0-9A-Za-z])?$`)

func ownUID(p *v1.Pod) field.ErrorList {
	if uid := string(p.UID); uid != "" && (!uidText.MatchString(uid) || strings.Contains(uid, "pod")) {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), clip(uid),
			"want at most 64 letters, digits and -, without \"pod\"")}
	}
	return nil
}

func ownPriority(p *v1.Pod) field.ErrorList {
	path := field.NewPath("spec", "priorityClassName")
	priority, ok := classes[p.Spec.PriorityClassName]
	switch {
	case p.Spec.PriorityClassName == "":
	case !ok:
		return field.ErrorList{field.NotSupported(path, p.Spec.PriorityClassName, []string{
			"system-cluster-critical", "system-node-critical", "none: set spec.priority"})}
	case *p.Spec.Priority != priority:
		return field.ErrorList{field.Invalid(field.NewPath("spec", "priority"), *p.Spec.Priority,
			"the priority of the class differs: leave it out")}
	}
	return nil
}

func ownOS(p *v1.Pod) field.ErrorList {
	if p.Spec.OS == nil {
		return nil
	}
	return oneOf(field.NewPath("spec", "os", "name"), p.Spec.OS.Name, v1.Linux)
}

// ownAnnotations refuses annotations that would have to be applied, as the fields that replace them.
func ownAnnotations(p *v1.Pod) (errs field.ErrorList) {
	for key := range p.Annotations {
		path := field.NewPath("metadata", "annotations").Key(key)
		switch {
		case key == v1.MirrorPodAnnotationKey:
			errs = append(errs, field.Forbidden(path, "the pod is a copy of a kubelet's static pod: use "+
				"the kubelet's manifest"))
		case strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix),
			key == v1.SeccompPodAnnotationKey, strings.HasPrefix(key, v1.SeccompContainerAnnotationKeyPrefix):
			errs = append(errs, field.Forbidden(path, "not supported: "+noIsolation))
		}
	}
	return errs
}
