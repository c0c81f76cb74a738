package cri

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is an image on the node.
type Image struct {
	ID string // as in Container.ImageID
	// Names of the image: "docker.io/library/busybox:1.36" and
	// "docker.io/library/busybox@sha256:...". Both empty: untagged.
	RepoTags, RepoDigests []string
	// bytes on the node as the runtime counts them (containerd: compressed); 0: unknown
	Size uint64
	// the image must not be removed, but the runtime does not enforce that (runtime/v1 api.proto)
	Pinned         bool
	Spec           string // reference of the pull; often empty
	RuntimeHandler string // runtime handler of the pull; empty: the default handler
}

// ListImages lists the images of the image service, each once per runtime handler that it was
// pulled for.
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	ctx, done := c.imageLink.exclusive(ctx, c.timeouts.list)
	defer done()
	// an ID may occur once per runtime handler (RuntimeClassInImageCriApi)
	type key struct{ id, handler string }
	seen := map[key]bool{}
	var m runtimev1.Image
	out, err := (&listCall[Image]{
		link: c.imageLink, hints: &c.image, all: true, limits: c.limits,
		streamName: runtimev1.ImageService_StreamImages_FullMethodName,
		streamed:   &runtimev1.StreamImagesResponse{},
		plainName:  runtimev1.ImageService_ListImages_FullMethodName,
		plain:      &runtimev1.ListImagesResponse{},
		request:    &runtimev1.StreamImagesRequest{}, plainRequest: &runtimev1.ListImagesRequest{},
		item: func(text []byte) (one Image, keep bool, err error) {
			if err = proto.Unmarshal(text, &m); err != nil || m.Id == "" ||
				seen[key{m.Id, m.GetSpec().GetRuntimeHandler()}] {
				return one, false, err
			}
			seen[key{m.Id, m.GetSpec().GetRuntimeHandler()}] = true
			return imageOf(&m), true, nil
		},
	}).list(ctx)
	if err != nil {
		return nil, c.imageLink.wrap("list images of", err)
	}
	return out, nil
}

func imageOf(i *runtimev1.Image) Image {
	out := Image{
		ID: i.GetId(), RepoTags: i.GetRepoTags(), RepoDigests: i.GetRepoDigests(), Pinned: i.GetPinned(),
		Spec: i.GetSpec().GetImage(), RuntimeHandler: i.GetSpec().GetRuntimeHandler(),
	}
	if size := i.GetSize(); size <= math.MaxInt64 {
		out.Size = size
	}
	return out
}

// FilesystemUsage is the usage of images, or containers, or one container on a file system, not the
// total usage of the file system.
type FilesystemUsage struct {
	// a directory on that file system, rarely its mount point itself (containerd: the snapshotter's)
	Mountpoint string
	UsedBytes  *uint64   // nil: not reported
	InodesUsed *uint64   // nil: not reported
	Time       time.Time // of the measurement; zero: unknown
}

// FsInfo holds the locations of images and containers. Containers is empty if both are in one
// place; containerd 2.4 always leaves it empty (its internal/cri/server/images/imagefs_info.go).
type FsInfo struct{ Images, Containers []FilesystemUsage }

// ImageFsInfo requests the locations of images and containers, the default snapshotter's first.
// containerd returns sums of sizes that it measures every 10 s, without the compressed content that
// it also keeps. To get the free space, call statfs on Mountpoint.
func (c *Client) ImageFsInfo(ctx context.Context) (FsInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.usage)
	defer cancel()
	res, err := c.images.ImageFsInfo(ctx, &runtimev1.ImageFsInfoRequest{})
	if err != nil {
		return FsInfo{}, c.imageLink.wrap("get image filesystems of", err)
	}
	return FsInfo{Images: usagesOf(res.GetImageFilesystems()),
		Containers: usagesOf(res.GetContainerFilesystems())}, nil
}

func usagesOf(list []*runtimev1.FilesystemUsage) (out []FilesystemUsage) {
	for _, u := range list {
		if u.GetFsId().GetMountpoint() != "" {
			out = append(out, usageOf(u))
		}
	}
	return out
}

func usageOf(u *runtimev1.FilesystemUsage) FilesystemUsage {
	return FilesystemUsage{
		Mountpoint: u.GetFsId().GetMountpoint(), UsedBytes: uint64Of(u.GetUsedBytes()),
		InodesUsed: uint64Of(u.GetInodesUsed()),
		Time:       timeAt(u.GetTimestamp()),
	}
}

// uint64Of returns the number, or nil if it is missing or was negative.
func uint64Of(v *runtimev1.UInt64Value) *uint64 {
	if v == nil || v.GetValue() > math.MaxInt64 {
		return nil
	}
	n := v.GetValue()
	return &n
}

// ContainerStats is the amount that one container has written to its writable layer.
type ContainerStats struct {
	ID            string
	WritableLayer *FilesystemUsage // nil: the runtime has not measured it
}

// ListContainerStats requests the writable layers of all running containers. It is slow: containerd
// also queries the shim of each container in turn for cgroup statistics, 1.5 ms each (cri-kernel
// facts), so one hung shim delays the answer. It returns ErrUnimplemented if the runtime lacks the
// call.
func (c *Client) ListContainerStats(ctx context.Context) ([]ContainerStats, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.usage)
	defer cancel()
	defer c.link.turn.wait(ctx, patienceForTurn)()
	res, err := c.runtime.ListContainerStats(ctx, &runtimev1.ListContainerStatsRequest{})
	if err != nil {
		return nil, c.link.wrapOptional("list container stats of", err)
	}
	out := make([]ContainerStats, 0, len(res.GetStats()))
	seen := make(map[string]bool, len(res.GetStats()))
	for _, s := range res.GetStats() {
		if id := s.GetAttributes().GetId(); id != "" && !seen[id] {
			seen[id] = true
			out = append(out, containerStatsOf(s))
		}
	}
	return out, nil
}

// ContainerStats requests the writable layer of one container that has not exited. CRI-O walks the
// files of its layer and of its whole root for the answer, also after ctx has ended.
func (c *Client) ContainerStats(ctx context.Context, id string) (ContainerStats, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.usage)
	defer cancel()
	defer c.link.turn.wait(ctx, patienceForTurn)()
	verb := "get stats of container " + id + " of"
	res, err := c.runtime.ContainerStats(ctx, &runtimev1.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return ContainerStats{}, c.link.wrapOptional(verb, err)
	}
	if res.GetStats() == nil { // CRI-O: it has exited
		return ContainerStats{}, fmt.Errorf("%s runtime %s: answer has no stats", verb,
			c.link.endpoint)
	}
	out := containerStatsOf(res.GetStats())
	out.ID = id
	return out, nil
}

func containerStatsOf(s *runtimev1.ContainerStats) ContainerStats {
	out := ContainerStats{ID: s.GetAttributes().GetId()}
	layer := s.GetWritableLayer()
	// containerd writes zeros, the time too, for a layer it has not measured yet
	// (internal/cri/server/container_stats_list.go).
	if layer == nil || layer.GetTimestamp() <= 0 && layer.GetUsedBytes().GetValue() == 0 &&
		layer.GetInodesUsed().GetValue() == 0 {
		return out
	}
	usage := usageOf(layer)
	out.WritableLayer = &usage
	return out
}
