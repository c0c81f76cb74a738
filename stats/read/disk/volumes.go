package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// volumes measures the volumes that the kubelet counts as local (pkg/kubelet/eviction/helpers.go
// localVolumeNames), and those in memory. It skips secrets and projected volumes, because only the
// kubelet writes to their tmpfs.
func (s *storageWalker) volumes(ctx context.Context, uid, pod string, out *storage) error {
	out.projects = map[quota.Project]bool{}
	maps.DeleteFunc(s.owners, func(_ quota.Project, owner string) bool { return owner == uid })
	var errs []error
	for _, plugin := range []string{emptyDirPlugin, configMapPlugin, gitRepoPlugin} {
		dir := path.Join(pod, "volumes", plugin)
		err := s.names(dir, func(name string) {
			v, err := s.volume(ctx, uid, path.Join(dir, name), out.projects)
			v.Name = name
			if v.FsUsage, err = out.lowerBound(v.FsUsage, err); !v.Time.IsZero() {
				out.volumes = append(out.volumes, v)
			}
			errs = append(errs, err)
		})
		errs = append(errs, out.noteMissing(err))
	}
	slices.SortFunc(out.volumes, byName)
	return errors.Join(errs...)
}

func byName(a, b stats.VolumeStats) int { return cmp.Compare(a.Name, b.Name) }

// volume measures one volume, by the file system's own count (a whole tmpfs with a size, project
// quotas) or by a walk. On a node whose root is a tmpfs, a volume on disk is a directory of that
// tmpfs, which is walked.
func (s *storageWalker) volume(ctx context.Context, uid, dir string,
	counted map[quota.Project]bool) (v stats.VolumeStats, err error) {
	fd, err := s.host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return v, err
	}
	defer unix.Close(fd)
	fs, err := hostroot.Fstatfs(fd)
	if err != nil {
		return v, fmt.Errorf("statfs the host's %s: %w", dir, err)
	}
	v.Time = time.Now()
	v.HugePages = fs.Type == unix.HUGETLBFS_MAGIC
	v.Memory = v.HugePages || fs.Type == unix.TMPFS_MAGIC && hostroot.IsMountRoot(fd)
	// Without a size, a tmpfs counts nothing. Mounted in part, it counts the files of others too.
	if v.Memory && !v.HugePages && fs.Blocks > 0 && hostroot.IsTmpfsRoot(fd) {
		stats := hostroot.FsStats(&fs)
		v.UsedBytes, v.InodesUsed = stats.UsedBytes.V, stats.InodesUsed.V
		return v, nil
	}
	if p, u, ok := s.projectUsage(uid, fd); ok {
		v.Quota = true
		if !counted[p] { // a kubelet may give all volumes of a pod one project
			counted[p] = true
			v.UsedBytes, v.InodesUsed = u.Bytes, u.Inodes
		}
		return v, nil
	}
	u, err := s.w.Tree(ctx, fd)
	if err != nil {
		err = fmt.Errorf("walk the host's %s: %w", dir, err)
	}
	v.Time, v.UsedBytes, v.InodesUsed, v.Partial = time.Now(), u.Bytes, u.Inodes, u.Partial
	return v, err
}

// projectUsage returns the file system's own count of a volume. It does not trust a project that a
// volume of another pod has too, because a kubelet never gives one project to two pods.
func (s *storageWalker) projectUsage(uid string, fd int) (p quota.Project, u walk.Usage, ok bool) {
	ask := s.project
	if ask == nil {
		ask = quota.OfVolume
	}
	if p, u, ok = ask(fd); !ok {
		return p, u, false
	}
	if owner, taken := s.owners[p]; taken && owner != uid {
		return p, u, false
	}
	if s.owners == nil {
		s.owners = map[quota.Project]string{}
	}
	s.owners[p] = uid
	return p, u, true
}

// Names of volume plugin directories, as in the kubelet (pkg/kubelet/kubelet_getters.go,
// v1.37).
const (
	emptyDirPlugin  = "kubernetes.io~empty-dir"
	configMapPlugin = "kubernetes.io~configmap"
	gitRepoPlugin   = "kubernetes.io~git-repo"
)
