package cri

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"jettison/cri/critest"
)

// recordedLayer is the root of a container of CRI-O.
var recordedLayer = regexp.MustCompile(`^/var/lib/containers/storage/overlay/[0-9a-f]{64}/merged$`)

// The answers of a real CRI-O contain what the agent needs of each pod and container.
func TestRecordedCRIO(t *testing.T) {
	for name, driver := range map[string]string{critest.CRIOSystemd: "systemd", critest.CRIOCgroupfs: "cgroupfs"} {
		t.Run(driver, func(t *testing.T) {
			c, files := dial(t, critest.StartRecorded(t, name).Endpoint()), critest.Recorded(t, name)
			l, err := NewLister(c).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			names, got := map[string]string{}, []string{}
			for _, s := range l.Sandboxes {
				names[s.ID] = s.Name
				got = append(got, fmt.Sprintf("%s ready %v, process %v, handler %q, from %q, overhead %v", s.Name, s.Ready, s.PID > 0, s.RuntimeHandler,
					s.Annotations["kubernetes.io/config.source"], s.Overhead))
				group := "./" + strings.TrimPrefix(s.CgroupParent, "/") + "\n"
				if driver == "systemd" {
					group = "/" + s.CgroupParent + "\n"
				}
				if s.Name != "stopped" && !strings.Contains(files["cgroups"], group) {
					t.Errorf("cgroup parent of sandbox %s = %q, want one of the node's", s.Name, s.CgroupParent)
				}
				if s.CreatedAt.Year() != l.Sandboxes[0].CreatedAt.Year() || s.CreatedAt.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
					t.Errorf("creation time of sandbox %s = %v", s.Name, s.CreatedAt)
				}
			}
			images, err := c.ListImages(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range l.Containers {
				text := fmt.Sprintf("%s/%s %v, process %v", names[one.SandboxID], one.Name, one.State, one.PID > 0)
				if one.SandboxID != "" && names[one.SandboxID] != "stopped" {
					text += fmt.Sprintf(", score %d, limit %d, shares %d", *one.OOMScoreAdj, valueOf(one.MemoryLimit), valueOf(one.CPUShares))
					if !recordedLayer.MatchString(one.Root) || !one.Detailed || one.StartedAt.Before(one.CreatedAt) {
						t.Errorf("container %s: root %q, created %v, started %v", text, one.Root, one.CreatedAt, one.StartedAt)
					}
					if want := path.Join("/var/log/pods", "default_"+names[one.SandboxID]+"_"+one.PodUID, one.Name, "0.log"); one.LogPath != want {
						t.Errorf("log of container %s = %q, want %q", text, one.LogPath, want)
					}
				}
				if one.Ended != nil {
					text += fmt.Sprintf(", code %d, %s, after its start %v", one.Ended.Code, one.Ended.Reason, one.Ended.At.After(one.StartedAt))
				}
				if !slices.ContainsFunc(images, func(i Image) bool { return i.ID == one.ImageID && slices.Contains(i.RepoDigests, one.ImageRef) }) {
					t.Errorf("image of container %s = %s, %s, want a listed one", text, one.ImageID, one.ImageRef)
				}
				got = append(got, text)
			}
			slices.Sort(got)
			want := []string{
				`besteffort ready true, process false, handler "", from "api", overhead <nil>`,
				"besteffort/ends exited, process false, score 1000, limit 0, shares 2, code 137, Error, after its start true",
				"besteffort/main running, process true, score 1000, limit 0, shares 2",
				`burstable ready true, process false, handler "", from "api", overhead <nil>`,
				"burstable/main running, process true, score 934, limit 100663296, shares 2",
				`guaranteed ready true, process false, handler "", from "api", overhead <nil>`,
				"guaranteed/main running, process true, score -997, limit 50331648, shares 204",
				`pause ready true, process true, handler "", from "", overhead <nil>`,
				`stopped ready false, process false, handler "", from "api", overhead <nil>`,
				"stopped/main exited, process false",
			}
			if d := gocmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func valueOf(v *uint64) uint64 {
	if v == nil {
		return 0
	}
	return *v
}

// The other answers of a real CRI-O: driver, file systems, images, writable layers.
func TestRecordedCRIOsNode(t *testing.T) {
	for name, want := range map[string]string{critest.CRIOSystemd: "systemd", critest.CRIOCgroupfs: "cgroupfs"} {
		c, ctx := dial(t, critest.StartRecorded(t, name).Endpoint()), t.Context()
		driver, err := c.CgroupDriver(ctx)
		if driver != want || err != nil {
			t.Errorf("cgroup driver = %q, error %v, want %q", driver, err, want)
		}
		pause, err := c.SandboxImages(ctx)
		if !slices.Equal(pause, []string{"localhost/pause:1"}) || err != nil {
			t.Errorf("%s: images of sandboxes = %q, error %v", want, pause, err)
		}
		images, err := c.ListImages(ctx)
		for _, i := range images {
			if i.Pinned != slices.Contains(i.RepoTags, pause[0]) || i.Size == 0 || len(i.ID) != 64 {
				t.Errorf("%s: listed image = %+v, want an ID of 64 digits, a size, and only the pause image pinned", want, i)
			}
			if same, err := c.ImageStatus(ctx, i.RepoDigests[0]); err != nil || same.ID != i.ID {
				t.Errorf("%s: status of image %s = %+v, error %v", want, i.RepoDigests[0], same, err)
			}
		}
		if err != nil || len(images) != 3 {
			t.Errorf("%s: %d images, error %v, want 3", want, len(images), err)
		}
		fs, err := c.ImageFsInfo(ctx)
		if err != nil || len(fs.Images) != 1 || len(fs.Containers) != 1 || fs.Images[0].Mountpoint != fs.Containers[0].Mountpoint {
			t.Errorf("%s: file systems = %+v, error %v, want one store for images and containers", want, fs, err)
		}
		l, err := NewLister(c).List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.ListContainerStats(ctx)
		for _, s := range all {
			i := slices.IndexFunc(l.Containers, func(o Container) bool { return o.ID == s.ID && o.Running })
			if i < 0 || s.WritableLayer == nil || s.WritableLayer.Mountpoint != l.Containers[i].Root || *s.WritableLayer.UsedBytes == 0 {
				t.Errorf("%s: stats %+v, want those of a running container and of its root", want, s)
			}
		}
		if err != nil || len(all) != 3 {
			t.Errorf("%s: stats of %d containers, error %v, want 3", want, len(all), err)
		}
		none := strings.Repeat("0", 64)
		_, ofContainer := c.ContainerStatus(ctx, none)
		_, _, ofSandbox := c.SandboxStatus(ctx, none)
		for _, err := range []error{ofContainer, ofSandbox} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: status of a missing object = %v, want ErrNotFound", want, err)
			}
		}
		_, image, err := c.SandboxStatus(ctx, l.Sandboxes[slices.IndexFunc(l.Sandboxes, func(s PodSandbox) bool { return s.Name == "pause" })].ID)
		if image != cmp.Or(pause...) || err != nil {
			t.Errorf("%s: image of a sandbox with a process = %q, error %v", want, image, err)
		}
	}
}
