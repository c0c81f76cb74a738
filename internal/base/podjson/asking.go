package podjson

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Asking decodes a pod that asks whether a node takes it. Unlike Pod it does not refuse a field
// that it does not know, for one of a newer API is nothing that the node can be short of; the first
// hundred of these are named in unknown. What a pod must have may be missing: see Complete. What
// comes back is not trimmed.
func Asking(raw []byte) (p *v1.Pod, unknown []string, err error) {
	p, doubts, err := decode(raw, bounds{memory: MaxAsking, once: true})
	if err != nil {
		return nil, nil, err
	}
	for _, d := range doubts {
		field, ok := strings.CutPrefix(d.Error(), unknownField)
		if !ok {
			return nil, nil, d // a field that is there twice has no meaning
		}
		unknown = append(unknown, strings.Trim(field, `"`))
	}
	if err := bearable(p); err != nil {
		return nil, nil, err
	}
	return p, unknown, nil
}

// unknownField begins what sigs.k8s.io/json says of one.
const unknownField = "unknown field "

// Complete refuses a pod that asks and is not Named, or has no container: of such a text most was
// not understood, and a pod that asks for nothing would be admitted. unknown are fields of it, as
// Asking has them.
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

// Typed refuses a pod that does not say that it is one.
func Typed(p *v1.Pod) error {
	if p.Kind == "" || p.APIVersion == "" {
		return errKind(p.APIVersion, p.Kind)
	}
	return nil
}

// Named refuses a pod whose uid, namespace or name is missing or odd.
func Named(p *v1.Pod) error {
	if err := checkUID(string(p.UID)); err != nil {
		return err
	}
	return checkNames(p)
}
