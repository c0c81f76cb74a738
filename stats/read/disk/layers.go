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
// has mounted as its root. Where the host has no such mount (devmapper, btrfs, native snapshots;
// CRI-O's mount points do not name the container), the runtime's own word is taken. One that does
// not run yet has written nothing, so its layer may be missing.
func (s *storageWalker) layer(ctx context.Context, c *cri.Container, out *storage) error {
	dir, ok := s.upper(c.ID, out.time)
	if !ok {
		u, err := s.byRuntime(ctx, c)
		if err == nil {
			out.layers[c.ID] = u
		} else if c.State == cri.Created {
			err = nil
		}
		return out.lacks(err)
	}
	u, err := out.lower(s.tree(ctx, dir))
	if err != nil {
		err = fmt.Errorf("container %s: %w", c.ID, err)
	}
	if !u.Time.IsZero() {
		out.layers[c.ID] = u
	}
	return err
}

// upper is the upper directory of a container's root. One that is not among the mounts may have
// been mounted since they were read: they are read anew, if that was before a time.
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

// readMounts renews what is known of the host's mounts: those of its first process. A container's
// own are no witness, for a tenant may put itself on an overlay of its choice (unshare(2),
// pivot_root(2)); nothing it mounts in there is seen out here.
func (s *storageWalker) readMounts() {
	if !s.mounted.IsZero() && time.Since(s.mounted) < mounts.Every {
		return
	}
	s.mounted = time.Now()
	// An old reading may name a directory that is another container's by now: none is better.
	if s.uppers, s.mntErr = mounts.UpperDirs(s.proc + "/1/mountinfo"); s.mntErr != nil {
		s.mntErr = fmt.Errorf("read the host's mounts: %w", s.mntErr)
	}
}

// byRuntime is what the runtime says of a writable layer. It is asked once for all containers, and
// seldom: that is dear.
func (s *storageWalker) byRuntime(ctx context.Context, c *cri.Container) (stats.FsUsage, error) {
	if s.asked.IsZero() || time.Since(s.asked) >= storageEvery {
		short, cancel := context.WithTimeout(ctx, runtimePatience)
		all, err := s.runtime.ListContainerStats(short)
		cancel()
		s.asked, s.told, s.tellErr = time.Now(), map[string]stats.FsUsage{}, err
		for _, c := range all {
			if l := c.WritableLayer; l != nil && l.UsedBytes != nil && l.InodesUsed != nil {
				u := stats.FsUsage{Time: l.Time, UsedBytes: *l.UsedBytes, InodesUsed: *l.InodesUsed}
				if u.Time.Unix() <= 0 { // it did not say
					u.Time = s.asked
				}
				s.told[c.ID] = u
			}
		}
	}
	u, ok := s.told[c.ID]
	if ok {
		return u, nil
	}
	why := errors.New("the host has no overlay mounted as its root, and the runtime does not say what it has written")
	if c.PID == 0 {
		why = errors.New("its process is not known yet, nor a root of it")
	}
	return u, fmt.Errorf("container %s: %w", c.ID, errors.Join(why, s.mntErr, s.tellErr))
}

// runtimePatience is how long the walk waits for the runtime's word: all pods wait with it.
const runtimePatience = 3 * time.Second

// exitedLayer is what a container that has exited left in its writable layer. Its root is not
// mounted any more, so the runtime's word is taken. Not every runtime has one: then what it holds
// is at least nothing, or what was found while the container lived (keep).
func (s *storageWalker) exitedLayer(ctx context.Context, c *cri.Container,
	since time.Time) stats.FsUsage {
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
