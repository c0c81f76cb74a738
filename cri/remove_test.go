package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

func TestRemove(t *testing.T) {
	r := critest.Start(t)
	r.Containers = []*runtimev1.Container{{Id: "c", PodSandboxId: "s"}, {Id: "d", PodSandboxId: "t"}}
	r.Images = []*runtimev1.Image{{Id: "sha256:1", RepoTags: []string{"a:1"}}}
	c := dial(t, r.Endpoint())
	if got, err := c.Containers(t.Context(), "s"); err != nil || len(got) != 1 || got[0].ID != "c" {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
	if got, err := all(t, c); err != nil || len(got) != 2 {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
	if i, err := c.ImageStatus(t.Context(), "a:1"); err != nil || i.ID != "sha256:1" {
		t.Errorf("ImageStatus() = %+v, %v, not as expected", i, err)
	}
	if _, err := c.ImageStatus(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error for a missing object = %v, want ErrNotFound", err)
	}
	for range 2 { // the second time it is gone
		if err := errors.Join(c.RemoveContainer(t.Context(), "c"), c.RemoveImage(t.Context(), "sha256:1", "")); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"container c", "image sha256:1", "container c"}; !slices.Equal(r.Removed, want) {
		t.Errorf("removed objects = %v, want %v", r.Removed, want)
	}
	r.Fail["RemoveContainer"] = status.Error(codes.NotFound, "gone")
	if err := c.RemoveContainer(t.Context(), "c"); err != nil {
		t.Errorf("error for a missing object = %v, want none", err)
	}
	r.Change(func() { clear(r.Fail); r.Hang["RemoveImage"], r.Hang["RemoveContainer"] = true, true })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, err := range []error{c.RemoveContainer(ctx, "c"), c.RemoveImage(ctx, "x", "")} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error with a hung runtime = %v, want DeadlineExceeded", err)
		}
	}
}

func TestSandboxStatus(t *testing.T) {
	r := critest.Start(t)
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u", Attempt: 3}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7}}
	c := dial(t, r.Endpoint())
	for info, want := range map[string]string{`{"image": "pause:1"}`: "pause:1", `{"image": 7}`: "", "": "", "{": ""} {
		r.Change(func() { r.Info["s"] = info })
		s, image, err := c.SandboxStatus(t.Context(), "s")
		if err != nil || image != want || s.ID != "s" || s.UID != "u" || s.Ready || s.Attempt != 3 || !s.CreatedAt.Equal(time.Unix(0, 7)) {
			t.Errorf("SandboxStatus() with info %q = %+v, image %q, error %v", info, s, image, err)
		}
	}
	if _, _, err := c.SandboxStatus(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error for a missing object = %v, want ErrNotFound", err)
	}
	r.Change(func() {
		r.Answer["PodSandboxStatus"] = func(any) any { return &runtimev1.PodSandboxStatusResponse{} }
	})
	if _, _, err := c.SandboxStatus(t.Context(), "s"); err == nil {
		t.Error("SandboxStatus() accepted an answer without a status")
	}
	for config, want := range map[string][]string{
		`{"sandboxImage": "a"}`: {"a"}, `{"pinnedImages": {"sandbox": "b"}}`: {"b"}, `{"sandboxImage": "a", "pinnedImages": []}`: {"a"}, "": nil, "[]": nil,
	} {
		r.Change(func() { r.Config = config })
		if got, err := c.SandboxImages(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("sandbox images with config %s = %v, error %v", config, got, err)
		}
	}
	var got []PodSandbox
	left, err := c.Sandboxes(t.Context(), nil, func(s *PodSandbox) { got = append(got, *s) })
	if err != nil || len(got) != 1 || got[0].UID != "u" || left != (Unlisted{}) {
		t.Errorf("sandboxes = %+v, missing %+v, error %v, want one of pod u", got, left, err)
	}
}

// An image is listed once per runtime handler that it was pulled for (weakness 18: the handler is
// kept).
func TestImagesByRuntimeHandler(t *testing.T) {
	r := critest.Start(t)
	for _, handler := range []string{"", "vm", "vm"} {
		r.Images = append(r.Images, &runtimev1.Image{Id: "sha256:1", Spec: &runtimev1.ImageSpec{RuntimeHandler: handler}})
	}
	got, err := dial(t, r.Endpoint()).ListImages(t.Context())
	if err != nil || len(got) != 2 || got[0].RuntimeHandler != "" || got[1].RuntimeHandler != "vm" {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
}

// all returns the containers of all sandboxes.
func all(t *testing.T, c *Client) (out []Container, err error) {
	var large error
	err = c.AllContainers(t.Context(), nil, ContainerCallbacks{
		Again: func() { out = nil }, Container: func(one *Container) { out = append(out, *one) }, Sandbox: func(*PodSandbox) {},
		Left:     func(left Unlisted) { t.Errorf("sandboxes are missing: %+v, want none", left) },
		Unlisted: func(id string, of ContainerState) { large = fmt.Errorf("sandbox %s, %v: %w", id, of, ErrTooLarge) },
	})
	return out, errors.Join(err, large)
}

// Containers that exceed one answer are listed sandbox by sandbox: otherwise excessive garbage
// could never be collected.
func TestContainersExceedOneAnswer(t *testing.T) {
	r := critest.Start(t)
	filler := map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 2<<20)}
	for i := range 12 {
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: fmt.Sprint("s", i)})
		r.Containers = append(r.Containers, &runtimev1.Container{Id: fmt.Sprint("c", i), PodSandboxId: fmt.Sprint("s", i), Annotations: filler})
	}
	got, err := all(t, dial(t, r.Endpoint()))
	if err != nil || len(got) != 12 {
		t.Errorf("containers listed = %d, want 12; error %v", len(got), err)
	}
}

