package read

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
)

// A pod's disk usage is found through the kubelet's directories and the host's mounts.
func TestStorageOfAPod(t *testing.T) {
	root, index := hosttest.WithAPod(t)
	b := backgroundOn(t, root, index, hosttest.OneStore(root))
	b.WaitFirst(t.Context())
	s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "uid-1"}, Containers: []stats.ContainerStats{{ID: "c-app", Name: "app"}, {ID: "c-side", Name: "side"}}}, {PodRef: stats.PodReference{UID: "other"}}}}
	b.Fill(time.Now(), &s)
	p := s.Pods[0]
	size := func(path ...string) uint64 {
		bytes, _ := hosttest.Naive(t, filepath.Join(append([]string{root}, path...)...))
		return bytes
	}
	data, settings := size("var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/data"), size("var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~configmap/settings")
	logs, layer, hosts := size("var/log/pods/default_web_uid-1"), size("store/snapshots/7/fs x"), size("var/lib/kubelet/pods/uid-1/etc-hosts")
	e := p.EphemeralStorage
	if want := data + settings + logs + layer + hosts; e.UsedBytes != stats.Some(want) || e.InodesUsed.V != 2+3+5+2+1 {
		t.Errorf("used %+v, %+v inodes; want %d (volume %d, settings %d, logs %d, layer %d, hosts %d)", e.UsedBytes, e.InodesUsed, want, data, settings, logs, layer, hosts)
	}
	if len(e.Volumes) != 2 || e.Volumes[0].Name != "data" || e.Volumes[0].UsedBytes != data || e.Volumes[0].Memory || e.Volumes[0].Quota {
		t.Errorf("volumes of the pod = %+v", e.Volumes)
	}
	if c := p.Containers[0]; c.Rootfs.V.UsedBytes != layer || c.Logs.V.UsedBytes != size("var/log/pods/default_web_uid-1/app") {
		t.Errorf("usage of container app: layer %+v, logs %+v", c.Rootfs, c.Logs)
	}
	if c := p.Containers[1]; c.Rootfs.OK || !c.Logs.OK {
		t.Errorf("usage of container side without a known process: layer %+v, logs %+v", c.Rootfs, c.Logs)
	}
	if o := s.Pods[1].EphemeralStorage; o.UsedBytes.OK {
		t.Errorf("usage of an unknown pod without directories = %+v, want it absent", o)
	}
	if fs := s.Node.ImageFs; !fs.OK || fs.V.UsedBytes != stats.Some[uint64](4096) || fs.V.InodesUsed != stats.Some[uint64](7) || s.Node.ContainerFs != fs {
		t.Errorf("image file system %+v, containers' %+v", fs, s.Node.ContainerFs)
	}
	if l := s.Node.Layout; !l.OK || l.V != (stats.Layout{}) {
		t.Errorf("layout with one file system = %+v", l)
	}
	if err := s.Err(); err != nil && !strings.Contains(err.Error(), "network namespace") { // this proc has no process 1
		t.Error(err)
	}
}

// A sum with a missing part is absent; the measured parts are present.
func TestAPartThatIsMissingMakesTheSumAbsent(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(root string, index podindex.Index) podindex.Index
		err   string
		parts bool
	}{
		{"no root among the host's mounts", func(root string, index podindex.Index) podindex.Index {
			hosttest.Mounts(t, root, "")
			return index
		}, "container c-app: the host has no overlay", true},
		{"no process known", func(root string, index podindex.Index) podindex.Index {
			hosttest.Mounts(t, root, "")
			index["uid-1"].Containers[0].PID = 0
			return index
		}, "container c-app: neither its process nor its root is known yet", true},
		{"the host's mounts cannot be read", func(root string, index podindex.Index) podindex.Index {
			if err := os.Remove(filepath.Join(root, "proc/1/mountinfo")); err != nil {
				t.Fatal(err)
			}
			return index
		}, "read the host's mounts", true},
		{"the runtime has not reported the pod", func(string, podindex.Index) podindex.Index { return nil }, "has not reported its containers", true},
		{"a relative upper directory", func(root string, index podindex.Index) podindex.Index {
			hosttest.Mounts(t, root, strings.ReplaceAll(hosttest.Overlay, "upperdir=/", "upperdir="))
			return index
		}, "the host has no overlay", true},
		{"an upper directory that is not there", func(root string, index podindex.Index) podindex.Index {
			hosttest.Mounts(t, root, strings.ReplaceAll(hosttest.Overlay, "snapshots/7", "snapshots/8"))
			return index
		}, "no such file", true},
		{"logs that cannot be listed", func(root string, index podindex.Index) podindex.Index {
			dir := filepath.Join(root, "var/log/pods")
			if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			return index
		}, "not a directory", false},
	} {
		root, index := hosttest.WithAPod(t)
		b := backgroundOn(t, root, c.spoil(root, index), hosttest.OneStore(root))
		b.WaitFirst(t.Context())
		s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "uid-1"}}}}
		b.Fill(time.Now(), &s)
		if e := s.Pods[0].EphemeralStorage; e.UsedBytes.OK || e.Logs.OK != c.parts || c.parts != (len(e.Volumes) == 2) {
			t.Errorf("usage with %s = %+v, want no sum, parts present: %v", c.name, e, c.parts)
		}
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("source status with %s: error %v", c.name, err)
		}
	}
}

// For a root that is not an overlay the runtime's figure is used.
func TestARootThatIsNoOverlay(t *testing.T) {
	root, index := hosttest.WithAPod(t)
	hosttest.Mounts(t, root, "1 0 253:3 / /run/k8s.io/c-app/rootfs rw - ext4 /dev/dm-3 rw\n")
	bytes, inodes := uint64(12345), uint64(6)
	r := hosttest.OneStore(root)
	r.Stats = func(context.Context) ([]cri.ContainerStats, error) {
		return []cri.ContainerStats{{ID: "c-app", WritableLayer: &cri.FilesystemUsage{UsedBytes: &bytes, InodesUsed: &inodes, Time: time.Now()}}}, nil
	}
	b := backgroundOn(t, root, index, r)
	b.WaitFirst(t.Context())
	s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "uid-1"}, Containers: []stats.ContainerStats{{ID: "c-app"}}}}}
	b.Fill(time.Now(), &s)
	if c := s.Pods[0].Containers[0]; c.Rootfs.V.UsedBytes != bytes || c.Rootfs.V.InodesUsed != inodes {
		t.Errorf("layer of a container without an overlay = %+v", c.Rootfs)
	}
}

func backgroundOn(t *testing.T, root string, index podindex.Index, r FsRuntime) *Background {
	t.Helper()
	host, err := hostroot.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	b := StartBackground(BackgroundOptions{Host: host, Runtime: r, Proc: filepath.Join(root, "proc"), Pods: index, OneRound: true})
	t.Cleanup(b.Close)
	return b
}
