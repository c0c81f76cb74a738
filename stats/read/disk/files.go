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

// etcHosts measures the file that the kubelet creates for each pod and mounts as /etc/hosts.
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
	out.etcHosts = stats.FsUsage{Time: time.Now(), UsedBytes: u.Bytes, InodesUsed: u.Inodes}
	return nil
}

// terminationMessages measures the files behind /dev/termination-log: the kubelet creates one for
// each container, below the pod's directory at containers/NAME, and mounts it writable
// (pkg/kubelet/kuberuntime/kuberuntime_container.go makeMounts). The kubelet reads at most 4 KiB of
// it, but the size of the file is not limited.
func (s *storageWalker) terminationMessages(ctx context.Context, pod string, out *storage) error {
	u, err := zeroIfMissing(s.tree(ctx, path.Join(pod, "containers")))
	if u.Time.IsZero() {
		u = stats.FsUsage{Time: out.time, Partial: true}
	}
	out.messages = u
	return err
}

// containerd keeps files for each sandbox and container below its root directory. The sandbox's
// hostname and resolv.conf, and the volumes that an image declares, are mounted into the
// containers, writable and without a size limit (internal/cri/server/podsandbox/helpers.go
// getSandboxRootDir, internal/cri/server/container_create.go volumeMounts). CRI-O keeps the two
// files on tmpfs (RunDir in its server/sandbox_run_linux.go), where they count as shared memory.
const (
	containerdRoot  = "/var/lib/containerd"
	containerdCRI   = "io.containerd.grpc.v1.cri"
	containerdStore = "io.containerd.snapshotter.v1." // prefix of a store's directory below the root
)

// runtimeFiles measures the files that containerd keeps for a pod, if containerd is the runtime. If
// a part is unreadable, the result is a lower bound.
func (s *storageWalker) runtimeFiles(ctx context.Context, pod *podindex.Pod, out *storage) error {
	root := containerdRoot
	if s.store != nil {
		if store := s.store(); strings.HasPrefix(path.Base(store), containerdStore) {
			root = path.Dir(store)
		}
	}
	root = path.Join(root, containerdCRI)
	var errs []error
	measure := func(kind, id string) {
		// another runtime's ID may not be a file name
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
		out.runtimeFiles.Merge(u)
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
