package cri

import (
	"context"
	"errors"
	"slices"
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
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Containers(t.Context(), ""); err != nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if i, err := c.ImageStatus(t.Context(), "a:1"); err != nil || i.ID != "sha256:1" {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := c.ImageStatus(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	for range 2 { // the second time it is gone
		if err := errors.Join(c.RemoveContainer(t.Context(), "c"), c.RemoveImage(t.Context(), "sha256:1", "")); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"container c", "image sha256:1", "container c"}; !slices.Equal(r.Removed, want) {
		t.Errorf("%v, want %v", r.Removed, want)
	}
	r.Fail["RemoveContainer"] = status.Error(codes.NotFound, "gone")
	if err := c.RemoveContainer(t.Context(), "c"); err != nil {
		t.Errorf("gone: %v", err)
	}
	r.Change(func() { clear(r.Fail); r.Hang["RemoveImage"], r.Hang["RemoveContainer"] = true, true })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, err := range []error{c.RemoveContainer(ctx, "c"), c.RemoveImage(ctx, "x", "")} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hangs: %v", err)
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
			t.Errorf("%q: %+v, %q, %v", info, s, image, err)
		}
	}
	if _, _, err := c.SandboxStatus(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	r.Change(func() {
		r.Answer["PodSandboxStatus"] = func(any) any { return &runtimev1.PodSandboxStatusResponse{} }
	})
	if _, _, err := c.SandboxStatus(t.Context(), "s"); err == nil {
		t.Error("an answer without a status is none")
	}
	for config, want := range map[string][]string{
		`{"sandboxImage": "a"}`: {"a"}, `{"pinnedImages": {"sandbox": "b"}}`: {"b"}, `{"sandboxImage": "a", "pinnedImages": []}`: {"a"}, "": nil, "[]": nil,
	} {
		r.Change(func() { r.Config = config })
		if got, err := c.SandboxImages(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", config, got, err)
		}
	}
	if got, err := c.Sandboxes(t.Context()); err != nil || len(got) != 1 || got[0].UID != "u" {
		t.Errorf("%+v, %v", got, err)
	}
}

// An image comes once for each runtime handler that it was pulled for (weakness 18: the handler is not lost).
func TestImagesByRuntimeHandler(t *testing.T) {
	r := critest.Start(t)
	for _, handler := range []string{"", "vm", "vm"} {
		r.Images = append(r.Images, &runtimev1.Image{Id: "sha256:1", Spec: &runtimev1.ImageSpec{RuntimeHandler: handler}})
	}
	got, err := dial(t, r.Endpoint()).ListImages(t.Context())
	if err != nil || len(got) != 2 || got[0].RuntimeHandler != "" || got[1].RuntimeHandler != "vm" {
		t.Errorf("%+v, %v", got, err)
	}
}
