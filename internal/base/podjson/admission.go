package podjson

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// DecodeForAdmission decodes the pod of an admission request. Unlike Pod it accepts unknown fields,
// because a field of a newer API cannot be a resource that the node lacks; unknown holds the first
// hundred. Required fields may be missing: see Complete. The pod is not trimmed.
func DecodeForAdmission(raw []byte) (p *v1.Pod, unknown []string, err error) {
	p, warnings, err := decode(raw, bounds{memory: MaxAsking, unique: true})
	if err != nil {
		return nil, nil, err
	}
	for _, d := range warnings {
		field, ok := strings.CutPrefix(d.Error(), unknownField)
		if !ok {
			return nil, nil, d // a duplicate field: its meaning is undefined
		}
		unknown = append(unknown, strings.Trim(field, `"`))
	}
	if err := checkLimits(p); err != nil {
		return nil, nil, err
	}
	return p, unknown, nil
}

// unknownField is the start of the errors of sigs.k8s.io/json for unknown fields.
const unknownField = "unknown field "

// Complete returns an error for a pod of an admission request that is not Named, or has no
// container: most of such a text was not understood, and a pod without requests would be admitted.
// unknown are its unknown fields, as returned by DecodeForAdmission.
func Complete(p *v1.Pod, unknown []string) error {
	if err := Named(p); err != nil {
		return err
	}
	if len(p.Spec.Containers) > 0 {
		return nil
	}
	if len(unknown) > 0 {
		return fmt.Errorf("spec.containers: missing; unknown field %q", clip(unknown[0]))
	}
	return errors.New("spec.containers: missing")
}

// Typed returns an error for a pod without apiVersion or kind.
func Typed(p *v1.Pod) error {
	if p.Kind == "" || p.APIVersion == "" {
		return errKind(p.APIVersion, p.Kind)
	}
	return nil
}

// Named returns an error for a pod with a missing or invalid uid, namespace or name.
func Named(p *v1.Pod) error {
	if err := checkUID(string(p.UID)); err != nil {
		return err
	}
	return checkNames(p)
}
