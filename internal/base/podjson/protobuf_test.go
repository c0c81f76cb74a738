package podjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that uses much more memory than text is not decoded; a usual one is.
func TestMemoryOfKubeletPod(t *testing.T) {
	named := metav1.ObjectMeta{UID: "u", Namespace: "n", Name: "p"}
	for name, spec := range map[string]v1.PodSpec{
		"volumes": {Volumes: make([]v1.Volume, 50_000)}, "containers": {Containers: make([]v1.Container, 50_000)},
		"environment":          {Containers: []v1.Container{{Env: make([]v1.EnvVar, 100_000)}}},
		"ephemeral containers": {EphemeralContainers: make([]v1.EphemeralContainer, 50_000)},
		"tolerations":          {Tolerations: make([]v1.Toleration, 100_000)},
		"terms": {Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: make([]v1.PodAffinityTerm, 200_000),
		}}},
	} {
		p := &v1.Pod{ObjectMeta: named, Spec: spec}
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Protobuf(raw); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Protobuf of %d bytes of %s: error %v, want ErrTooLarge", len(raw), name, err)
		}
	}
	var p v1.Pod
	if err := json.Unmarshal([]byte(realistic(1)), &p); err != nil {
		t.Fatal(err)
	}
	for len(p.Spec.Containers) < 40 {
		p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, p.Status.ContainerStatuses[0])
	}
	p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: "A", Value: strings.Repeat("a", 1<<20)})
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Protobuf(raw); err != nil || !equality.Semantic.DeepEqual(got.Spec.Containers, Trim(&p).Spec.Containers) {
		t.Errorf("Protobuf of a pod with 40 containers, estimated %d bytes: error %v, or containers differ", decodedSize(raw), err)
	}
}
