package evictions

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/internal/node/kill"
	"jettison/internal/node/nodetest"
)

// crowd has many pods run whose annotations are more than an answer takes, and their containers too with hooks.
func (f *fixture) crowd(hook int) {
	f.Runtime.Change(func() {
		for i := range 70 {
			id := fmt.Sprint("t", i)
			f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{
				Id: id, Metadata: &runtimev1.PodSandboxMetadata{Uid: "u" + id}, Annotations: map[string]string{"x": strings.Repeat("x", 255<<10)},
			})
			f.Runtime.Containers = append(f.Runtime.Containers, &runtimev1.Container{
				Id: "c" + id, PodSandboxId: id, State: runtimev1.ContainerState_CONTAINER_RUNNING,
				Annotations: map[string]string{"hook": strings.Repeat("x", hook)},
			})
		}
	})
}

// The pod is back and the runtime cannot tell all its sandboxes, nor all its containers: its volume stays. Whoever does not label a pod's
// sandboxes as a kubelet does has it stay too: it is not known whether the pod is back then.
func TestThePodIsBackAmongLargeOnes(t *testing.T) {
	for name, hook := range map[string]int{"large hooks": 300 << 10, "it has no container yet": 0} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		f.comesBack(time.Now().Add(time.Second))
		if hook == 0 {
			f.Runtime.Change(func() { f.Runtime.Containers = f.Runtime.Containers[:len(f.Runtime.Containers)-1] })
		}
		f.crowd(hook)
		if err := victim.Back(t.Context(), f.Client); err == nil {
			t.Errorf("%s, not labelled: it is not back", name)
		}
		f.Runtime.Change(func() {
			for _, s := range f.Runtime.Sandboxes {
				s.Labels = map[string]string{"io.kubernetes.pod.uid": s.Metadata.Uid}
			}
		})
		if err := victim.Back(t.Context(), f.Client); !errors.Is(err, kill.ErrBack) {
			t.Errorf("%s: pod %s: %v", name, nodetest.UID, err)
		}
		f.carrier.removeFiles(t.Context(), victim)
		f.left(true)
	}
}
