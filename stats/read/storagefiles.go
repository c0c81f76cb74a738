package read

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
)

// etcHosts is the file that the kubelet makes for each pod and mounts as /etc/hosts.
func (s *storageWalker) etcHosts(pod string, out *storage) error {
	fd, err := s.host.open(path.Join(pod, "etc-hosts"), unix.O_PATH|unix.O_NOFOLLOW)
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
	u := allocated(&st)
	out.hosts = stats.FsUsage{Time: time.Now(), UsedBytes: u.bytes, InodesUsed: u.inodes}
	return nil
}

// terminations measures what containers write to /dev/termination-log: the kubelet makes a file for each, below the pod's directory at
// containers/NAME, and mounts it writable (pkg/kubelet/kuberuntime/kuberuntime_container.go makeMounts). It reads no more than 4 KiB of
// it, but nothing bounds what is written.
func (s *storageWalker) terminations(ctx context.Context, pod string, out *storage) error {
	u, err := mayMiss(s.tree(ctx, path.Join(pod, "containers")))
	if u.Time.IsZero() {
		u = stats.FsUsage{Time: out.time, Partial: true}
	}
	out.messages = u
	return err
}

// exitedLayer is what a container that has exited left in its writable layer. Its root is not mounted any more, so the runtime's word is
// taken. Not every runtime has one: then what it holds is at least nothing, or what was found while the container lived (keep).
func (s *storageWalker) exitedLayer(ctx context.Context, c *cri.Container, since time.Time) stats.FsUsage {
	if dir, ok := s.upper(c.ID, since); ok {
		if u, _ := s.tree(ctx, dir); !u.Time.IsZero() {
			return u
		}
	}
	u, err := s.byRuntime(ctx, c)
	if err != nil {
		return stats.FsUsage{Time: time.Now(), Partial: true}
	}
	return u
}

// beside is what counts for the disks, but for no limit of the pod's own.
func (s *storage) beside() (exited, files stats.Opt[stats.FsUsage]) {
	for _, u := range s.exited {
		exited.V.Merge(u)
	}
	files.V.Merge(s.hosts)
	files.V.Merge(s.messages)
	exited.OK, files.OK = !exited.V.Time.IsZero(), !files.V.Time.IsZero()
	return exited, files
}
