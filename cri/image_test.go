package cri

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

func TestListImages(t *testing.T) {
	r := critest.Start(t)
	r.Images = []*runtimev1.Image{
		{Id: "sha256:1", RepoTags: []string{"a:1"}, RepoDigests: []string{"a@sha256:x"}, Size: 42, Pinned: true, Spec: &runtimev1.ImageSpec{Image: "a:1"}},
		{},
		{Id: "sha256:1", Size: 43},
		{Id: "../\x00", Size: math.MaxUint64},
	}
	got, err := dial(t, r.Endpoint()).ListImages(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("images = %+v, error %v, want the first of each ID", got, err)
	}
	if i := got[0]; i.Size != 42 || !i.Pinned || i.Spec != "a:1" || !slices.Equal(i.RepoTags, []string{"a:1"}) || !slices.Equal(i.RepoDigests, []string{"a@sha256:x"}) {
		t.Errorf("image = %+v, not as listed by the runtime", i)
	}
	if i := got[1]; i.ID != "../\x00" || i.Size != 0 {
		t.Errorf("image = %+v, want its ID unchanged and no size", i)
	}
}

func TestImageFsInfo(t *testing.T) {
	r := critest.Start(t)
	r.ImageFs = []*runtimev1.FilesystemUsage{
		{FsId: &runtimev1.FilesystemIdentifier{Mountpoint: "/images"}, Timestamp: 5, UsedBytes: &runtimev1.UInt64Value{Value: 7}, InodesUsed: &runtimev1.UInt64Value{}},
		{},
	}
	r.ContainerFs = []*runtimev1.FilesystemUsage{{FsId: &runtimev1.FilesystemIdentifier{Mountpoint: "/containers"}, UsedBytes: &runtimev1.UInt64Value{Value: math.MaxUint64}}}
	got, err := dial(t, r.Endpoint()).ImageFsInfo(t.Context())
	if err != nil || len(got.Images) != 1 || len(got.Containers) != 1 {
		t.Fatalf("answer = %+v, error %v, not as expected", got, err)
	}
	if i := got.Images[0]; i.Mountpoint != "/images" || *i.UsedBytes != 7 || *i.InodesUsed != 0 || !i.Time.Equal(time.Unix(0, 5)) {
		t.Errorf("usage of images = %+v, not as expected", i)
	}
	if c := got.Containers[0]; c.UsedBytes != nil || c.InodesUsed != nil || !c.Time.IsZero() {
		t.Errorf("usage of containers = %+v, not as expected", c)
	}
}

func TestListContainerStats(t *testing.T) {
	r := critest.Start(t)
	attributes := func(id string) *runtimev1.ContainerAttributes { return &runtimev1.ContainerAttributes{Id: id} }
	r.Stats = []*runtimev1.ContainerStats{
		{Attributes: attributes("c1"), WritableLayer: &runtimev1.FilesystemUsage{Timestamp: 1, UsedBytes: &runtimev1.UInt64Value{Value: 9}}},
		{Attributes: attributes("c2"), WritableLayer: &runtimev1.FilesystemUsage{UsedBytes: &runtimev1.UInt64Value{}, InodesUsed: &runtimev1.UInt64Value{}}},
		{Attributes: attributes("c3")},
		{Attributes: attributes("c1")},
		{},
	}
	c := dial(t, r.Endpoint())
	got, err := c.ListContainerStats(t.Context())
	if err != nil || len(got) != 3 || got[0].ID != "c1" || *got[0].WritableLayer.UsedBytes != 9 || got[0].WritableLayer.InodesUsed != nil {
		t.Fatalf("answer = %+v, error %v, not as expected", got, err)
	}
	if got[1].WritableLayer != nil || got[2].WritableLayer != nil {
		t.Errorf("layers without a measurement = %+v, want none", got[1:])
	}
	one, err := c.ContainerStats(t.Context(), "c1")
	if err != nil || one.ID != "c1" || *one.WritableLayer.UsedBytes != 9 {
		t.Errorf("stats of c1 = %+v, error %v, want a layer of 9 bytes", one, err)
	}
	if one, err := c.ContainerStats(t.Context(), "exited"); err == nil {
		t.Errorf("stats of an exited container = %+v, want an error", one)
	}
	r.Change(func() { r.Fail["ListContainerStats"] = status.Error(codes.Unimplemented, "no") })
	if _, err := c.ListContainerStats(t.Context()); !errors.Is(err, ErrUnimplemented) || errors.Is(err, ErrNotCRI) {
		t.Errorf("error of a runtime without the call = %v, want ErrUnimplemented", err)
	}
}

// The image service may have a separate endpoint.
func TestImagesOfAnotherEndpoint(t *testing.T) {
	runtime, images := many(t, 1), many(t, 2)
	for image, want := range map[string]int{"": 1, runtime.Endpoint(): 1, images.Endpoint(): 2} {
		c, err := Dial(runtime.Endpoint(), image)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.ListImages(t.Context()); err != nil || len(got) != want {
			t.Errorf("%q: %d images, want %d, %v", image, len(got), want, err)
		}
		if got, err := NewLister(c).List(t.Context()); err != nil || len(got.Containers) != 1 {
			t.Errorf("image endpoint %q: containers = %+v, %v, want those of the runtime", image, got, err)
		}
		if same := c.imageLink.endpoint == c.Endpoint(); same != (want == 1) {
			t.Errorf("image endpoint %q: client uses endpoints %s and %s", image, c.Endpoint(), c.imageLink.endpoint)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if c, err := Dial(runtime.Endpoint(), "tcp://1.2.3.4"); err == nil {
		c.Close()
		t.Error("Dial() accepted an invalid image endpoint")
	}
}

func TestStatus(t *testing.T) {
	r := critest.Start(t)
	r.Conditions[1] = &runtimev1.RuntimeCondition{Type: runtimev1.NetworkReady, Reason: "NetworkPluginNotReady", Message: "cni"}
	r.Conditions = append(r.Conditions, &runtimev1.RuntimeCondition{})
	got, err := dial(t, r.Endpoint()).Status(t.Context())
	if want := []Condition{{"RuntimeReady", true, "", ""}, {"NetworkReady", false, "NetworkPluginNotReady", "cni"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
}

func TestCgroupDriver(t *testing.T) {
	r := critest.Start(t)
	c := dial(t, r.Endpoint())
	for driver, want := range map[runtimev1.CgroupDriver]string{0: "systemd", 1: "cgroupfs", 7: ""} {
		r.Change(func() { r.CgroupDriver = driver })
		if got, err := c.CgroupDriver(t.Context()); got != want || (err == nil) != (want != "") {
			t.Errorf("cgroup driver for %v = %q, error %v", driver, got, err)
		}
	}
	r.Change(func() {
		r.Answer["RuntimeConfig"] = func(any) any { return &runtimev1.RuntimeConfigResponse{} }
	})
	if _, err := c.CgroupDriver(t.Context()); !errors.Is(err, ErrUnimplemented) {
		t.Errorf("error without a Linux part = %v, want ErrUnimplemented", err)
	}
	r.Change(func() { r.Fail["RuntimeConfig"] = status.Error(codes.Unimplemented, "no") })
	if _, err := c.CgroupDriver(t.Context()); !errors.Is(err, ErrUnimplemented) || errors.Is(err, ErrNotCRI) {
		t.Errorf("error of containerd 1.7 = %v, want ErrUnimplemented", err)
	}
}
