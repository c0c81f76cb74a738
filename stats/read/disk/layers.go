package disk

import (
	"context"
	"errors"
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
		u, err := stats.FsUsage{}, errRootUnknown
		if !s.awaitsRoot(c) {
			u, err = s.runtimeLayer(ctx, c)
		}
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

// errRootUnknown: the runtime's next list reports the root, and the container is then measured.
var errRootUnknown = errors.New("the runtime has not reported the container's root yet")

// awaitsRoot reports whether the runtime will report the root of a container. It must not be asked for
// the layer meanwhile: CRI-O walks the files of every container for its answer, one client at a time,
// also after the client has given up.
func (s *storageWalker) awaitsRoot(c *cri.Container) bool {
	return s.rooted && c.Root == "" && !c.Detailed
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

// runtimeLayer returns the runtime's value for a writable layer. One query covers all containers.
func (s *storageWalker) runtimeLayer(ctx context.Context, c *cri.Container) (stats.FsUsage, error) {
	s.queryLayers(ctx)
	u, ok := s.layerUsage[c.ID]
	if ok && time.Since(s.layersAnswered) <= storageLimit {
		u.Partial = s.layerErr != nil || s.layersOld // the value is of an earlier query
		return u, nil
	}
	why := errors.New("the host has no overlay mounted as its root, and " +
		"the runtime reports no writable layer usage")
	if c.PID == 0 {
		why = errors.New("neither its process nor its root is known yet")
	}
	return u, fmt.Errorf("container %s: %w", c.ID, errors.Join(why, s.mountErr, s.layerErr))
}

// queryLayers queries the runtime if the last answer is older than s.fresh. The query may be expensive:
// after it the runtime gets four times as long to rest, after one without an answer 15 s, then twice as
// long each time, storageEvery at most. Without an answer the earlier values stay.
func (s *storageWalker) queryLayers(ctx context.Context) {
	began := time.Now()
	if !s.layersQueried.Before(s.fresh) && !s.layersQueried.IsZero() {
		return
	}
	if s.layersOld = began.Before(s.queryNotBefore) || ctx.Err() != nil; s.layersOld {
		return
	}
	short, cancel := context.WithTimeout(ctx, runtimeTimeout)
	all, err := s.runtime.ListContainerStats(short)
	cancel()
	s.layersQueried, s.layerErr = began, err
	if err != nil {
		s.queryPause = min(max(2*s.queryPause, failedPause), storageEvery)
		s.queryNotBefore = time.Now().Add(s.queryPause)
		return
	}
	s.layersAnswered, s.queryPause = began, 0
	s.queryNotBefore = time.Now().Add(max(4*time.Since(began), time.Second))
	s.layerUsage = map[string]stats.FsUsage{}
	for _, c := range all {
		if l := c.WritableLayer; l != nil && l.UsedBytes != nil && l.InodesUsed != nil {
			u := stats.FsUsage{Time: l.Time, UsedBytes: *l.UsedBytes, InodesUsed: *l.InodesUsed}
			if u.Time.Unix() <= 0 { // the runtime sent no time
				u.Time = began
			}
			s.layerUsage[c.ID] = u
		}
	}
}

const (
	// runtimeTimeout bounds the wait for the runtime, because the measurement of all pods waits.
	runtimeTimeout = 3 * time.Second
	// failedPause is the first pause after a query without an answer.
	failedPause = 15 * time.Second
)

// exitedLayer measures the writable layer of an exited container. Its root is usually no longer
// mounted. Then the directory found while it was running is measured, or else the runtime's value is
// used: containerd reports it, CRI-O only those of running containers, as the CRI says. If there is no
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
	u, err := stats.FsUsage{}, errRootUnknown
	if !s.rooted {
		u, err = s.runtimeLayer(ctx, c)
	}
	if err != nil {
		return stats.FsUsage{Time: time.Now(), Partial: true}
	}
	return u
}
