package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/mounts"
)

// layer measures a container's writable layer: the upper directory of the overlay that the runtime
// has mounted as its root. If the host has no such mount, the runtime's value is used (devmapper,
// btrfs, native snapshots; CRI-O's mount points do not name the container). The layer of a
// container that does not run yet may be missing, because it is empty.
func (s *storageWalker) layer(ctx context.Context, c *cri.Container, out *storage) error {
	dir, ok := s.upper(c.ID, out.time)
	if !ok {
		u, err := s.runtimeLayer(ctx, c)
		if err == nil {
			out.layers[c.ID] = u
		} else if c.State == cri.Created {
			err = nil
		}
		return out.noteMissing(err)
	}
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
func (s *storageWalker) upper(id string, since time.Time) (string, bool) {
	s.readMounts()
	dir, ok := s.uppers[id]
	if !ok && s.mounted.Before(since) {
		s.mounted = time.Time{}
		s.readMounts()
		dir, ok = s.uppers[id]
	}
	return dir, ok
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
// The query is expensive, so it is repeated only every storageEvery.
func (s *storageWalker) runtimeLayer(ctx context.Context, c *cri.Container) (stats.FsUsage, error) {
	if s.layersQueried.IsZero() || time.Since(s.layersQueried) >= storageEvery {
		short, cancel := context.WithTimeout(ctx, runtimeTimeout)
		all, err := s.runtime.ListContainerStats(short)
		cancel()
		s.layersQueried, s.layerUsage, s.layerErr = time.Now(), map[string]stats.FsUsage{}, err
		for _, c := range all {
			if l := c.WritableLayer; l != nil && l.UsedBytes != nil && l.InodesUsed != nil {
				u := stats.FsUsage{Time: l.Time, UsedBytes: *l.UsedBytes, InodesUsed: *l.InodesUsed}
				if u.Time.Unix() <= 0 { // the runtime sent no time
					u.Time = s.layersQueried
				}
				s.layerUsage[c.ID] = u
			}
		}
	}
	u, ok := s.layerUsage[c.ID]
	if ok {
		return u, nil
	}
	why := errors.New("the host has no overlay mounted as its root, and " +
		"the runtime reports no writable layer usage")
	if c.PID == 0 {
		why = errors.New("neither its process nor its root is known yet")
	}
	return u, fmt.Errorf("container %s: %w", c.ID, errors.Join(why, s.mountErr, s.layerErr))
}

// runtimeTimeout bounds the wait for the runtime, because the measurement of all pods waits.
const runtimeTimeout = 3 * time.Second

// exitedLayer measures the writable layer of an exited container. Its root is usually no longer
// mounted, so the runtime's value is used. If the runtime reports no value, the result is 0 as a
// lower bound, which keep may replace with the last value while the container was running.
func (s *storageWalker) exitedLayer(ctx context.Context, c *cri.Container,
	since time.Time) stats.FsUsage {
	if dir, ok := s.upper(c.ID, since); ok {
		if u, _ := s.tree(ctx, dir); !u.Time.IsZero() {
			return u
		}
	}
	u, err := s.runtimeLayer(ctx, c)
	if err != nil {
		return stats.FsUsage{Time: time.Now(), Partial: true}
	}
	return u
}
