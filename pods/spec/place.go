package spec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateTolerations(tolerations []v1.Toleration, path *field.Path) (errs field.ErrorList) {
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		operator := at.Child("operator")
		switch {
		case t.Key != "":
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		case t.Operator != v1.TolerationOpExists:
			errs = append(errs, field.Invalid(operator, t.Operator, "must be Exists without a key"))
		}
		if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute with "+
				"tolerationSeconds"))
		}
		switch t.Operator {
		case v1.TolerationOpEqual, "":
			errs = append(errs, invalid(operator, t.Value, validation.IsValidLabelValue)...)
		case v1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(operator, t.Value, "Exists must have no value"))
			}
		default:
			errs = append(errs, oneOf(operator, t.Operator, v1.TolerationOpEqual, v1.TolerationOpExists)...)
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(at.Child("effect"), t.Effect, v1.TaintEffectNoSchedule,
				v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

func validateNodeAffinity(a *v1.NodeAffinity, path *field.Path) (errs field.ErrorList) {
	if r := a.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		terms := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(r.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(terms, ""))
		}
		for i := range r.NodeSelectorTerms {
			errs = append(errs, validateTerm(&r.NodeSelectorTerms[i], true, terms.Index(i))...)
		}
	}
	preferred := path.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		t, at := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], preferred.Index(i)
		if t.Weight < 1 || t.Weight > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), t.Weight,
				validation.InclusiveRangeError(1, 100)))
		}
		errs = append(errs, validateTerm(&t.Preference, false, at.Child("preference"))...)
	}
	return errs
}

// validateTerm checks a node selector. A preference may compare with values that no label can have.
func validateTerm(t *v1.NodeSelectorTerm, required bool, path *field.Path) (errs field.ErrorList) {
	for i := range t.MatchExpressions {
		e, at := &t.MatchExpressions[i], path.Child("matchExpressions").Index(i)
		values := at.Child("values")
		switch n := len(e.Values); e.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if n == 0 {
				errs = append(errs, field.Required(values, "In and NotIn need values"))
			}
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
			if n > 0 {
				errs = append(errs, field.Forbidden(values, "Exists and DoesNotExist have no values"))
			}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if n != 1 {
				errs = append(errs, field.Required(values, "Gt and Lt need one value"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), e.Operator, "not an operator"))
		}
		errs = append(errs, metavalidation.ValidateLabelName(e.Key, at.Child("key"))...)
		for j := 0; required && j < len(e.Values); j++ {
			errs = append(errs, invalid(values.Index(j), e.Values[j], validation.IsValidLabelValue)...)
		}
	}
	for i := range t.MatchFields {
		f, at := &t.MatchFields[i], path.Child("matchFields").Index(i)
		switch f.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(f.Values) != 1 {
				errs = append(errs, field.Required(at.Child("values"), "a field needs one value"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), f.Operator, "must be In or NotIn"))
		}
		if f.Key != "metadata.name" {
			errs = append(errs, field.Invalid(at.Child("key"), f.Key, "must be metadata.name"))
			continue
		}
		for j, value := range f.Values {
			for _, message := range apivalidation.NameIsDNSSubdomain(value, false) {
				errs = append(errs, field.Invalid(at.Child("values").Index(j), value, message))
			}
		}
	}
	return errs
}
