package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/walk"
)

// etcHosts is the file that the kubelet makes for each pod and mounts as /etc/hosts.
func (s *storageWalker) etcHosts(pod string, out *storage) error {
	fd, err := s.host.Open(path.Join(pod, "etc-hosts"), unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat the host's %s/etc-hosts: %w", pod, err)
	}
	u := walk.Allocated(&st)
	out.hosts = stats.FsUsage{Time: time.Now(), UsedBytes: u.Bytes, InodesUsed: u.Inodes}
	return nil
}

// terminations measures what containers write to /dev/termination-log: the kubelet makes a file for
// each, below the pod's directory at containers/NAME, and mounts it writable
// (pkg/kubelet/kuberuntime/kuberuntime_container.go makeMounts). It reads no more than 4 KiB of it,
// but nothing bounds what is written.
func (s *storageWalker) terminations(ctx context.Context, pod string, out *storage) error {
	u, err := mayMiss(s.tree(ctx, path.Join(pod, "containers")))
	if u.Time.IsZero() {
		u = stats.FsUsage{Time: out.time, Partial: true}
	}
	out.messages = u
	return err
}

// containerd keeps files for each sandbox and container below its root directory. Mounted into the
// containers, writable, and bounded by nothing, are the sandbox's hostname and resolv.conf, and the
// volumes that an image declares (internal/cri/server/podsandbox/helpers.go getSandboxRootDir,
// internal/cri/server/container_create.go volumeMounts). CRI-O keeps the two files on tmpfs (RunDir
// in its server/sandbox_run_linux.go), where they count as shared memory.
const (
	containerdRoot  = "/var/lib/containerd"
	containerdCRI   = "io.containerd.grpc.v1.cri"
	containerdStore = "io.containerd.snapshotter.v1." // a store's directory below the root begins so
)

// ofRuntime measures what containerd keeps for a pod, where that is the runtime. What cannot be
// read of it is a lower bound.
func (s *storageWalker) ofRuntime(ctx context.Context, pod *podindex.Pod, out *storage) error {
	root := containerdRoot
	if s.store != nil {
		if store := s.store(); strings.HasPrefix(path.Base(store), containerdStore) {
			root = path.Dir(store)
		}
	}
	root = path.Join(root, containerdCRI)
	var errs []error
	measure := func(kind, id string) {
		// of a runtime that names them so
		if id == "" || strings.ContainsRune(id, '/') || id == "." || id == ".." {
			return
		}
		u, err := s.tree(ctx, path.Join(root, kind, id))
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if errs = append(errs, err); u.Time.IsZero() {
			u = stats.FsUsage{Time: out.time, Partial: true}
		}
		out.runtimes.Merge(u)
	}
	for i := range pod.Sandboxes {
		measure("sandboxes", pod.Sandboxes[i].ID)
	}
	for _, containers := range [][]cri.Container{pod.Containers, pod.Exited} {
		for i := range containers {
			measure("containers", containers[i].ID)
		}
	}
	return errors.Join(errs...)
}
