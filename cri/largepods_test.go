package cri

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

// annotated adds pods of one state with as many annotations as an API server takes, each with a container unless bare.
func annotated(r *critest.Runtime, name string, n int, state runtimev1.PodSandboxState, of runtimev1.ContainerState, bare bool) {
	large := map[string]string{"x": strings.Repeat("x", 255<<10)}
	for i := range n {
		id := fmt.Sprint(name, i)
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{
			Id: id, State: state, Metadata: &runtimev1.PodSandboxMetadata{Uid: "u" + id, Name: "p", Namespace: "t"}, Annotations: large,
		})
		if !bare {
			r.Containers = append(r.Containers, &runtimev1.Container{
				Id: "c" + id, PodSandboxId: id, State: of, Metadata: &runtimev1.ContainerMetadata{Name: "c"},
			})
		}
	}
}

// Pods whose annotations are too large for one answer are known all the same: those of finished pods keep nobody from being listed, and where
// those of running ones are too large by themselves, each that has a container is.
func TestSandboxesTooLargeForOneAnswer(t *testing.T) {
	const ready, over = runtimev1.PodSandboxState_SANDBOX_READY, runtimev1.PodSandboxState_SANDBOX_NOTREADY
	const running, exited = runtimev1.ContainerState_CONTAINER_RUNNING, runtimev1.ContainerState_CONTAINER_EXITED
	for name, c := range map[string]struct {
		add  func(r *critest.Runtime)
		want map[string]int // by the first letter of their ids
	}{
		"finished pods":             {func(r *critest.Runtime) { annotated(r, "over", 70, over, exited, false) }, map[string]int{"p": 1, "o": 70}},
		"finished and removed pods": {func(r *critest.Runtime) { annotated(r, "over", 70, over, exited, true) }, map[string]int{"p": 1}},
		"running pods":              {func(r *critest.Runtime) { annotated(r, "run", 70, ready, running, false) }, map[string]int{"p": 1, "r": 70}},
		"both": {func(r *critest.Runtime) {
			annotated(r, "over", 40, over, exited, true)
			annotated(r, "run", 40, ready, running, true)
		}, map[string]int{"p": 1, "o": 40, "r": 40}},
		"pods between two attempts": {func(r *critest.Runtime) { annotated(r, "run", 70, ready, exited, false) }, map[string]int{"p": 1, "r": 70}},
	} {
		for _, streams := range []bool{false, true} {
			r := critest.Start(t)
			r.Streams, r.Batch = streams, 1000 // a message with all
			annotated(r, "plain", 1, ready, running, false)
			c.add(r)
			got, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
			if err != nil {
				t.Errorf("%s, streams %v: %v", name, streams, err)
				continue
			}
			count, ids := map[string]int{}, []string{}
			for i := range got.Sandboxes {
				count[got.Sandboxes[i].ID[:1]]++
				ids = append(ids, got.Sandboxes[i].ID)
			}
			slices.Sort(ids)
			if fmt.Sprint(count) != fmt.Sprint(c.want) || len(slices.Compact(ids)) != len(got.Sandboxes) {
				t.Errorf("%s, streams %v: %v sandboxes, want %v", name, streams, count, c.want)
			}
			if len(got.Containers) != len(r.Containers) {
				t.Errorf("%s, streams %v: %d containers, want %d", name, streams, len(got.Containers), len(r.Containers))
			}
			if own, err := dial(t, r.Endpoint()).SandboxesOf(t.Context(), "uplain0"); err != nil || len(own) != 1 {
				t.Errorf("%s, streams %v: a pod's own sandboxes: %v, %v", name, streams, own, err)
			}
		}
	}
}