// Alive makes four calls, even if the runtime ignores filters.
func TestAlive(t *testing.T) {
	r := node(t)
	r.Containers[2].State = runtimev1.ContainerState_CONTAINER_UNKNOWN
	r.Containers = append(r.Containers, &runtimev1.Container{Id: "dead", PodSandboxId: "s1", State: runtimev1.ContainerState_CONTAINER_EXITED})
	c := dial(t, r.Endpoint())
	for _, filters := range []bool{true, false} {
		if !filters {
			every := &runtimev1.ListContainersResponse{Containers: r.Containers}
			r.Change(func() { r.Answer["ListContainers"] = func(any) any { return every } })
		}
		sandboxes, containers, err := c.Alive(t.Context())
		var is []string
		for _, one := range containers {
			is = append(is, one.ID+" "+one.State.String())
		}
		if err != nil || len(sandboxes) != 1 || sandboxes[0].ID != "s1" || !slices.Equal(is, []string{"c2 created", "c1 running", "c0 unknown"}) {
			t.Errorf("Alive() with filters %v = %+v, containers %v, error %v", filters, sandboxes, is, err)
		}
	}
	if r.Calls("ListContainers") != 6 || r.Calls("ListPodSandbox") != 2 {
		t.Errorf("calls = %d ListContainers and %d ListPodSandbox, want four in total", r.Calls("ListContainers"), r.Calls("ListPodSandbox"))
	}
}

// A sandbox with containers that exceed one answer does not prevent the listing of others, nor of
// its own containers in other states.
func TestSandboxExceedsOneAnswer(t *testing.T) {
	r := critest.Start(t)
	for _, id := range []string{"large", "s"} {
		r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: id})
	}
	filler := map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 2<<20)}
	for i := range 12 {
		r.Containers = append(r.Containers, &runtimev1.Container{
			Id: fmt.Sprint("l", i), PodSandboxId: "large", Annotations: filler, State: runtimev1.ContainerState_CONTAINER_EXITED,
		})
	}
	for id, sandbox := range map[string]string{"runs": "large", "c": "s"} {
		r.Containers = append(r.Containers, &runtimev1.Container{Id: id, PodSandboxId: sandbox, State: runtimev1.ContainerState_CONTAINER_RUNNING})
	}
	var got, untold, came []string
	err := dial(t, r.Endpoint()).AllContainers(t.Context(), []string{"large"}, ContainerCallbacks{
		Again: func() { got = nil }, Container: func(one *Container) { got = append(got, one.ID) }, Sandbox: func(s *PodSandbox) { came = append(came, s.ID) },
		Left:     func(left Unlisted) { t.Errorf("sandboxes are missing: %+v, want none", left) },
		Unlisted: func(id string, state ContainerState) { untold = append(untold, id+" "+state.String()) },
	})
	if err != nil || !slices.Equal(got, []string{"runs", "c"}) || !slices.Equal(untold, []string{"large exited"}) || !slices.Equal(came, []string{"s"}) {
		t.Errorf("containers %v, too large %v, new sandboxes %v, error %v", got, untold, came, err)
	}
}

// Dead containers that exceed one answer do not cost one call each: those that may run are listed
// in one call per state, then exited ones in ready sandboxes, which count in the request. An agent
// that starts on such a node has 10 s in total.
func TestDeadContainersExceedOneAnswer(t *testing.T) {
	for name, hostile := range map[string]bool{"dead ones": false, "and those that run": true} {
		r := critest.Start(t)
		filler := map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 900_000)}
		add := func(id string, ready bool, states ...runtimev1.ContainerState) {
			s := &runtimev1.PodSandbox{Id: id, Metadata: &runtimev1.PodSandboxMetadata{Uid: id}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY}
			if ready {
				s.State = runtimev1.PodSandboxState_SANDBOX_READY
			}
			r.Sandboxes = append(r.Sandboxes, s)
			for _, state := range states {
				c := &runtimev1.Container{Id: id + state.String(), PodSandboxId: id, State: state}
				if hostile || !ready {
					c.Annotations = filler
				}
				r.Containers = append(r.Containers, c)
			}
		}
		const exited = runtimev1.ContainerState_CONTAINER_EXITED
		for i := range 60 {
			add(fmt.Sprint("dead", i), false, exited)
		}
		for i := range 20 {
			add(fmt.Sprint("ready", i), true, 0, 1, exited, 3)
		}
		add("half", false, 1, exited)
		patient := dial(t, r.Endpoint())
		patient.timeouts.list = time.Minute // what is counted is calls, however busy the machine is
		got, err := NewLister(patient).List(t.Context())
		calls, want, most := r.Calls("ListContainers"), 20*4+1, 1+3+20
		if hostile {
			want, most = 20*4+2+60, 1+3+81
		}
		if err != nil || calls > most || len(got.Containers) != want || slices.ContainsFunc(got.Sandboxes, func(s PodSandbox) bool { return s.Refused }) {
			t.Errorf("%s: %d calls, want at most %d; %d containers, want %d: %v", name, calls, most, len(got.Containers), want, err)
		}
	}
}

