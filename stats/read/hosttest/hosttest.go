// Package hosttest creates, for tests, the directories of a host with one pod, and a runtime
// that knows the pod.
package hosttest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats/read/podindex"
)

// Write creates a file of the given size, and its directories.
func Write(t testing.TB, size int, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Runtime answers Background's queries.
type Runtime struct {
	FsInfo func(context.Context) (cri.FsInfo, error)
	Stats  func(context.Context) ([]cri.ContainerStats, error)
	One    func(ctx context.Context, id string) (cri.ContainerStats, error)
}

// ImageFsInfo calls FsInfo.
func (f Runtime) ImageFsInfo(ctx context.Context) (cri.FsInfo, error) { return f.FsInfo(ctx) }

// ListContainerStats calls Stats.
func (f Runtime) ListContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	return f.Stats(ctx)
}

// ContainerStats calls One.
func (f Runtime) ContainerStats(ctx context.Context, id string) (cri.ContainerStats, error) {
	return f.One(ctx, id)
}

// Overlay is a line of a mountinfo: the root of container c-app.
const Overlay = "600 500 0:50 / " +
	"/run/containerd/io.containerd.runtime.v2.task/k8s.io/c-app/rootfs rw,relatime - overlay " +
	"overlay rw,lowerdir=/a:/b,upperdir=/store/snapshots/7/fs\\040x,workdir=/store/snapshots/7/work\n"

// Mounts sets the host's mount table.
func Mounts(t testing.TB, root, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "proc/1/mountinfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// WithAPod creates a host with one pod: logs of two containers, volumes, the kubelet's etc-hosts,
// and a writable layer.
func WithAPod(t testing.TB) (root string, index podindex.Index) {
	root = t.TempDir()
	pod := filepath.Join(root, "var/lib/kubelet/pods/uid-1")
	Write(t, 100000, pod, "volumes/kubernetes.io~empty-dir/data/file")
	Write(t, 10000, pod, "volumes/kubernetes.io~configmap/settings/..data/key")
	Write(t, 50000, pod, "volumes/kubernetes.io~secret/token/key") // written by the kubelet
	Write(t, 300, pod, "etc-hosts")
	Write(t, 70000, root, "var/log/pods/default_web_uid-1/app/0.log")
	Write(t, 7000, root, "var/log/pods/default_web_uid-1/side/0.log")
	Write(t, 7000, root, "var/log/pods/foreign/0.log")
	Write(t, 200000, root, "store/snapshots/7/fs x/written")
	Write(t, 0, root, "proc/1/mountinfo")
	Mounts(t, root, "500 400 8:1 / / rw - ext4 /dev/vda rw\n"+Overlay)
	return root, podindex.New(cri.Listing{
		Sandboxes: []cri.PodSandbox{{ID: "s", UID: "uid-1", Name: "web", Namespace: "default",
			Ready: true}},
		Containers: []cri.Container{{ID: "c-app", SandboxID: "s", Name: "app", State: cri.Running,
			Running: true, PID: 41}},
	})
}

// OneStore returns a runtime with one store. Only its FsInfo may be called.
func OneStore(root string) Runtime {
	return Runtime{
		FsInfo: func(context.Context) (cri.FsInfo, error) {
			used, inodes := uint64(4096), uint64(7)
			return cri.FsInfo{Images: []cri.FilesystemUsage{{Mountpoint: "/store", UsedBytes: &used,
				InodesUsed: &inodes}}}, nil
		},
		Stats: func(context.Context) ([]cri.ContainerStats, error) {
			return nil,
				errors.New("unexpected call of ListContainerStats")
		},
		One: func(context.Context, string) (cri.ContainerStats, error) {
			return cri.ContainerStats{}, errors.New("unexpected call of ContainerStats")
		},
	}
}

// NoPause is a pace function for a walk without pauses.
func NoPause(ctx context.Context) error { return ctx.Err() }

// Naive measures a tree with the standard library's walk.
func Naive(t testing.TB, dir string) (bytes, inodes uint64) {
	t.Helper()
	seen := map[uint64]bool{}
	if err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if !seen[st.Ino] {
			seen[st.Ino] = true
			bytes, inodes = bytes+uint64(st.Blocks)*512, inodes+1
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return bytes, inodes
}

// Chain creates nested directories, deeper than the maximum length of a path.
func Chain(t testing.TB, top string, depth int) {
	t.Helper()
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range depth {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
}

// OnANode skips the test unless it runs as root on a test node.
func OnANode(t testing.TB) {
	t.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("needs the test node: run make e2e RUN=Live")
	}
}

// Descriptors counts this process's open files.
func Descriptors(t testing.TB) int {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return len(names)
}

// Survives runs a test again in a cgroup with the agent's memory limit, which includes kernel
// memory. It returns the result line and the peak memory use.
func Survives(t *testing.T, within func(testing.TB, int, string) (string, int, error),
	argument string) (out string, peak int) {
	t.Helper()
	const limit = 64 << 20 // the container's in deploy/base/daemonset.yaml
	out, peak, err := within(t, limit, argument)
	if err != nil || !strings.Contains(out, "said: ") {
		t.Errorf("test in a 64 MiB cgroup: error %v, peak %.1f MiB, output:\n%.2000s", err, float64(peak)/(1<<20), out)
	}
	_, out, _ = strings.Cut(out, "said: ")
	out, _, _ = strings.Cut(out, "\n")
	t.Logf("peak %.1f MiB: %s", float64(peak)/(1<<20), out)
	return out, peak
}
