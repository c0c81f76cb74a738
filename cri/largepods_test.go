package cri

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

// annotated adds pods in one state with the maximum annotations that an API server accepts, each
// with a container unless bare.
func annotated(r *critest.Runtime, name string, n int, state runtimev1.PodSandboxState, of runtimev1.ContainerState, bare bool) {
	large := map[string]string{"x": strings.Repeat("x", 255<<10)}
	for i := range n {
		id := fmt.Sprint(name, i)
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{
			Id: id, State: state, Metadata: &runtimev1.PodSandboxMetadata{Uid: "u" + id, Name: "p", Namespace: "t"}, Annotations: large,
			Labels: map[string]string{uidLabel: "u" + id},
		})
		if !bare {
			r.Containers = append(r.Containers, &runtimev1.Container{
				Id: "c" + id, PodSandboxId: id, State: of, Metadata: &runtimev1.ContainerMetadata{Name: "c"},
			})
		}
	}
}

// Pods with annotations that exceed one answer are listed nevertheless. Those of finished pods do
// not prevent the listing of others. If those of running ones exceed one answer, each with a
// container is listed.
func TestSandboxesExceedOneAnswer(t *testing.T) {
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
				t.Errorf("list in case %s with streams %v: error %v", name, streams, err)
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
			if want := c.want["r"] == 70; got.Incomplete != want { // those that are ready exceed one answer
				t.Errorf("%s, streams %v: incomplete %v, want %v", name, streams, got.Incomplete, want)
			}
			if len(got.Containers) != len(r.Containers) {
				t.Errorf("%s, streams %v: %d containers, want %d", name, streams, len(got.Containers), len(r.Containers))
			}
			if own, err := dial(t, r.Endpoint()).SandboxesOf(t.Context(), "uplain0"); err != nil || len(own) != 1 {
				t.Errorf("%s, streams %v: sandboxes of uplain0 = %v, error %v, want one", name, streams, own, err)
			}
		}
	}
}

// heavyHooks makes containers exceed one answer.
func heavyHooks(of []*runtimev1.Container) {
	for _, c := range of {
		c.Annotations = map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 300<<10)}
	}
}

// A list never omits a running pod: if neither the sandboxes nor the containers that name them can
// be listed, it is an error. A sandbox that is not ready may have running containers too.
func TestListNeverOmitsRunningPods(t *testing.T) {
	const ready, over = runtimev1.PodSandboxState_SANDBOX_READY, runtimev1.PodSandboxState_SANDBOX_NOTREADY
	const running, exited = runtimev1.ContainerState_CONTAINER_RUNNING, runtimev1.ContainerState_CONTAINER_EXITED
	every := func(r *critest.Runtime) { // whatever the filter
		r.Answer["ListPodSandbox"] = func(any) any { return &runtimev1.ListPodSandboxResponse{Items: r.Sandboxes} }
	}
	for name, c := range map[string]struct {
		add  func(r *critest.Runtime)
		lost bool
	}{
		"large hooks in ready ones": {func(r *critest.Runtime) {
			annotated(r, "run", 70, ready, running, false)
			heavyHooks(r.Containers[1:])
		}, true},
		"large hooks in ones that are not ready": {func(r *critest.Runtime) {
			annotated(r, "run", 70, over, running, false)
			heavyHooks(r.Containers[1:])
		}, true},
		"large hooks in small ones, beside large ones that are over": {func(r *critest.Runtime) {
			annotated(r, "run", 70, ready, running, false)
			heavyHooks(r.Containers[1:])
			for _, s := range r.Sandboxes {
				s.Annotations = nil
			}
			annotated(r, "over", 70, over, exited, true)
		}, true}, // a container may run in one of those
		"no filter by id":          {func(r *critest.Runtime) { annotated(r, "run", 70, ready, running, false); every(r) }, true},
		"ones that are not ready":  {func(r *critest.Runtime) { annotated(r, "run", 70, over, running, false) }, false},
		"large hooks of dead ones": {func(r *critest.Runtime) { annotated(r, "over", 70, over, exited, false); heavyHooks(r.Containers[1:]) }, false},
	} {
		r := critest.Start(t)
		annotated(r, "plain", 1, ready, running, false)
		c.add(r)
		alive := map[string]bool{}
		for _, one := range r.Containers {
			alive[one.PodSandboxId] = alive[one.PodSandboxId] || one.State == running
		}
		client := dial(t, r.Endpoint())
		got, err := NewLister(client).List(t.Context())
		if c.lost && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: listed %d sandboxes, %d containers, error %v; the runtime has %d, %d", name, len(got.Sandboxes), len(got.Containers), err,
				len(r.Sandboxes), len(r.Containers))
		}
		for i := range got.Sandboxes {
			delete(alive, got.Sandboxes[i].ID)
		}
		for id, runs := range alive {
			if !c.lost && (runs || err != nil) {
				t.Errorf("%s: running sandbox %s is not listed: %v", name, id, err)
				break
			}
		}
	}
}