// A List contains at most a thousand sandboxes and containers of ended pods: the newest, all that
// may run, and all that may be static or have relevant annotations.
func TestListLimitsEndedPods(t *testing.T) {
	r := critest.Start(t)
	api := map[string]string{"kubernetes.io/config.source": "api", "kubernetes.io/config.seen": "now"}
	for i := range 3 * maxEnded {
		id := fmt.Sprintf("s%05d", i)
		s := &runtimev1.PodSandbox{
			Id: id, Metadata: &runtimev1.PodSandboxMetadata{Uid: "u" + id}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY,
			CreatedAt: int64(i + 1), Annotations: api,
		}
		c := &runtimev1.Container{Id: "c" + id, PodSandboxId: id, State: runtimev1.ContainerState_CONTAINER_EXITED}
		switch i {
		case 1:
			s.State = runtimev1.PodSandboxState_SANDBOX_READY
		case 2: // of the same pod as that
			s.Metadata.Uid = "us00001"
		case 3:
			c.State = runtimev1.ContainerState_CONTAINER_RUNNING
		case 4:
			c.State = runtimev1.ContainerState_CONTAINER_UNKNOWN
		case 5:
			s.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		case 6:
			s.Annotations = map[string]string{"kubernetes.io/config.source": "api", "jettison/priority": "7"}
		case 7:
			s.Annotations = nil
		}
		r.Sandboxes, r.Containers = append(r.Sandboxes, s), append(r.Containers, c)
	}
	l := NewLister(dial(t, r.Endpoint()))
	for range 2 {
		got, err := l.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sandboxes, containers := map[string]bool{}, map[string]bool{}
		for i := range got.Sandboxes {
			sandboxes[got.Sandboxes[i].ID] = true
		}
		for i := range got.Containers {
			containers[got.Containers[i].SandboxID] = true
		}
		for i := 1; i <= 7; i++ {
			if id := fmt.Sprintf("s%05d", i); !sandboxes[id] || i <= 4 && !containers[id] {
				t.Errorf("sandbox %s listed: %v, its container: %v; want the opposite", id, sandboxes[id], containers[id])
			}
		}
		newest := fmt.Sprintf("s%05d", 3*maxEnded-1)
		if !sandboxes[newest] || len(sandboxes) != maxEnded+7 || len(containers) != maxEnded+4 {
			t.Errorf("%d sandboxes, want %d; %d containers, want %d; the newest: %v", len(sandboxes), maxEnded+7, len(containers), maxEnded+4, sandboxes[newest])
		}
	}
}

// Sandboxes that appear while others are visited are visited too, for a limited number of rounds;
// then it is an error.
func TestSandboxesAppearDuringListing(t *testing.T) {
	for many, fails := range map[int]bool{0: false, 1: false, listRounds - 2: false, listRounds - 1: true, 1000: true} {
		r := critest.Start(t)
		filler := map[string]string{"io.kubernetes.container.preStopHandler": strings.Repeat("x", 17<<20/2)}
		add := func(id string, state runtimev1.PodSandboxState, annotations map[string]string) {
			r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: id, State: state})
			r.Containers = append(r.Containers, &runtimev1.Container{Id: "c" + id, PodSandboxId: id, Annotations: annotations})
		}
		add("s", runtimev1.PodSandboxState_SANDBOX_READY, filler)
		add("t", runtimev1.PodSandboxState_SANDBOX_NOTREADY, filler)
		var order []string
		last := "s"
		r.Answer["ListContainers"] = func(m any) any {
			of := m.(*runtimev1.ListContainersResponse).Containers
			if len(of) == 1 {
				order = append(order, of[0].PodSandboxId)
			}
			if came := len(r.Sandboxes) - 2; came < many && len(of) == 1 && of[0].PodSandboxId == last {
				last = fmt.Sprint("new", came)
				add(last, runtimev1.PodSandboxState_SANDBOX_READY, nil)
			}
			return m
		}
		got, err := all(t, dial(t, r.Endpoint()))
		if (err != nil) != fails || !fails && len(got) != 2+many {
			t.Errorf("with %d new sandboxes per round: %d containers, error %v", many, len(got), err)
		}
		if order[0] != "t" || order[1] != "s" {
			t.Errorf("sandboxes visited in order %v, want ready ones last", order)
		}
	}
}
