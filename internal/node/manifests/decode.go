package manifests

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"jettison/internal/base/podjson"
)

// parse decodes a manifest, YAML or JSON, as the kubelet does (pkg/kubelet/config/common.go
// tryDecodeSinglePod): it uses the first document only. Unknown or duplicate fields are returned as
// doubt.
func parse(text []byte) (p *v1.Pod, doubt, err error) {
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, nil, fmt.Errorf("not YAML: %s", oneLine(err))
	}
	p, doubts, err := podjson.Manifest(raw)
	if err != nil {
		return nil, nil, err
	}
	if len(doubts) > 0 {
		doubt = doubts[0]
	} else if _, err := yaml.YAMLToJSONStrict(text); err != nil {
		doubt = errors.New(oneLine(err))
	}
	p = podjson.Trim(p)
	p.Status = v1.PodStatus{}
	setDefaults(p)
	return p, doubt, nil
}

func oneLine(err error) string {
	s := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(),
		"error converting YAML to JSON: ")), " ")
	const most = 300
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// setDefaults sets the defaults that an API server sets, as far as they are used here
// (pkg/apis/core/v1/defaults.go SetDefaults_Pod, SetDefaults_PodSpec): a missing request of a
// container is its limit. Pod-level resources stay unset, because they are not used to rank static
// pods.
func setDefaults(p *v1.Pod) {
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			if len(r.Limits) == 0 {
				continue
			}
			requests := v1.ResourceList{}
			maps.Copy(requests, r.Limits)
			maps.Copy(requests, r.Requests)
			r.Requests = requests
		}
	}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
		p.Spec.TerminationGracePeriodSeconds = &seconds
	}
}