// A listed pod stays listed while it has no container, between two attempts.
func TestListedPodWithoutContainersStays(t *testing.T) {
	r := critest.Start(t)
	annotated(r, "run", 70, runtimev1.PodSandboxState_SANDBOX_READY, runtimev1.ContainerState_CONTAINER_RUNNING, false)
	l := NewLister(dial(t, r.Endpoint()))
	for range 2 {
		if got, err := l.List(t.Context()); err != nil || len(got.Sandboxes) != 70 {
			t.Errorf("listed %d sandboxes of %d containers, want 70; error %v", len(got.Sandboxes), len(got.Containers), err)
		}
		r.Change(func() { r.Containers = r.Containers[1:] })
	}
}

// SandboxesOf lists all sandboxes of a pod or fails: the caller removes the volumes of a pod without
// sandboxes. If all sandboxes exceed one answer it selects by the kubelet's label; a client that
// creates pods without the label may have one that is missing.
func TestSandboxesOfAmongLargePods(t *testing.T) {
	const ready, running = runtimev1.PodSandboxState_SANDBOX_READY, runtimev1.ContainerState_CONTAINER_RUNNING
	label := map[string]string{uidLabel: "u"}
	for name, c := range map[string]struct {
		labels  map[string]string
		bare    bool // it has no container yet
		many    int
		hooks   bool
		filters bool
		lost    bool
	}{
		"few":                        {many: 1, filters: true},
		"few, without a container":   {many: 1, bare: true, filters: true},
		"labelled":                   {labels: label, many: 70, filters: true},
		"not labelled":               {many: 70, filters: true, lost: true},
		"labelled, no container":     {labels: label, many: 70, bare: true, filters: true},
		"labelled, large hooks":      {labels: label, many: 70, hooks: true, filters: true},
		"not labelled, no container": {many: 70, bare: true, filters: true, lost: true},
		"not labelled, large hooks":  {many: 70, hooks: true, filters: true, lost: true},
		"no label of its own": {
			labels: map[string]string{uidLabel: "other"}, many: 70, bare: true, filters: true, lost: true},
		"no filters": {labels: label, many: 70, lost: true},
	} {
		r := critest.Start(t)
		annotated(r, "run", c.many, ready, running, false)
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "s", State: ready, Labels: c.labels, Metadata: &runtimev1.PodSandboxMetadata{Uid: "u"}},
			&runtimev1.PodSandbox{Id: "foreign", State: ready, Labels: label, Metadata: &runtimev1.PodSandboxMetadata{Uid: "another"}})
		if !c.bare {
			r.Containers = append(r.Containers, &runtimev1.Container{Id: "c", PodSandboxId: "s", State: running})
		}
		if c.hooks {
			heavyHooks(r.Containers)
		}
		if !c.filters {
			r.Answer["ListPodSandbox"] = func(any) any { return &runtimev1.ListPodSandboxResponse{Items: r.Sandboxes} }
		}
		own, err := dial(t, r.Endpoint()).SandboxesOf(t.Context(), "u")
		if told := err == nil && len(own) == 1 && own[0].ID == "s"; told == c.lost || c.lost && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: SandboxesOf() = %v, %v, want ErrTooLarge: %v", name, own, err, c.lost)
		}
	}
}
