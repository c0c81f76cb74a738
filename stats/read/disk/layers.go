package disk

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/mounts"
)

// layer measures a container's writable layer: the upper directory of the overlay that the runtime
// has mounted as its root. If the host has no such mount, the runtime's value is used (devmapper,
// btrfs, native snapshots, fuse-overlayfs). The layer of a container that does not run yet may be
// missing, because it is empty.
func (s *storageWalker) layer(ctx context.Context, c *cri.Container, out *storage) error {
	dir, ok := s.upper(c, out.time)
	if !ok && s.rooted { // it has just ended, and its root is unmounted
		dir, ok = s.lastDirs[c.ID]
	}
	if !ok {
		dir, ok = s.queryRoot(ctx, c, out.time)
	}
	if !ok {
		u, err := s.runtimeLayer(ctx, c)
		if err == nil {
			out.layers[c.ID] = u
		} else if c.State == cri.Created {
			err = nil
		}
		return out.noteMissing(err)
	}
	out.dirs[c.ID] = dir
	u, err := out.lowerBound(s.tree(ctx, dir))
	if err != nil {
		err = fmt.Errorf("container %s: %w", c.ID, err)
	}
	if !u.Time.IsZero() {
		out.layers[c.ID] = u
	}
	return err
}

// upper returns the upper directory of a container's root. A container that is not in the mount
// table may have started after the table was read. If that was before since, upper reads the table
// again.
func (s *storageWalker) upper(c *cri.Container, since time.Time) (string, bool) {
	s.readMounts()
	dir, ok := s.upperOf(c)
	if !ok && s.mounted.Before(since) {
		s.mounted = time.Time{}
		s.readMounts()
		dir, ok = s.upperOf(c)
	}
	return dir, ok
}

// upperOf finds a container's root in the mount table. The runtime's name for it may contain a symbolic
// link, which the table has resolved. Then its last two elements must be unique (overlay/LAYER/merged).
func (s *storageWalker) upperOf(c *cri.Container) (dir string, ok bool) {
	if c.Root == "" {
		dir, ok = s.uppers[c.ID]
		return dir, ok
	}
	if dir, ok = s.uppers[c.Root]; ok {
		return dir, true
	}
	end, matches := path.Join(path.Base(path.Dir(c.Root)), path.Base(c.Root)), 0
	for at, upper := range s.uppers {
		if strings.HasSuffix(at, "/"+end) {
			dir, matches = upper, matches+1
		}
	}
	return dir, matches == 1
}

// readMounts refreshes the host's mount table, from the node's first process. It does not use the
// container's mount table, because a tenant can move its process to any overlay (unshare(2),
// pivot_root(2)). Such mounts are not visible in the host's table.
func (s *storageWalker) readMounts() {
	if !s.mounted.IsZero() && time.Since(s.mounted) < mounts.Every {
		return
	}
	s.mounted = time.Now()
	// After an error no table is used: a directory in an old table may now belong to another
	// container.
	if s.uppers, s.mountErr = mounts.UpperDirs(s.proc + "/1/mountinfo"); s.mountErr != nil {
		s.mountErr = fmt.Errorf("read the host's mounts: %w", s.mountErr)
	}
}

// exitedLayer measures the writable layer of an exited container. Its root is usually no longer
// mounted. Then the directory found while it was running is measured, or else the runtime's value is
// used: containerd reports it, CRI-O only that of a running container, as the CRI defines. If there is no
// value, the result is 0 as a lower bound, which keep may replace with the last value while the
// container was running.
func (s *storageWalker) exitedLayer(ctx context.Context, c *cri.Container, out *storage) stats.FsUsage {
	dir, ok := s.upper(c, out.time)
	if !ok && s.rooted { // the names of its layers are random and not used again
		dir, ok = s.lastDirs[c.ID]
	}
	if ok {
		if u, _ := s.tree(ctx, dir); !u.Time.IsZero() {
			out.dirs[c.ID] = dir
			return u
		}
	}
	if !s.rooted {
		if u, err := s.runtimeLayer(ctx, c); err == nil {
			return u
		}
	}
	return stats.FsUsage{Time: time.Now(), Partial: true}
}
