package podjson

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Asking decodes a pod that asks whether a node takes it. Unlike Pod it does not refuse a field that it does not know, for one of a newer
// API is nothing that the node can be short of; these are named in unknown. uid, namespace and name may be missing: see Named. What comes
// back is not trimmed.
func Asking(raw []byte) (p *v1.Pod, unknown []string, err error) {
	p, doubts, err := decode(raw, bounds{MaxAsking, maxUnknown})
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
	return p, unknown, nil
}

// unknownField begins what sigs.k8s.io/json says of one.
const unknownField = "unknown field "

// Named refuses a pod whose uid, namespace or name is missing or odd.
func Named(p *v1.Pod) error {
	if err := checkUID(string(p.UID)); err != nil {
		return err
	}
	return checkNames(p)
}
