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

// crowd lets many pods run with annotations that exceed one answer of the runtime, also on their
// containers if hook > 0.
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

// The pod is back, and the runtime cannot list all its sandboxes and containers: its volume stays.
// It also stays if sandboxes lack the kubelet's labels, because then the agent cannot know whether
// the pod is back.
func TestPodIsBackAmongLargePods(t *testing.T) {
	for name, hook := range map[string]int{"large hooks": 300 << 10, "no container yet": 0} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		f.restartPod(time.Now().Add(time.Second))
		if hook == 0 {
			f.Runtime.Change(func() { f.Runtime.Containers = f.Runtime.Containers[:len(f.Runtime.Containers)-1] })
		}
		f.crowd(hook)
		if err := victim.Back(t.Context(), f.Client); err == nil {
			t.Errorf("%s, without labels: the pod is not reported as back", name)
		}
		f.Runtime.Change(func() {
			for _, s := range f.Runtime.Sandboxes {
				s.Labels = map[string]string{"io.kubernetes.pod.uid": s.Metadata.Uid}
			}
		})
		if err := victim.Back(t.Context(), f.Client); !errors.Is(err, kill.ErrBack) {
			t.Errorf("%s: pod %s: error %v, want ErrBack", name, nodetest.UID, err)
		}
		f.carrier.removeFiles(t.Context(), victim)
		f.left(true)
	}
}
